package processor

import (
	"fmt"
	"slices"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/processor/assignor"
	"github.com/lacunamq/lacuna/statestore"
)

// piece is a range of slots of a partition, and where the state is in it.
type piece struct {
	tp   client.TopicPartition
	spec feedSpec
	next int64 // -1: nowhere yet
	end  int64 // of its stage, if it is read no further
}

// storedOffsets are the offsets of the state, by their lowest slots.
func (t *task) storedOffsets() ([]statestore.Offset, error) {
	offsets, err := t.store.Offsets()
	if err != nil {
		return nil, fmt.Errorf("bucket %d: read the offsets of its state: %w", t.bucket, err)
	}
	slices.SortFunc(offsets, func(x, y statestore.Offset) int { return int(x.Slots.Lo) - int(y.Slots.Lo) })
	return offsets, nil
}

// reading is what the task wants to read, in the pieces that its state has offsets for.
func (t *task) reading() ([]piece, error) {
	offsets, err := t.storedOffsets()
	if err != nil {
		return nil, err
	}
	pieces := t.app.pieces(&t.group, offsets, t.want.active, false)
	if t.app.topology.Ack == AckOnPunctuate {
		return pieces, nil // a scratch store is built up of what is open, by whoever processes it
	}
	return append(pieces, t.app.pieces(&t.group, offsets, t.want.rebuild, true)...), nil
}

// inTurn are the pieces whose turn it is: all of a topic that has not grown. Of one that has,
// a key may have records in any partition that counts as the same one; those of an earlier
// stage (assignor.Topic.Stage) come first, wherever they are.
func inTurn(group *assignor.Group, pieces []piece) (now []piece, staged bool) {
	for _, p := range pieces {
		topic := group.Topics[p.tp.Topic]
		if len(topic.Grown) == 0 {
			now = append(now, p)
			continue
		}
		stage, end := topic.Stage(p.tp.Partition, p.next)
		first := !slices.ContainsFunc(pieces, func(o piece) bool {
			earlier, _ := topic.Stage(o.tp.Partition, o.next)
			return earlier < stage && p.mayShareKeys(&o, topic.Fold)
		})
		if !first {
			staged = true
			continue
		}
		if end >= 0 {
			p.spec.staged, p.end, staged = true, end, true
		}
		now = append(now, p)
	}
	return now, staged
}

// mayShareKeys tells whether a key may be in both pieces.
func (p *piece) mayShareKeys(o *piece, fold int32) bool {
	return p.tp.Topic == o.tp.Topic && p.tp.Partition%fold == o.tp.Partition%fold &&
		p.spec.slots.Lo <= o.spec.slots.Hi && o.spec.slots.Lo <= p.spec.slots.Hi
}

// ended tells that the batch is used up and that its feed brings no other.
func (b *batch) ended() bool { return b.last && b.used == len(b.records) }

// nextStage goes on behind feeds that have come to the end of their stages. What they have
// brought is acknowledged by a later punctuation, or has been. With a changelog, of which a
// state is always at the end, all begins anew when the last of them has ended.
func (t *task) nextStage(ended []*feed) {
	for _, f := range ended {
		f.ended = true
	}
	switch {
	case t.log != nil:
		if !slices.ContainsFunc(t.feeds, func(f *feed) bool { return f.spec.staged && !f.ended }) {
			t.closeAll()
		}
		return
	case t.app.topology.Ack == AckAtProcess:
		t.feeds = slices.DeleteFunc(t.feeds, func(f *feed) bool { return f.ended })
		t.stopFeeds(ended)
	}
	if err := t.addFeeds(); err != nil {
		t.restart(err)
	}
}

// followGroup takes in what the group has come to know of its topics. Feeds that do not stop
// where a stage ends are read anew. When units are others than they were, so is the state.
func (t *task) followGroup(group assignor.Group) {
	before := t.group
	t.group = group
	switch {
	case t.chain == nil || group.Equal(&before):
	case !group.MeasuresAs(&before) || t.log != nil || t.app.topology.Ack == AckOnPunctuate:
		t.closeAll()
	default:
		t.stopFeeds(t.feeds)
		t.feeds, t.queue = nil, nil
	}
}

