// Package logtest is the contract of a partition log: a suite that any implementation
// has to pass, and the slow and obvious implementation to compare others with.
package logtest

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
)

// Log is what the contract covers; *commitlog.Log and *Memory have it.
type Log interface {
	Append(batch []byte, o commitlog.AppendOptions) (commitlog.Appended, error)
	Read(dst []byte, from int64, o commitlog.ReadOptions) (commitlog.Read, error)
	Bounds() commitlog.Bounds
	Watch(ch chan<- struct{}) (cancel func())
	AbortedTxns(from, to int64) ([]commitlog.AbortedTxn, error)
	OffsetForTimestamp(ms int64) (found commitlog.TimestampedOffset, ok bool, err error)
	MaxTimestamp() (found commitlog.TimestampedOffset, ok bool, err error)
	EndOfEpoch(epoch int32) (found int32, end int64)
	EpochAt(offset int64) int32
	DeleteRecords(before int64) (start int64, err error)
	Producers() []commitlog.ProducerInfo
	Seal() error
	Close() error
}

// Memory is a log in a slice: every question is answered by going through all batches.
// It has one leader epoch and deletes nothing by itself.
type Memory struct {
	config commitlog.Config
	now    func() time.Time

	mu struct {
		sync.Mutex
		batches  []batch // all that were ever appended
		start    int64
		closed   bool
		watchers []chan<- struct{}
	}
}

// batch is a stored batch.
type batch struct {
	h      protocol.BatchHeader
	bytes  []byte
	marker *protocol.EndTxnMarker
}

// NewMemory is an empty log.
func NewMemory(c commitlog.Config, now func() time.Time) *Memory {
	return &Memory{config: c, now: now}
}

// Append implements Log.
func (m *Memory) Append(b []byte, o commitlog.AppendOptions) (commitlog.Appended, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return commitlog.Appended{}, commitlog.ErrClosed
	}
	h, err := protocol.ParseBatchHeader(b)
	if err != nil || h.Size() != len(b) {
		return commitlog.Appended{}, fmt.Errorf("%w: %d bytes", protocol.ErrCorruptBatch, len(b))
	}
	a := commitlog.Appended{AppendTimeMs: -1, LogStart: m.mu.start}
	if !o.Internal {
		if err := m.checkProduced(&h, b); err != nil {
			return a, err
		}
	}
	marker := parseMarker(&h, b)
	dup, err := m.checkProducer(&h, marker, o)
	if err != nil {
		return a, err
	}
	if dup != nil {
		a.Base, a.Last, a.Duplicate = dup.h.BaseOffset, dup.h.LastOffset(), true
		if m.config.LogAppendTime {
			a.AppendTimeMs = dup.h.MaxTimestamp
		}
		return a, nil
	}
	a.Base = m.end()
	protocol.SetBaseOffset(b, a.Base)
	protocol.SetLeaderEpoch(b, 0)
	if m.config.LogAppendTime {
		a.AppendTimeMs = m.now().UnixMilli()
		protocol.SetLogAppendTime(b, a.AppendTimeMs)
	}
	h, _ = protocol.ParseBatchHeader(b)
	a.Last = h.LastOffset()
	m.mu.batches = append(m.mu.batches, batch{h: h, bytes: slices.Clone(b), marker: marker})
	m.notify()
	return a, nil
}

func parseMarker(h *protocol.BatchHeader, b []byte) *protocol.EndTxnMarker {
	if m, ok, err := protocol.ParseEndTxnMarker(h, b[protocol.BatchHeaderLen:]); err == nil && ok {
		return &m
	}
	return nil
}

func (m *Memory) checkProduced(h *protocol.BatchHeader, b []byte) error {
	nowMs := m.now().UnixMilli()
	if h.Control() {
		return protocol.ErrInvalidRecord
	}
	if h.Size() > int(m.config.MaxMessageBytes) {
		return commitlog.ErrTooLarge
	}
	records, err := protocol.DecompressRecords(nil, h, b, protocol.DefaultMaxDecodedBytes)
	if err != nil {
		return err
	}
	for it := protocol.IterateRecords(h, records); it.Next(); {
		ms := it.Record().TimestampMs
		early := m.config.TimestampBeforeMaxMs < math.MaxInt64 && ms < nowMs-m.config.TimestampBeforeMaxMs
		if !m.config.LogAppendTime && ms >= 0 && (early || ms-nowMs > m.config.TimestampAfterMaxMs) {
			return commitlog.ErrInvalidTimestamp
		}
	}
	return nil
}

// checkProducer tells whether a producer may write the batch, by all that it wrote.
func (m *Memory) checkProducer(h *protocol.BatchHeader, marker *protocol.EndTxnMarker, o commitlog.AppendOptions) (dup *batch, err error) {
	var mine []*batch // of its epoch, oldest first
	epoch, coordinator, inTxn := int16(-1), int32(-1), false
	for i := range m.mu.batches {
		b := &m.mu.batches[i]
		if h.ProducerID < 0 || b.h.ProducerID != h.ProducerID {
			continue
		}
		if b.h.ProducerEpoch != epoch {
			epoch, mine = b.h.ProducerEpoch, nil
		}
		if b.marker != nil {
			coordinator, inTxn = b.marker.CoordinatorEpoch, false
			continue
		}
		mine = append(mine, b)
		inTxn = inTxn || b.h.Transactional()
	}
	switch {
	case h.ProducerID < 0 || epoch < 0:
		return nil, nil
	case marker != nil:
		late := o.TransactionVersion >= 2 && h.ProducerEpoch == epoch && inTxn
		if h.ProducerEpoch < epoch || late {
			return nil, commitlog.ErrInvalidProducerEpoch
		}
		if marker.CoordinatorEpoch < coordinator {
			return nil, commitlog.ErrCoordinatorFenced
		}
		return nil, nil
	}
	if !o.Internal && h.ProducerEpoch == epoch {
		for _, b := range mine[max(0, len(mine)-5):] {
			if b.h.BaseSequence == h.BaseSequence && b.h.LastOffsetDelta == h.LastOffsetDelta {
				return b, nil
			}
		}
	}
	if h.ProducerEpoch < epoch {
		return nil, commitlog.ErrInvalidProducerEpoch
	}
	if !o.Internal && h.BaseSequence != nextSequence(mine, h.ProducerEpoch == epoch) {
		return nil, commitlog.ErrOutOfOrderSequence
	}
	if inTxn && !h.Transactional() {
		return nil, commitlog.ErrInvalidTxnState
	}
	return nil, nil
}

// nextSequence is the one after a producer's last batch, 0 in a new epoch.
func nextSequence(mine []*batch, sameEpoch bool) int32 {
	if !sameEpoch || len(mine) == 0 {
		return 0
	}
	last := mine[len(mine)-1]
	return int32((int64(last.h.BaseSequence) + int64(last.h.LastOffsetDelta) + 1) % (1 << 31))
}

func (m *Memory) end() int64 {
	if n := len(m.mu.batches); n > 0 {
		return m.mu.batches[n-1].h.NextOffset()
	}
	return 0
}

func (m *Memory) notify() {
	for _, ch := range m.mu.watchers {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// Watch implements Log.
func (m *Memory) Watch(ch chan<- struct{}) (cancel func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.watchers = append(m.mu.watchers, ch)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if i := slices.Index(m.mu.watchers, ch); i >= 0 {
			m.mu.watchers = slices.Delete(m.mu.watchers, i, i+1)
		}
	}
}

// Seal implements Log; there are no segments here.
func (m *Memory) Seal() error { return nil }

// Close implements Log.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.closed = true
	m.notify()
	return nil
}
