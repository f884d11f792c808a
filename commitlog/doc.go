// Package commitlog keeps one partition: an append-only log of record batches in
// segment files, with what Kafka's semantics need beside them: a sparse index of
// offsets and timestamps, the leader-epoch history, the state of idempotent and
// transactional producers, retention and compaction.
//
// Three rules hold everywhere.
//
//   - Visible means durable. A Log's high watermark is the offset up to which it is
//     fsynced; nothing above it is read. Where fsync is off, or a topic sets flush.ms
//     or flush.messages itself, it is the offset up to which it is written.
//   - Nothing is overwritten and nothing is truncated. Files grow at a tracked end.
//     What lies past the end of good data, after a crash or a failed write, stays
//     there: the segment is sealed at its good length and the next append begins a
//     new one.
//   - An index file is a seal. It says that the first so many bytes of its segment
//     are whole and durable, and which offsets, timestamps, aborted transactions and
//     producers are in them. What it covers is trusted at the next start; only the
//     rest is read and checked.
//
// docs/storage.md draws the files.
//
// Appends of a log are serialised by a mutex. Reads take none: they work on
// an immutable list of segments and on bounds that only grow.
package commitlog
