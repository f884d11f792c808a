package processor

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/processor/assignor"
	"github.com/lacunamq/lacuna/statestore"
)

// apply applies one record of the changelog, as far as the state does not have it.
func (l *taskLog) apply(r *kgo.Record) error {
	switch {
	case len(r.Key) > 0 && r.Key[0] == changeEntry:
		e, err := decodeEntry(r.Key, r.Value)
		if err != nil {
			return &fatalError{err}
		}
		unit := int64(r.Partition)*assignor.UnitsPerBucket + int64(e.slot)
		if i, ok := slices.BinarySearchFunc(l.ranges, unit, compareRange); !ok || r.Offset < l.ranges[i].next {
			return nil
		}
		l.scratch, err = restore(l.t.store, &e, unit, l.restored, l.scratch)
		return err
	case len(r.Key) > 0 && r.Key[0] == changeProgress:
		p, err := decodeProgress(r.Key, r.Value)
		if err != nil {
			return &fatalError{err}
		}
		return l.applyProgress(r, &p)
	}
	return &fatalError{errors.New("a record of an unknown kind")}
}

// compareRange finds the range that has a unit.
func compareRange(r logRange, unit int64) int {
	switch {
	case r.units.To <= unit:
		return -1
	case r.units.From > unit:
		return 1
	}
	return 0
}

// applyProgress notes how far an input is taken in, for what of it is followed.
func (l *taskLog) applyProgress(r *kgo.Record, p *progressChange) error {
	for i := range l.ranges {
		if span := &l.ranges[i]; int32(span.units.From/assignor.UnitsPerBucket) == r.Partition && r.Offset >= span.next {
			if err := l.progressOf(span, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *taskLog) progressOf(r *logRange, p *progressChange) error {
	for i := range r.sources {
		s := &r.sources[i]
		if s.id != p.topic {
			continue
		}
		if now := l.t.group.Topics[s.topic].Fold; now != p.partitions {
			return &fatalError{fmt.Errorf("the group divided %s by %d partitions when this was written, and does by %d now: the state would be another's", s.topic, p.partitions, now)}
		}
		for _, slots := range s.slots {
			if lo, hi := max(slots.Lo, p.slots.Lo), min(slots.Hi, p.slots.Hi); slots.Partition == p.partition && lo <= hi {
				l.offsets = append(l.offsets, statestore.Offset{Next: p.next, Source: l.t.app.source(
					client.TopicPartition{Topic: s.topic, Partition: p.partition}, client.SlotRange{Lo: lo, Hi: hi})})
			}
		}
	}
	return nil
}

// dropStale drops what the state has of an area and cannot be read on from: the changelog
// begins above, ends below, or may have lost tombstones that were written since.
func (l *taskLog) dropStale(area assignor.Area, b *logBounds) error {
	offsets, err := l.t.storedOffsets()
	if err != nil {
		return err
	}
	var known, stale assignor.Area
	for i := range offsets {
		o, p := &offsets[i], offsets[i].Partition
		units := l.topic.area(o)
		known = known.Union(units)
		// The last record of a log is never cleaned away.
		whole := o.Next >= b.stale[p] || b.ends[p]-o.Next <= 1
		if b.starts[p] <= o.Next && o.Next <= b.ends[p] && whole {
			continue
		}
		if units = units.Intersect(area); !units.Empty() {
			l.t.app.report(fmt.Errorf("bucket %d: the state is at offset %d of the changelog %s[%d], which has all from %d to %d: it is restored whole",
				l.t.bucket, o.Next, l.topic.name, p, max(b.starts[p], b.stale[p]), b.ends[p]))
		}
		stale = stale.Union(units)
	}
	switch {
	case stale.Empty():
		return nil
	case known.Minus(stale).Empty():
		err = l.t.state.wipe(&l.t.group)
	default:
		err = l.drop(stale)
	}
	if err != nil {
		return fmt.Errorf("bucket %d: drop what is stale of its state: %w", l.t.bucket, err)
	}
	return nil
}

// dropAtATime is how many entries are dropped in one commit.
const dropAtATime = 10_000

// drop removes the entries of an area and then, so that a crash before leaves it stale, what
// the state knows of offsets in it.
func (l *taskLog) drop(area assignor.Area) error {
	store := l.t.store
	n := 0
	for e, err := range store.Range(nil, nil) {
		if err != nil {
			return err
		}
		if e.Key[0] == 0 {
			continue // the runtime's own
		}
		unit, err := unitOf(e.Value)
		if err != nil {
			return err
		}
		if !area.Contains(unit) {
			continue
		}
		if err := store.Delete(bytes.Clone(e.Key)); err != nil {
			return err
		}
		if n++; n%dropAtATime == 0 {
			if err := store.Commit(); err != nil {
				return err
			}
		}
	}
	forgotten := l.topic.appendOffsets(nil, area, everywhere(statestore.Forgotten))
	for _, s := range l.t.app.slotsOf(&l.t.group, area) {
		forgotten = append(forgotten, statestore.Offset{Next: statestore.Forgotten, Source: l.t.app.source(s.TopicPartition, s.Slots)})
	}
	return store.Commit(forgotten...)
}
