package coordinator

import (
	"time"

	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/journal"
)

// batchBytes is about how large a batch of records gets. A record that is larger is a
// batch of its own.
const batchBytes = 512 << 10

// append appends what the turn has decided so far.
func (s *shard) append(now time.Time) error {
	w := &s.owner
	if len(w.out.Records) == 0 {
		return nil
	}
	if err := s.ensureOpen(); err != nil {
		return err
	}
	for rest := w.out.Records; len(rest) > 0; {
		n := fitting(rest)
		if err := s.appendBatch(rest[:n], now.UnixMilli()); err != nil {
			return err
		}
		rest = rest[n:]
	}
	w.out.Appended()
	s.followTransactions()
	return nil
}

// ensureOpen opens a partition that was not written before.
func (s *shard) ensureOpen() error {
	if s.owner.journal != nil {
		return nil
	}
	return s.openEmpty()
}

// fitting is how many of the records go into the next batch, all of them in the same
// transaction or in none.
func fitting(records []group.Record) int {
	size := 0
	for i := range records {
		if i > 0 && !sameTransaction(&records[0], &records[i]) {
			return i
		}
		size += len(records[i].Key) + len(records[i].Value)
		if size > batchBytes && i > 0 {
			return i
		}
	}
	return len(records)
}

func sameTransaction(a, b *group.Record) bool {
	return a.Producer == b.Producer || a.Producer != nil && b.Producer != nil && *a.Producer == *b.Producer
}

func (s *shard) appendBatch(records []group.Record, nowMs int64) error {
	w := &s.owner
	list := make([]journal.Record, len(records))
	for i := range records {
		list[i] = journal.Record{Key: records[i].Key, Value: records[i].Value, TimestampMs: nowMs}
	}
	if p := records[0].Producer; p != nil {
		receipt, err := w.journal.AppendInTransaction(journal.Transaction{ProducerID: p.ID, ProducerEpoch: p.Epoch}, list)
		if err == nil {
			w.last, w.applied = receipt, receipt.Next
		}
		return err
	}
	receipt, err := w.journal.Append(list)
	if err != nil {
		return err
	}
	w.last, w.applied = receipt, receipt.Next
	for i := range records {
		w.view.unseen.Note(records[i].Key, records[i].Value)
	}
	return nil
}