// keepFeeds stops the feeds that do not go on. What they have read and the state has not comes
// again from its offset.
func (t *task) keepFeeds(goesOn func(*feed) bool) {
	var kept, over []*feed
	for _, f := range t.feeds {
		if goesOn(f) {
			kept = append(kept, f)
		} else {
			over = append(over, f)
		}
	}
	t.queue = slices.DeleteFunc(t.queue, func(b *batch) bool { return slices.Contains(over, b.feed) })
	t.feeds = kept
	t.stopFeeds(over)
}

// dropFeeds stops the feeds that read anything which is not wanted, or not in that way. Those
// of an area that has become the task's own go on.
func (t *task) dropFeeds() {
	if t.log != nil {
		t.log.giveUp()
		return
	}
	wanted := func(f *feed, rebuild bool) bool {
		area := t.want.active
		if rebuild {
			area = t.want.rebuild
		}
		return allWithin(&t.group, f.tps, f.spec.slots, area)
	}
	t.keepFeeds(func(f *feed) bool {
		if wanted(f, f.spec.rebuild) {
			return true
		}
		own := f.spec.rebuild && t.app.topology.Ack == AckAtProcess && wanted(f, false)
		if own {
			f.spec.rebuild = false
			f.promote()
		}
		return own
	})
}

// allWithin tells whether some slots of partitions all lie in an area.
func allWithin(group *assignor.Group, tps []client.TopicPartition, slots client.SlotRange, area assignor.Area) bool {
	return !slices.ContainsFunc(tps, func(tp client.TopicPartition) bool {
		return !slices.ContainsFunc(group.Slots(tp.Topic, area), func(s assignor.Slots) bool {
			return s.Partition == tp.Partition && s.Lo <= slots.Lo && slots.Hi <= s.Hi
		})
	})
}

// addFeeds opens feeds for what is wanted and not read yet.
func (t *task) addFeeds() error {
	if t.log != nil {
		return t.log.takeUp()
	}
	pieces, err := t.reading()
	if err != nil {
		return err
	}
	pieces, t.staged = inTurn(&t.group, pieces)
	var more []piece
	for _, p := range pieces {
		more = append(more, unread(p, t.feeds)...)
	}
	if err := t.openFeeds(more, (*feed).start); err != nil {
		return err
	}
	t.state.visible = t.want.active.Union(t.want.rebuild)
	t.note(t.want)
	return nil
}

// openFeeds opens feeds, each for the pieces that are read in one way.
func (t *task) openFeeds(pieces []piece, begin func(*feed)) error {
	groups := make(map[feedSpec][]piece)
	for _, p := range pieces {
		groups[p.spec] = append(groups[p.spec], p)
	}
	for spec, pieces := range groups {
		f, err := t.app.openFeed(t, spec, pieces)
		if err != nil {
			return err
		}
		t.feeds = append(t.feeds, f)
		begin(f)
	}
	return nil
}

// unread is what of a piece no feed reads. Its slots need not be those of one feed, since a
// state has one offset for what several feeds have brought equally far.
func unread(p piece, feeds []*feed) []piece {
	left := []piece{p}
	for _, f := range feeds {
		if f.ended || f.spec.rebuild != p.spec.rebuild || f.spec.staged != p.spec.staged || !slices.Contains(f.tps, p.tp) {
			continue
		}
		var rest []piece
		for _, p := range left {
			if f.spec.slots.Lo > p.spec.slots.Lo {
				below := p
				below.spec.slots.Hi = min(p.spec.slots.Hi, f.spec.slots.Lo-1)
				rest = append(rest, below)
			}
			if f.spec.slots.Hi < p.spec.slots.Hi {
				above := p
				above.spec.slots.Lo = max(p.spec.slots.Lo, f.spec.slots.Hi+1)
				rest = append(rest, above)
			}
		}
		left = rest
	}
	return left
}
