package statestore

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/lacunamq/lacuna/protocol"
)

// logKey names one partition of one topic.
type logKey struct {
	topic     string
	id        [16]byte
	partition int32
}

func (s *Source) log() logKey { return logKey{s.Topic, s.TopicID, s.Partition} }

// span is the next offset of some slots of a partition, both ends included.
type span struct {
	lo, hi uint16
	next   int64
}

// offsetMap maps the slots of partitions to offsets. The spans of a partition are sorted
// and share no slot. Neighbours with the same offset are not merged, since they would
// part again at the next commit of one of them.
type offsetMap map[logKey][]span

// edit is one change of an offsetMap: the span that begins at lo is gone or is now this.
type edit struct {
	log  logKey
	span span // only lo counts if gone
	gone bool
}

// set makes o true and appends what changed, in the order in which it must be applied.
func (m offsetMap) set(o *Offset, edits []edit) []edit {
	log := o.log()
	if log.id != ([16]byte{}) {
		nameless := log
		nameless.id = [16]byte{}
		if _, ok := m[nameless]; ok {
			edits = m.replace(nameless, span{o.Slots.Lo, o.Slots.Hi, Forgotten}, edits)
		}
	}
	return m.replace(log, span{o.Slots.Lo, o.Slots.Hi, o.Next}, edits)
}

// replace puts s in the place of all that it overlaps.
func (m offsetMap) replace(log logKey, s span, edits []edit) []edit {
	spans := m[log]
	at, found := slices.BinarySearchFunc(spans, s.lo, func(old span, lo uint16) int { return cmp.Compare(old.lo, lo) })
	if found && spans[at].hi == s.hi && s.next != Forgotten {
		spans[at].next = s.next
		return append(edits, edit{log: log, span: s})
	}
	if !found && at > 0 && spans[at-1].hi >= s.lo {
		at--
	}
	end := at
	var parts []span
	var left, right *span
	for ; end < len(spans) && spans[end].lo <= s.hi; end++ {
		old := spans[end]
		edits = append(edits, edit{log: log, span: old, gone: true})
		if old.lo < s.lo {
			left = &span{old.lo, s.lo - 1, old.next}
		}
		if old.hi > s.hi {
			right = &span{s.hi + 1, old.hi, old.next}
		}
	}
	if left != nil {
		parts = append(parts, *left)
	}
	if s.next != Forgotten {
		parts = append(parts, s)
	}
	if right != nil {
		parts = append(parts, *right)
	}
	for _, part := range parts {
		edits = append(edits, edit{log: log, span: part})
	}
	if spans = slices.Replace(spans, at, end, parts...); len(spans) == 0 {
		delete(m, log)
	} else {
		m[log] = spans
	}
	return edits
}

// committed is the least offset within the slots of s, if each has one.
func (m offsetMap) committed(s *Source) (next int64, ok bool) {
	log := s.log()
	spans := m[log]
	var nameless []span
	if log.id != ([16]byte{}) {
		log.id = [16]byte{}
		nameless = m[log]
	}
	next = -1
	for slot := int(s.Slots.Lo); slot <= int(s.Slots.Hi); {
		a, okA := spanAt(spans, slot)
		b, okB := spanAt(nameless, slot)
		switch {
		case !okA && !okB:
			return 0, false
		case !okA:
			a = b
		case okB:
			a.hi, a.next = min(a.hi, b.hi), min(a.next, b.next)
		}
		if next < 0 || a.next < next {
			next = a.next
		}
		slot = int(a.hi) + 1
	}
	return next, next >= 0
}

// spanAt is the span that has the slot.
func spanAt(spans []span, slot int) (span, bool) {
	at, found := slices.BinarySearchFunc(spans, slot, func(s span, slot int) int { return cmp.Compare(int(s.lo), slot) })
	if found {
		return spans[at], true
	}
	if at > 0 && int(spans[at-1].hi) >= slot {
		return spans[at-1], true
	}
	return span{}, false
}

// list is all offsets in order; neighbours that agree are one.
func (m offsetMap) list() []Offset {
	var all []Offset
	for log, spans := range m {
		for i, s := range spans {
			if last := len(all) - 1; i > 0 && spans[i-1].next == s.next && spans[i-1].hi+1 == s.lo {
				all[last].Slots.Hi = s.hi
				continue
			}
			all = append(all, log.offset(s))
		}
	}
	slices.SortFunc(all, compareOffsets)
	return all
}

func (l logKey) offset(s span) Offset {
	return Offset{
		Source: Source{Topic: l.topic, TopicID: l.id, Partition: l.partition, Slots: protocol.SlotRange{Lo: s.lo, Hi: s.hi}},
		Next:   s.next,
	}
}

func compareOffsets(a, b Offset) int {
	return cmp.Or(
		cmp.Compare(a.Topic, b.Topic),
		bytes.Compare(a.TopicID[:], b.TopicID[:]),
		cmp.Compare(a.Partition, b.Partition),
		cmp.Compare(a.Slots.Lo, b.Slots.Lo))
}

// missing returns the parts of offsets for which m has none, neither under their id nor,
// where an offset has no id, under any.
func (m offsetMap) missing(offsets []Offset) []Offset {
	var left []Offset
	for _, o := range offsets {
		known := offsetMap{}
		rest := offsetMap{logKey{}: {{o.Slots.Lo, o.Slots.Hi, o.Next}}}
		for log, spans := range m {
			nameless := log.id == [16]byte{} || o.TopicID == [16]byte{}
			if log.topic == o.Topic && log.partition == o.Partition && (log.id == o.TopicID || nameless) {
				known[log] = spans
			}
		}
		for _, spans := range known {
			for _, s := range spans {
				if s.lo <= o.Slots.Hi && s.hi >= o.Slots.Lo {
					rest.replace(logKey{}, span{s.lo, s.hi, Forgotten}, nil)
				}
			}
		}
		for _, s := range rest[logKey{}] {
			left = append(left, o.log().offset(s))
		}
	}
	return left
}

// MinOffsets is how far all of some stores are: the least offset of each source, for the
// slots that every one of them has. A task with several stores reads on from there.
func MinOffsets(stores ...[]Offset) []Offset {
	if len(stores) == 0 {
		return nil
	}
	least := offsetMap{}
	for _, o := range stores[0] {
		least.set(&o, nil)
	}
	for _, offsets := range stores[1:] {
		other, both := offsetMap{}, offsetMap{}
		for _, o := range offsets {
			other.set(&o, nil)
		}
		for log, spans := range least {
			for _, s := range spans {
				for _, o := range other[log] {
					if lo, hi := max(s.lo, o.lo), min(s.hi, o.hi); lo <= hi {
						both.replace(log, span{lo, hi, min(s.next, o.next)}, nil)
					}
				}
			}
		}
		least = both
	}
	return least.list()
}
