package client

import (
	"fmt"
	"sort"

	"github.com/twmb/franz-go/pkg/kgo"
)

// PartitionStatus is how far a Reader is in one partition, as far as it knows.
type PartitionStatus struct {
	TopicPartition
	// Position is the next offset to deliver behind all that was delivered. A Reader with a
	// ledger begins at its max commit offset, and delivers the gaps below that first; one with
	// [StartAt] begins there.
	Position int64
	// Stable is the offset below which everything is committed.
	Stable int64
	// MaxCommit is one past the highest offset that is committed; 0 if none is, or without
	// a group.
	MaxCommit int64
	// HighWatermark is the end of the log, and LastStable the offset below which no
	// transaction is open, both as the last fetch saw them; -1 before the first.
	HighWatermark, LastStable int64
	// Redelivering tells that offsets below Position are still to be delivered: gaps that
	// the ledger had when the Reader began, or what was asked for once more.
	Redelivering bool
	// Unanswered is the number of offsets whose commit was asked for and not answered.
	Unanswered int64
	// Err is why the partition is not read at the moment; nil if it is.
	Err error
}

// Past tells whether all that the Reader wants below offset end was delivered.
func (s PartitionStatus) Past(end int64) bool { return s.Position >= end && !s.Redelivering }

// String is the status in one line.
func (s PartitionStatus) String() string {
	line := fmt.Sprintf("%v at %d, stable %d", s.TopicPartition, s.Position, s.Stable)
	if s.Err != nil {
		line += ": " + s.Err.Error()
	}
	return line
}

// Status returns how far the Reader is, ordered by topic and partition.
func (r *Reader) Status() []PartitionStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]PartitionStatus, 0, len(r.mu.partitions))
	for _, p := range r.mu.partitions {
		s := PartitionStatus{TopicPartition: p.tp, Position: p.position, Stable: p.stable, MaxCommit: p.maxCommit,
			HighWatermark: p.highWatermark, LastStable: p.lastStable,
			Redelivering: !p.again.Empty(), Unanswered: p.pending.Count(), Err: p.broken}
		if s.Err == nil && p.tries > 0 {
			s.Err = r.mu.trouble
		}
		all = append(all, s)
	}
	sort.Slice(all, func(i, j int) bool { return compareTopicPartitions(all[i].TopicPartition, all[j].TopicPartition) < 0 })
	return all
}

// Received counts the records and the bytes of them, compressed as they are stored, that
// brokers have sent since the Reader was opened. Records that were sent and not delivered
// count: a broker sends a batch whole that it does not look into. Those that [ReadCommitted]
// leaves out count by their bytes only.
func (r *Reader) Received() (records, bytes int64) {
	return r.receivedRecords.Load(), r.receivedBytes.Load()
}

// IsCommitted tells whether an offset is committed, as far as the Reader knows: by the
// ledger as it was read last, and the answers to its own commits since. A commit on its way
// does not count, nor does what an open transaction has acknowledged (see [StableLedger]).
// Of partitions that the Reader does not read it knows nothing.
func (r *Reader) IsCommitted(tp TopicPartition, offset int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.mu.partitions[tp]
	return p != nil && p.committed(offset)
}

// Committed is [Reader.IsCommitted] for each of the records, all at the same moment.
func (r *Reader) Committed(records ...*kgo.Record) []bool {
	committed := make([]bool, len(records))
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, record := range records {
		p := r.mu.partitions[TopicPartition{record.Topic, record.Partition}]
		committed[i] = p != nil && p.committed(record.Offset)
	}
	return committed
}
