package processor

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/processor/assignor"
	"github.com/lacunamq/lacuna/statestore"
)

// findEnds looks where the inputs end, to tell how far behind the states on disk are. Without
// that a member says only that it has them.
func (a *App) findEnds(ctx context.Context) {
	found, err := a.admin.ListEndOffsets(ctx, a.topology.Inputs...)
	if err != nil {
		a.report(fmt.Errorf("look how far behind the states of group %s are: %w", a.group, err))
		return
	}
	a.ends = make(map[client.TopicPartition]int64)
	found.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			a.ends[client.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = o.Offset
		}
	})
}

// stored are the states on disk, by what a member knows of the group.
func (a *App) stored(known *assignor.Claim) (all []assignor.Stored) {
	for _, bucket := range a.cache.Tasks() {
		s := assignor.Stored{Bucket: bucket, Lag: -1}
		if known.Group != nil && a.ends != nil {
			area := known.Group.Bucket(bucket, int32(len(known.Holders)))
			if lag, ok := a.cache.Lag(bucket, a.endsOf(known.Group, area)); ok {
				s.Lag = max(0, lag) // one that is open here is behind nobody else's
			}
		}
		all = append(all, s)
	}
	return all
}

// endsOf are the ends of the inputs in an area.
func (a *App) endsOf(group *assignor.Group, area assignor.Area) (ends []statestore.Offset) {
	for _, s := range a.slotsOf(group, area) {
		if end, ok := a.ends[s.TopicPartition]; ok {
			ends = append(ends, statestore.Offset{Next: end, Source: a.source(s.TopicPartition, s.Slots)})
		}
	}
	return ends
}

// Reached is how far the store of a task is in some slots of a partition: Next is the next
// offset that it takes in, -1 if it has taken in nothing of them.
type Reached struct {
	client.AssignedSlots
	Next int64
}

// reachedIn is how far the store of a task was in an area when it was last looked at.
func (a *App) reachedIn(group *assignor.Group, offsets []statestore.Offset, area assignor.Area) (all []Reached) {
	for _, p := range a.pieces(group, offsets, area, false) {
		all = append(all, Reached{client.AssignedSlots{TopicPartition: p.tp, Slots: p.spec.slots}, p.next})
	}
	return all
}

// lookAtStore has others see how far the store is. It costs too much for each unit of work, so
// a task does it when it waits, and now and then when it does not.
func (t *task) lookAtStore() {
	if t.app.topology.Ack == AckOnPunctuate || t.store == nil {
		return
	}
	offsets, err := t.storedOffsets()
	if err != nil {
		return // the next unit of work will tell
	}
	t.looked, t.unseen = t.app.cfg.now(), false
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.offsets = offsets
}

// offsets is what lookAtStore saw last.
func (t *task) offsets() []statestore.Offset {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.offsets
}
