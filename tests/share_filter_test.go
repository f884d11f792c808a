package tests

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/cespare/xxhash/v2"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// drawFilter draws slot ranges, keys or both, or nothing, for a fetch that takes all.
func (c *shareCheck) drawFilter(rng *rand.Rand) *protocol.KeyFilter {
	kind := rng.IntN(4)
	if kind == 0 {
		return nil
	}
	f := &protocol.KeyFilter{}
	if kind&1 != 0 {
		for range 1 + rng.IntN(3) {
			lo := uint16(rng.IntN(math.MaxUint16 + 1))
			f.Ranges = append(f.Ranges, protocol.SlotRange{Lo: lo, Hi: lo + uint16(rng.IntN(math.MaxUint16+1-int(lo)))})
		}
	}
	if kind&2 != 0 {
		for range 1 + rng.IntN(3) {
			f.Keys = append(f.Keys, fmt.Append(nil, "key-", rng.IntN(c.keys+1)))
		}
	}
	return f
}

// calmFilter has one worker take what is in the lower half of the slots, and the next what
// is in the upper half. There may be some that take all.
func (c *shareCheck) calmFilter(worker int) *protocol.KeyFilter {
	switch {
	case !c.calmFilters || c.someTakeAll && worker%3 == 2:
		return nil
	case worker%2 == 0:
		return &protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: 0, Hi: math.MaxUint16 / 2}}}
	}
	return &protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: math.MaxUint16/2 + 1, Hi: math.MaxUint16}}}
}

// checkFilter looks whether a filter takes all that a worker was dealt.
func (a *shareAccount) checkFilter(w *shareWorker, f *protocol.KeyFilter, dealt []wire.Shared) {
	for i := range dealt {
		if d := &dealt[i]; !takes(f, d) {
			a.mu.Lock()
			a.flaw("partition %d, offset %d, key %q is dealt to %s, whose filter is %v", d.Partition, d.Offset, d.Key, w.m.ID, f)
			a.mu.Unlock()
		}
	}
}

// takes tells whether a record matches a filter, as docs/protocol.md has it.
func takes(f *protocol.KeyFilter, r *wire.Shared) bool {
	if f == nil {
		return true
	}
	hashed := r.Key
	if r.Key == nil {
		hashed = binary.BigEndian.AppendUint64(nil, uint64(r.Offset))
	}
	slot := uint16(xxhash.Sum64(hashed) >> 48)
	for _, s := range f.Ranges {
		if s.Lo <= slot && slot <= s.Hi {
			return true
		}
	}
	for _, key := range f.Keys {
		if r.Key != nil && string(key) == string(r.Key) {
			return true
		}
	}
	return false
}
