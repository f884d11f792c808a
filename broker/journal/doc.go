// Package journal makes a list of keyed records of an internal topic's partition, and
// holds the one way in which state is derived from such a list.
//
// The log is the truth. The state that serves requests is in memory; a view in the
// state store is its fast start, written at checkpoints together with the offset that
// it is applied to. Recover opens the view, reads its offset and replays the log from
// there; a view that is ahead of its log or behind its start is dropped and built anew.
// Nothing that is not durable reaches a view.
//
// An owner changes durable state so: it decides, appends the records, applies them, and
// answers when the Receipt is durable. If the append fails it recovers again.
//
// Records may be part of a producer's transaction, whose marker is a control batch in the
// same partition. What they mean before and after it is for a Transactional state to say.
package journal
