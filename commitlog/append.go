package commitlog

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/lacunamq/lacuna/protocol"
	"go.uber.org/zap"
)

// AppendOptions is what Append knows of a batch besides its bytes.
type AppendOptions struct {
	// Header is the batch's header if the caller has parsed it; nil: Append does.
	Header *protocol.BatchHeader

	// Internal marks a batch that the broker wrote itself: records of a coordinator, or a
	// transaction's marker. Its size, timestamps and sequence are not checked, its
	// producer epoch is.
	Internal bool

	// TransactionVersion is of a marker: the one that its coordinator runs, Kafka's
	// transaction.version.
	TransactionVersion int16

	// NoWait tells that nobody waits for the batch to be durable (acks 0 and 1): it is
	// fsynced within Options.FlushInterval, together with others.
	NoWait bool
}

// Appended is what Append did.
type Appended struct {
	Base, Last   int64 // offsets of the batch's first and last record
	AppendTimeMs int64 // the timestamp given to the records, -1 if they keep their own
	LogStart     int64
	Duplicate    bool // the batch was appended before, at these offsets

	// Flush makes the batch durable; nil if there is nothing to wait for. It is shared by
	// all appends of a group commit.
	Flush *Flush
}

// Append appends exactly one batch whose checksum and shape the caller has checked. It
// sets the batch's base offset, leader epoch and, for LogAppendTime, its timestamp in
// place, and batch belongs to the log for the duration of the call: its bytes may be
// changed further.
//
// Batches get their offsets in the order of the calls. The batch is visible, and
// survives a crash, when Flush is done without an error.
func (l *Log) Append(batch []byte, o AppendOptions) (Appended, error) {
	h, err := appendHeader(batch, o.Header)
	if err != nil {
		return Appended{}, fmt.Errorf("append to %s: %w", l.opts.Name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return Appended{}, err
	}
	e := entry{h: h, bytes: batch, origin: fromClient, nowMs: l.nowMs()}
	if o.Internal {
		e.origin = fromCoordinator
	}
	dup, err := l.checkLocked(&e, o)
	if err != nil {
		return Appended{}, fmt.Errorf("append to %s at offset %d: %w", l.opts.Name, l.end.Load(), err)
	}
	if dup != nil {
		return l.duplicateLocked(dup), nil
	}
	if err := l.writeLocked(&e); err != nil {
		return Appended{}, err
	}
	return l.appendedLocked(&e, o), nil
}

func appendHeader(batch []byte, parsed *protocol.BatchHeader) (protocol.BatchHeader, error) {
	var h protocol.BatchHeader
	if parsed != nil {
		h = *parsed
	} else {
		var err error
		if h, err = protocol.ParseBatchHeader(batch); err != nil {
			return h, err
		}
	}
	if h.Size() != len(batch) {
		return h, fmt.Errorf("%w: %d bytes, the header says %d", protocol.ErrCorruptBatch, len(batch), h.Size())
	}
	return h, nil
}

// entry is a batch on its way into the log.
type entry struct {
	h        protocol.BatchHeader
	bytes    []byte
	origin   batchOrigin
	nowMs    int64
	marker   marker
	isMarker bool
}

func (e *entry) parseMarker() error {
	if !e.h.Control() {
		return nil
	}
	m, ok, err := protocol.ParseEndTxnMarker(&e.h, e.bytes[protocol.BatchHeaderLen:])
	if err != nil {
		return err
	}
	e.isMarker = ok && e.h.ProducerID >= 0
	e.marker = marker{abort: !m.Commit, coordinatorEpoch: m.CoordinatorEpoch}
	return nil
}

// checkLocked decides whether the batch is appended; a batch that was before is
// returned as its duplicate.
func (l *Log) checkLocked(e *entry, o AppendOptions) (*producedBatch, error) {
	if err := l.checkSizeLocked(e); err != nil {
		return nil, err
	}
	if err := e.parseMarker(); err != nil {
		return nil, err
	}
	if e.origin == fromClient {
		if e.h.Control() {
			return nil, fmt.Errorf("%w: a control batch from a client", protocol.ErrInvalidRecord)
		}
		if err := checkTimestamps(e, &l.mu.config, l.opts.Decoding); err != nil {
			return nil, err
		}
	}
	if e.h.ProducerID < 0 {
		return nil, nil
	}
	if e.isMarker {
		return nil, l.mu.producers.checkMarker(&e.h, e.marker, o.TransactionVersion)
	}
	return l.mu.producers.check(&e.h, e.origin)
}

func (l *Log) checkSizeLocked(e *entry) error {
	size, room := int64(len(e.bytes)), l.mu.config.segmentBytes()
	if e.origin == fromCoordinator {
		room = maxSegmentBytes // a coordinator cannot split a record: a larger segment is its own
	}
	if size > room {
		return fmt.Errorf("%w: %d bytes, a segment has %d", ErrTooLarge, size, room)
	}
	if e.origin == fromClient && size > int64(l.mu.config.MaxMessageBytes) {
		return fmt.Errorf("%w: %d bytes, max.message.bytes is %d", ErrTooLarge, size, l.mu.config.MaxMessageBytes)
	}
	return nil
}

func (l *Log) duplicateLocked(b *producedBatch) Appended {
	a := Appended{
		Base:         b.base(),
		Last:         b.lastOffset,
		AppendTimeMs: -1,
		LogStart:     l.start.Load(),
		Duplicate:    true,
		Flush:        l.flushCoveringLocked(b.lastOffset + 1),
	}
	if l.mu.config.LogAppendTime {
		a.AppendTimeMs = b.timestampMs
	}
	return a
}

// writeLocked gives the batch its offsets and writes it. If it fails, nothing was
// appended.
func (l *Log) writeLocked(e *entry) error {
	base := l.end.Load()
	e.h.BaseOffset = base
	if l.mu.config.LogAppendTime {
		e.h.MaxTimestamp = e.nowMs
	}
	s, err := l.roomLocked(e)
	if err != nil {
		return l.storageErrorLocked(base, err)
	}
	e.h.LeaderEpoch = l.mu.state.epochs.latest()
	protocol.SetBaseOffset(e.bytes, base)
	protocol.SetLeaderEpoch(e.bytes, e.h.LeaderEpoch)
	if l.mu.config.LogAppendTime {
		protocol.SetLogAppendTime(e.bytes, e.nowMs)
	}
	f, err := s.file()
	if err == nil {
		_, err = f.WriteAt(e.bytes, s.size.Load())
	}
	if err != nil {
		l.mu.tornTail = true
		return l.storageErrorLocked(base, err)
	}
	l.noteLocked(s, e)
	return nil
}

// storageErrorLocked is the error of an append that the disk refused. A full disk
// leaves the log as it was; anything else ends its writing.
func (l *Log) storageErrorLocked(offset int64, err error) error {
	if l.mu.failed != nil {
		return l.mu.failed
	}
	if isNoSpace(err) && !errors.Is(err, errSync) {
		if !l.mu.full {
			l.mu.full = true
			l.logger.Warn("the disk is full: appends fail until there is room", zap.String("log", l.opts.Name), zap.Int64("offset", offset), zap.Error(err))
		}
		return fmt.Errorf("append to %s at offset %d: %w: %w", l.opts.Name, offset, ErrNoSpace, err)
	}
	return l.failLocked(err)
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// noteLocked makes the batch, which is written, part of the log.
func (l *Log) noteLocked(s *segment, e *entry) {
	h, pos := &e.h, s.size.Load()
	x := s.index.Load()
	x.note(h.BaseOffset-s.base, pos, s.stats.maxTimestamp, l.mu.config.IndexIntervalBytes)
	s.stats.note(h)
	if h.ProducerID >= 0 {
		if txn, ok := l.mu.producers.apply(e); ok {
			x.aborted.append(txn)
		}
	}
	if !s.used.Load() {
		s.used.Store(true)
	}
	s.next.Store(h.NextOffset()) // before the size: a reader checks what it reads against it
	s.size.Store(pos + int64(len(e.bytes)))
	l.end.Store(h.NextOffset())
	if l.mu.full {
		l.mu.full = false
		l.logger.Info("the disk has room again: appends go on", zap.String("log", l.opts.Name), zap.Int64("offset", h.BaseOffset))
	}
}

func (st *segmentStats) note(h *protocol.BatchHeader) {
	if h.NumRecords > 0 { // a cleaned batch without records has no time
		if st.lastEpoch < 0 {
			st.firstTimestamp = h.MaxTimestamp
		}
		st.maxTimestamp = max(st.maxTimestamp, h.MaxTimestamp)
	}
	st.lastEpoch = h.LeaderEpoch
}

// apply notes a batch that is in the log. txn is the aborted transaction that it ends.
func (ps *producers) apply(e *entry) (txn abortedTxn, ok bool) {
	switch {
	case e.isMarker:
		return ps.applyMarker(&e.h, e.marker, e.nowMs)
	case !e.h.Control():
		ps.applyData(&e.h, e.nowMs)
	}
	return abortedTxn{}, false
}

func (l *Log) appendedLocked(e *entry, o AppendOptions) Appended {
	a := Appended{Base: e.h.BaseOffset, Last: e.h.LastOffset(), AppendTimeMs: -1, LogStart: l.start.Load()}
	if l.mu.config.LogAppendTime {
		a.AppendTimeMs = e.nowMs
	}
	a.Flush = l.flushAfterAppendLocked(o.NoWait, int64(e.h.LastOffsetDelta)+1)
	l.publishLocked()
	return a
}
