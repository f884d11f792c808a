package processor

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/processor/assignor"
	"github.com/lacunamq/lacuna/statestore"
)

// pieces are what of an area is to be read, each with the offset that the state has there;
// offsets are the state's, by their lowest slots.
func (a *App) pieces(group *assignor.Group, offsets []statestore.Offset, area assignor.Area, rebuild bool) (all []piece) {
	for _, s := range a.slotsOf(group, area) {
		for _, part := range known(offsets, s.TopicPartition, s.Slots) {
			all = append(all, piece{tp: s.TopicPartition, spec: feedSpec{slots: part.Slots, rebuild: rebuild}, next: part.Next})
		}
	}
	return all
}

// slotsOf is an area as ranges of the inputs' partitions.
func (a *App) slotsOf(group *assignor.Group, area assignor.Area) (ranges []client.AssignedSlots) {
	for _, name := range a.topology.Inputs {
		for _, s := range group.Slots(name, area) {
			ranges = append(ranges, client.AssignedSlots{
				TopicPartition: client.TopicPartition{Topic: name, Partition: s.Partition}, Slots: client.SlotRange{Lo: s.Lo, Hi: s.Hi}})
		}
	}
	return ranges
}

// source is some slots of an input as a state has offsets for them.
func (a *App) source(tp client.TopicPartition, slots client.SlotRange) statestore.Source {
	return statestore.Source{Topic: tp.Topic, TopicID: a.topicID(tp.Topic), Partition: tp.Partition, Slots: slots}
}

// known divides a range of slots by what the state knows of it; Next is -1 where it knows
// nothing. The offsets are in the order of their slots.
func known(offsets []statestore.Offset, tp client.TopicPartition, slots client.SlotRange) (parts []statestore.Offset) {
	at := int32(slots.Lo)
	add := func(to int32, next int64) { // up to to, included
		if to >= at {
			parts = append(parts, statestore.Offset{Next: next, Source: statestore.Source{Slots: client.SlotRange{Lo: uint16(at), Hi: uint16(to)}}})
			at = to + 1
		}
	}
	for _, o := range offsets {
		if o.Topic != tp.Topic || o.Partition != tp.Partition || o.Slots.Hi < slots.Lo || o.Slots.Lo > slots.Hi {
			continue
		}
		add(int32(o.Slots.Lo)-1, -1)
		add(min(int32(o.Slots.Hi), int32(slots.Hi)), o.Next)
	}
	add(int32(slots.Hi), -1)
	return parts
}

// openFeed opens the Reader of a feed.
func (a *App) openFeed(t *task, spec feedSpec, pieces []piece) (*feed, error) {
	f := &feed{spec: spec, failed: a.readFailed, began: make(map[client.TopicPartition]int64), taken: make(map[client.TopicPartition]int64), ends: make(map[client.TopicPartition]int64),
		batches: t.batches, verdicts: make(chan int), promoted: make(chan struct{})}
	starts, err := a.starts(t.ctx, pieces)
	if err != nil {
		return nil, err
	}
	opts := append(a.cfg.readerOpts(), client.Slots(spec.slots))
	f.mu.follows = make(map[client.TopicPartition]bool)
	for i, p := range pieces {
		f.tps = append(f.tps, p.tp)
		f.mu.follows[p.tp] = true
		f.began[p.tp] = max(p.next, 0)
		if starts[i] >= 0 {
			f.began[p.tp] = starts[i]
			opts = append(opts, client.StartAt(p.tp.Topic, p.tp.Partition, starts[i]))
		} else {
			opts = append(opts, client.Partitions(p.tp.Topic, p.tp.Partition))
		}
		if spec.staged {
			f.ends[p.tp] = p.end
			opts = append(opts, client.StopAt(p.tp.Topic, p.tp.Partition, p.end))
		}
	}
	if a.replays() {
		opts = append(opts, client.DeliverCommitted())
	}
	f.reader, err = t.member.OpenReader(t.ctx, opts...)
	return f, err
}

// readFailed is told that a feed could not read.
func (a *App) readFailed(err error) {
	if errors.Is(err, client.ErrTopicRecreated) {
		a.fail(err)
		return
	}
	a.report(err)
}

// starts is where to begin to read pieces: where the state is, which the log must reach back
// to, or its start if nothing of it was ever processed. A scratch state, and one of a changelog,
// begins where the ledger is, which is -1 here; a scratch one that has taken in a stage begins
// behind that.
func (a *App) starts(ctx context.Context, pieces []piece) ([]int64, error) {
	all := make([]int64, len(pieces))
	if !a.replays() {
		for i, p := range pieces {
			if all[i] = -1; a.topology.Ack == AckOnPunctuate {
				all[i] = p.next
			}
		}
		return all, nil
	}
	logs, err := a.admin.ListStartOffsets(ctx, a.topology.Inputs...)
	if err != nil {
		return nil, err
	}
	var processed kadm.OffsetResponses // read when it matters
	for i, p := range pieces {
		log, ok := logs.Lookup(p.tp.Topic, p.tp.Partition)
		switch {
		case !ok:
			return nil, fmt.Errorf("%v: no start offset", p.tp)
		case log.Err != nil:
			return nil, fmt.Errorf("%v: %w", p.tp, log.Err)
		}
		all[i] = max(p.next, 0)
		if all[i] >= log.Offset {
			continue
		}
		if p.next < 0 {
			if processed == nil {
				if processed, err = a.admin.FetchOffsetsForTopics(ctx, a.group, a.topology.Inputs...); err != nil {
					return nil, err
				}
			}
			stable, ok := processed.Lookup(p.tp.Topic, p.tp.Partition)
			if ok && stable.Err != nil {
				return nil, fmt.Errorf("%v: %w", p.tp, stable.Err)
			}
			if !ok || stable.At <= 0 {
				all[i] = log.Offset
				continue
			}
		}
		return nil, &fatalError{fmt.Errorf("the state is at offset %d of %v, and the log begins at %d: what is between is gone, so the state cannot be built up", all[i], p.tp, log.Offset)}
	}
	return all, nil
}
