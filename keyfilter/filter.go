package keyfilter

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/lacunamq/lacuna/protocol"
)

// ErrInvalidFilter marks a filter without ranges and keys, or with a range that ends
// before it begins. Kafka's error code for it is INVALID_REQUEST.
var ErrInvalidFilter = errors.New("invalid key filter")

// Filter decides which records match: those whose slot lies in one of its ranges, or
// whose key is one of its keys, byte for byte. It is not changed after New, so any
// number of readers may share it.
type Filter struct {
	ranges slotSet // a slot in it matches
	may    slotSet // ranges, and the slots of the keys
	keys   keySet
}

// New compiles the filter that a fetch asks for. It copies the ranges and aliases the
// keys, which must stay as they are while the filter is used.
func New(asked protocol.KeyFilter) (*Filter, error) {
	if len(asked.Ranges) == 0 && len(asked.Keys) == 0 {
		return nil, fmt.Errorf("%w: neither a slot range nor a key", ErrInvalidFilter)
	}
	for _, r := range asked.Ranges {
		if r.Lo > r.Hi {
			return nil, fmt.Errorf("%w: slot range %d to %d", ErrInvalidFilter, r.Lo, r.Hi)
		}
	}
	f := &Filter{ranges: newSlotSet(slices.Clone(asked.Ranges))}
	f.may = f.ranges
	if len(asked.Keys) > 0 && !f.ranges.full() {
		f.may = f.ranges.clone()
		f.keys = newKeySet(asked.Keys)
		for _, k := range f.keys.keys {
			f.may.add(uint16(k.hash >> 48))
		}
	}
	return f, nil
}

// All tells whether every record matches, so that there is nothing to filter.
func (f *Filter) All() bool { return f.ranges.full() }

// MayMatch tells whether a record of that slot can match.
func (f *Filter) MayMatch(slot uint16) bool { return f.may.contains(slot) }

// Match tells whether the record with that key (nil for a null one) and offset matches.
func (f *Filter) Match(key []byte, offset int64) bool {
	return f.matchSlot(Slot(key, offset), key)
}

// matchSlot is Match for a record whose slot is known.
func (f *Filter) matchSlot(slot uint16, key []byte) bool {
	if f.ranges.contains(slot) {
		return true
	}
	return f.may.contains(slot) && f.keys.contains(xxhash.Sum64(key), key)
}

// exact tells whether the slot alone decides, since there are no keys.
func (f *Filter) exact() bool { return len(f.keys.keys) == 0 }
