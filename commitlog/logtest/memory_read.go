package logtest

import (
	"cmp"
	"slices"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
)

// Bounds implements Log. Everything is durable at once.
func (m *Memory) Bounds() commitlog.Bounds {
	m.mu.Lock()
	defer m.mu.Unlock()
	end := m.end()
	stable := end
	for _, x := range m.txns() {
		if x.last < 0 {
			stable = min(stable, x.first)
		}
	}
	return commitlog.Bounds{Start: m.mu.start, LSO: max(m.mu.start, stable), HighWatermark: end, End: end}
}

// Read implements Log.
func (m *Memory) Read(dst []byte, from int64, o commitlog.ReadOptions) (commitlog.Read, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := commitlog.Read{Data: dst, Next: from}
	if from < m.mu.start || from > m.end() {
		return r, commitlog.ErrOffsetOutOfRange
	}
	room := o.MaxBytes
	for _, b := range m.mu.batches {
		if b.h.NextOffset() <= from {
			continue
		}
		first := len(r.Data) == len(dst)
		if b.h.NextOffset() > min(o.UpTo, m.end()) || len(b.bytes) > room && !(first && o.MinOne) {
			break
		}
		room -= len(b.bytes)
		r.Data = append(r.Data, b.bytes...)
		r.Next = b.h.NextOffset()
	}
	return r, nil
}

// txn is a transaction with records; last is the offset of its marker, -1 while it is
// open.
type txn struct {
	producer    int64
	first, last int64
	aborted     bool
}

func (m *Memory) txns() []txn {
	var all []txn
	for _, b := range m.mu.batches {
		i := slices.IndexFunc(all, func(x txn) bool { return x.producer == b.h.ProducerID && x.last < 0 })
		switch {
		case b.marker != nil && i >= 0:
			all[i].last, all[i].aborted = b.h.BaseOffset, !b.marker.Commit
		case b.marker == nil && b.h.Transactional() && i < 0:
			all = append(all, txn{producer: b.h.ProducerID, first: b.h.BaseOffset, last: -1})
		}
	}
	return all
}

// AbortedTxns implements Log.
func (m *Memory) AbortedTxns(from, to int64) ([]commitlog.AbortedTxn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []commitlog.AbortedTxn
	for _, x := range m.txns() {
		if x.aborted && x.last >= from && x.first < to {
			found = append(found, commitlog.AbortedTxn{ProducerID: x.producer, FirstOffset: x.first})
		}
	}
	return found, nil
}

// records calls fn for each record from the log start on, until it returns false.
func (m *Memory) records(fn func(h *protocol.BatchHeader, r *protocol.Record) bool) error {
	for _, b := range m.mu.batches {
		records, err := protocol.DecompressRecords(nil, &b.h, b.bytes, protocol.DefaultMaxDecodedBytes)
		if err != nil {
			return err
		}
		for it := protocol.IterateRecords(&b.h, records); it.Next(); {
			if it.Record().Offset >= m.mu.start && !fn(&b.h, it.Record()) {
				return nil
			}
		}
	}
	return nil
}

// OffsetForTimestamp implements Log.
func (m *Memory) OffsetForTimestamp(ms int64) (found commitlog.TimestampedOffset, ok bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	err = m.records(func(h *protocol.BatchHeader, r *protocol.Record) bool {
		if r.TimestampMs >= ms {
			found, ok = timestamped(h, r), true
		}
		return !ok
	})
	return found, ok, err
}

// MaxTimestamp implements Log.
func (m *Memory) MaxTimestamp() (found commitlog.TimestampedOffset, ok bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found.TimestampMs = -1
	err = m.records(func(h *protocol.BatchHeader, r *protocol.Record) bool {
		if r.TimestampMs > found.TimestampMs {
			found, ok = timestamped(h, r), true
		}
		return true
	})
	if !ok {
		found = commitlog.TimestampedOffset{}
	}
	return found, ok, err
}

func timestamped(h *protocol.BatchHeader, r *protocol.Record) commitlog.TimestampedOffset {
	return commitlog.TimestampedOffset{Offset: r.Offset, TimestampMs: r.TimestampMs, LeaderEpoch: h.LeaderEpoch}
}

// EndOfEpoch implements Log.
func (m *Memory) EndOfEpoch(epoch int32) (found int32, end int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if epoch != 0 {
		return -1, -1
	}
	return 0, m.end()
}

// EpochAt implements Log.
func (m *Memory) EpochAt(int64) int32 { return 0 }

// DeleteRecords implements Log.
func (m *Memory) DeleteRecords(before int64) (start int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if before == -1 {
		before = m.end()
	}
	if before < 0 || before > m.end() {
		return m.mu.start, commitlog.ErrOffsetOutOfRange
	}
	if before > m.mu.start {
		m.mu.start = before
		m.notify()
	}
	return m.mu.start, nil
}

// Producers implements Log.
func (m *Memory) Producers() []commitlog.ProducerInfo {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := []commitlog.ProducerInfo{}
	for _, b := range m.mu.batches {
		if b.h.ProducerID < 0 {
			continue
		}
		i := slices.IndexFunc(all, func(p commitlog.ProducerInfo) bool { return p.ID == b.h.ProducerID })
		if i < 0 {
			i = len(all)
			all = append(all, commitlog.ProducerInfo{ID: b.h.ProducerID, Epoch: -1, LastSequence: -1, CoordinatorEpoch: -1, TxnFirstOffset: -1})
		}
		m.advance(&all[i], &b)
	}
	slices.SortFunc(all, func(a, b commitlog.ProducerInfo) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

func (m *Memory) advance(p *commitlog.ProducerInfo, b *batch) {
	if p.Epoch != b.h.ProducerEpoch {
		p.Epoch, p.LastSequence = b.h.ProducerEpoch, -1
	}
	p.LastTimestampMs = b.h.MaxTimestamp
	if b.marker != nil {
		p.CoordinatorEpoch, p.TxnFirstOffset = b.marker.CoordinatorEpoch, -1
		return
	}
	p.LastSequence = -1 // a coordinator's batches have none
	if b.h.BaseSequence >= 0 {
		p.LastSequence = int32((int64(b.h.BaseSequence) + int64(b.h.LastOffsetDelta)) % (1 << 31))
	}
	if b.h.Transactional() && p.TxnFirstOffset < 0 {
		p.TxnFirstOffset = b.h.BaseOffset
	}
}
