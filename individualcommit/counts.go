package individualcommit

import (
	"bytes"
	"iter"
	"maps"
	"slices"
)

// countBlock is the delivery counts of a block of offsets, as the log has them.
type countBlock struct {
	epoch   int32  // the owner epoch of the key
	value   []byte // empty: the record could not be read
	unknown bool   // it is of an unknown version
}

// blockBytes is about what a block takes in memory beside its value.
const blockBytes = 96

// What is kept of values that went away, so that counts that come and go allocate nothing.
const (
	spareValues     = 16
	spareValueBytes = 512
)

// Counts yields the blocks of offsets of which delivery counts are logged, rising, with
// the counts, which belong to the State.
func (e *Entry) Counts() iter.Seq2[int64, []byte] {
	return func(yield func(int64, []byte) bool) {
		for _, number := range e.blocks() {
			if value := e.counts[number].value; len(value) > 0 && !yield(number, value) {
				return
			}
		}
	}
}

// HasCounts tells whether there is a record of delivery counts.
func (e *Entry) HasCounts() bool { return len(e.counts) > 0 }

// blocks are the numbers of all blocks that have a record, rising.
func (e *Entry) blocks() []int64 {
	if len(e.counts) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(e.counts))
}

// LogCounts replaces the delivery counts of a block, and appends the record that says so
// if they differ. Without counts, what there was is buried. The State does not look at
// them, and copies them.
func (s *State) LogCounts(w *Records, e *Entry, number int64, counts []byte) {
	b, ok := e.counts[number]
	switch {
	case !ok && len(counts) == 0:
		return
	case ok && b.epoch == s.ownerEpoch && len(counts) > 0 && bytes.Equal(b.value, counts):
		return
	case ok && (b.epoch != s.ownerEpoch || len(counts) == 0):
		w.tombstone(&Key{OwnerEpoch: b.epoch, ID: e.ID, Kind: KindCounts, Block: number})
	}
	if len(counts) == 0 {
		s.dropCounts(e, number)
		s.recount(e)
		return
	}
	start := len(w.buf)
	k := Key{OwnerEpoch: s.ownerEpoch, ID: e.ID, Kind: KindCounts, Block: number}
	buf := k.AppendTo(w.buf)
	keyEnd := len(buf)
	w.append(append(appendValueHeader(buf, countsVersion, s.ownerEpoch), counts...), start, keyEnd)
	s.setCounts(e, number, s.ownerEpoch, counts)
	s.recount(e)
}

// BuryCounts appends the tombstones of all delivery counts of a ledger.
func (s *State) BuryCounts(w *Records, e *Entry) {
	if len(e.counts) == 0 {
		return
	}
	for _, number := range e.blocks() {
		w.tombstone(&Key{OwnerEpoch: e.counts[number].epoch, ID: e.ID, Kind: KindCounts, Block: number})
		s.dropCounts(e, number)
	}
	s.recount(e)
}

// BuryOrphans appends the tombstones of delivery counts and outcomes whose ledgers are not
// there, once the log was applied to its end. They count for no ledger.
func (s *State) BuryOrphans(w *Records) {
	for _, of := range s.groups {
		for _, e := range of {
			if !e.founded && len(e.counts)+len(e.outcomes) > 0 && e.Trouble() == nil {
				s.BuryCounts(w, e)
				s.buryOutcomes(w, e)
				s.removeIfNothing(e)
			}
		}
	}
}

func (s *State) applyCounts(k *Key, value []byte) error {
	e := s.entry(k.ID)
	if value == nil {
		if b, ok := e.counts[k.Block]; ok && b.epoch == k.OwnerEpoch {
			s.dropCounts(e, k.Block)
			s.recount(e)
		}
		s.removeIfNothing(e)
		return nil
	}
	counts, unknown, err := parseCounts(value)
	s.setCounts(e, k.Block, k.OwnerEpoch, counts)
	if unknown {
		b := e.counts[k.Block]
		b.unknown = true
		e.counts[k.Block] = b
		e.unknownCounts++
	}
	s.recount(e)
	return err
}

// setCounts is what a record of counts does, live or replayed.
func (s *State) setCounts(e *Entry, number int64, epoch int32, counts []byte) {
	b, ok := e.counts[number]
	switch {
	case !ok && e.counts == nil:
		e.counts = make(map[int64]countBlock)
		fallthrough
	case !ok:
		b.value = s.takeValue()
		e.countsBytes += blockBytes + int64(cap(b.value))
	case b.unknown:
		e.unknownCounts--
	}
	e.countsBytes -= int64(cap(b.value))
	b = countBlock{epoch: epoch, value: append(b.value[:0], counts...)}
	e.countsBytes += int64(cap(b.value))
	e.counts[number] = b
}

// dropCounts is what the tombstone of counts does, live or replayed.
func (s *State) dropCounts(e *Entry, number int64) {
	b := e.counts[number]
	delete(e.counts, number)
	e.countsBytes -= blockBytes + int64(cap(b.value))
	if b.unknown {
		e.unknownCounts--
	}
	if len(s.spare) < spareValues && cap(b.value) > 0 && cap(b.value) <= spareValueBytes {
		s.spare = append(s.spare, b.value)
	}
}

func (s *State) takeValue() []byte {
	n := len(s.spare)
	if n == 0 {
		return nil
	}
	value := s.spare[n-1]
	s.spare = s.spare[:n-1]
	return value
}
