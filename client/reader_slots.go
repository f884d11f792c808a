package client

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kgo"
)

// slotFilter is the part of the keys that a Reader wants at a time. It does not change; a
// Reader that wants less has another one.
type slotFilter struct {
	asked  protocol.KeyFilter
	tag    []byte // the same on the wire
	filter *keyfilter.Filter
}

func newSlotFilter(asked protocol.KeyFilter) (*slotFilter, error) {
	filter, err := keyfilter.New(asked)
	if err != nil {
		return nil, err
	}
	return &slotFilter{asked: asked, tag: asked.AppendTo(nil), filter: filter}, nil
}

// matches tells whether a record is wanted; by nil every one is.
func (f *slotFilter) matches(record *kgo.Record) bool {
	return f == nil || f.filter.Match(record.Key, record.Offset)
}

// keep drops, in place, the records that are not wanted.
func (f *slotFilter) keep(records []*kgo.Record) []*kgo.Record {
	if f == nil {
		return records
	}
	return slices.DeleteFunc(records, func(record *kgo.Record) bool { return !f.matches(record) })
}

// Narrow limits the Reader to slots that are a part of those that it has; it cannot be
// widened again. What Poll returns to calls made after Narrow has returned is within
// them, fetches ask for nothing else, and nothing within them is left out. It fails, and
// changes nothing, if there are no slots or others than the Reader has, or if it reads [Keys].
// A Reader that has read whole partitions needs a broker with the key filter from then on.
func (r *Reader) Narrow(slots ...SlotRange) error {
	ranges := normalSlots(slots)
	r.mu.Lock()
	defer r.mu.Unlock()
	has := []SlotRange{allSlots}
	if r.mu.slots != nil {
		has = normalSlots(r.mu.slots.asked.Ranges)
	}
	switch {
	case r.mu.closed:
		return ErrClosed
	case len(slots) == 0:
		return errors.New("narrow a reader: no slots are left: close it instead")
	case r.mu.slots != nil && len(r.mu.slots.asked.Keys) > 0:
		return errors.New("narrow a reader: it reads keys (client.Keys) and not only slots")
	}
	for _, s := range slots {
		if s.Lo > s.Hi || !slices.ContainsFunc(has, func(h SlotRange) bool { return h.Lo <= s.Lo && s.Hi <= h.Hi }) {
			return fmt.Errorf("narrow a reader: slots %d-%d are not within those that it has, %v", s.Lo, s.Hi, has)
		}
	}
	if len(ranges) > protocol.MaxKeysAndRanges {
		return fmt.Errorf("narrow a reader: %d slot ranges are more than the %d that a fetch takes", len(ranges), protocol.MaxKeysAndRanges)
	}
	narrowed, err := newSlotFilter(protocol.KeyFilter{Ranges: ranges})
	if err != nil {
		return fmt.Errorf("narrow a reader: %w", err)
	}
	r.mu.slots = narrowed
	for _, c := range r.mu.ready {
		c.records = narrowed.keep(c.records)
	}
	return nil
}

// normalSlots are the same slots in order, in as few ranges as there can be.
func normalSlots(slots []SlotRange) (normal []SlotRange) {
	for _, s := range slices.SortedFunc(slices.Values(slots), func(x, y SlotRange) int { return cmp.Compare(x.Lo, y.Lo) }) {
		if last := len(normal) - 1; last >= 0 && int(s.Lo) <= int(normal[last].Hi)+1 {
			normal[last].Hi = max(normal[last].Hi, s.Hi)
			continue
		}
		normal = append(normal, s)
	}
	return normal
}
