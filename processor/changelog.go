package processor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/processor/assignor"
	"github.com/lacunamq/lacuna/statestore"
)

// taskLog is the changelog as a task has it. The state owns its offsets in it, of ranges of
// units, as it does those of the inputs, and is read on from there.
//
// What the task is given it first reads to where the changelog ended then, when whoever had it
// before can write nothing more. Only then the feeds of it start, which bring what is open by
// the ledger. What it builds up it follows without an end.
//
// All of it belongs to the goroutine of the task.
type taskLog struct {
	t       *task
	topic   logTopic
	changes changes

	restored assignor.Area // what is processed
	given    []given
	follower *follower // nil: there is nothing to follow
	ranges   []logRange
	read     int // records of the changelog, since that was told last

	written  []kgo.Record // by the unit of work
	progress []progressChange
	offsets  []statestore.Offset
	scratch  []byte
}

// given is an area that is the task's, and not restored yet.
type given struct {
	area  assignor.Area
	ends  map[int32]int64 // by partition of the changelog, where it ended
	feeds []*feed         // not started yet
}

// logRange is a range of units that is followed.
type logRange struct {
	units   assignor.Span // of one partition
	next    int64         // the state has everything below, or -1: nothing
	sources []logSource
}

// logSource is what of an input has to do with a range of units.
type logSource struct {
	topic string
	id    [16]byte
	slots []assignor.Slots
}

// openLog finds the changelog of the task, if there is one.
func (t *task) openLog() error {
	if t.app.cfg.changelog == "" {
		return nil
	}
	topic, err := t.app.findLog(t.ctx, t.group.Initial)
	if err != nil {
		return fmt.Errorf("bucket %d: %w", t.bucket, err)
	}
	t.log = &taskLog{t: t, topic: topic}
	return nil
}

// attach has the changes of the state noted. A state that was not made of this changelog is
// emptied.
func (l *taskLog) attach() error {
	t := l.t
	t.state.changes = &l.changes
	if area := t.want.active.Union(t.want.rebuild); !area.Empty() {
		t.state.home = area[0].From // of what is written before anything is restored
	}
	offsets, err := t.storedOffsets()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(offsets, func(o statestore.Offset) bool { return !l.topic.area(&o).Empty() }) {
		return nil
	}
	if err := t.app.checkLogBegun(t.ctx, &l.topic, offsets); err != nil || len(offsets) == 0 {
		return err
	}
	if err := t.state.wipe(&t.group); err != nil {
		return &fatalError{fmt.Errorf("bucket %d: empty its state: %w", t.bucket, err)}
	}
	return nil
}

// close ends what reads the changelog.
func (l *taskLog) close() {
	l.stopFollower()
	l.given = nil
}

func (l *taskLog) stopFollower() {
	if l.follower == nil {
		return
	}
	if err := l.follower.stop(l.t.ctx); err != nil && l.t.ctx.Err() == nil {
		l.t.app.report(fmt.Errorf("bucket %d: %w", l.t.bucket, err))
	}
	l.follower = nil
}

// behind tells that some of what the task is to process is not restored.
func (l *taskLog) behind() bool {
	active := l.t.want.active
	return active.Empty() || !active.Minus(l.restored).Empty()
}

// giveUp ends what is not wanted any more.
func (l *taskLog) giveUp() {
	t := l.t
	active := t.want.active
	lost := func(a assignor.Area) bool { return !a.Minus(active).Empty() }
	l.restored = l.restored.Intersect(active)
	l.given = slices.DeleteFunc(l.given, func(g given) bool { return lost(g.area) })
	t.keepFeeds(func(f *feed) bool { return !lost(f.area) })
}

// takeUp begins what is wanted and not there yet.
func (l *taskLog) takeUp() error {
	t := l.t
	missing := t.want.active
	for _, f := range t.feeds {
		missing = missing.Minus(f.area)
	}
	for _, g := range l.given {
		missing = missing.Minus(g.area)
	}
	feeds, err := l.openFeeds(missing.Intersect(l.restored)) // the rest of what was given up
	if err != nil {
		return err
	}
	for _, f := range feeds {
		f.start()
	}
	if err := l.receive(missing.Minus(l.restored)); err != nil {
		return err
	}
	return l.settle()
}

// receive begins to restore what the task is given. Its feeds are opened first: they wait for
// the transactions of whoever had it before, whose records are below the end then.
func (l *taskLog) receive(area assignor.Area) error {
	t := l.t
	feeds, err := l.openFeeds(area)
	if err != nil {
		return err
	}
	unknown := area.Union(t.want.rebuild)
	if l.follower != nil {
		unknown = area.Union(t.want.rebuild.Minus(l.follower.area))
	}
	if unknown.Empty() {
		return nil
	}
	bounds, err := t.app.boundLog(t.ctx, &l.topic)
	if err != nil {
		return err
	}
	if err := l.dropStale(unknown, &bounds); err != nil {
		return err
	}
	if !area.Empty() {
		l.given = append(l.given, given{area: area, ends: bounds.ends, feeds: feeds})
	}
	return nil
}

// openFeeds opens feeds of the inputs for an area, which are not started.
func (l *taskLog) openFeeds(area assignor.Area) (feeds []*feed, err error) {
	t := l.t
	var pieces []piece
	for _, s := range t.app.slotsOf(&t.group, area) {
		next, ok, err := t.store.CommittedOffset(t.app.source(s.TopicPartition, s.Slots))
		if err != nil {
			return nil, fmt.Errorf("bucket %d: read the offsets of its state: %w", t.bucket, err)
		}
		if !ok {
			next = -1
		}
		pieces = append(pieces, piece{tp: s.TopicPartition, spec: feedSpec{slots: s.Slots}, next: next})
	}
	pieces, _ = inTurn(&t.group, pieces)
	err = t.openFeeds(pieces, func(f *feed) {
		f.area = area
		f.hold()
		feeds = append(feeds, f)
	})
	return feeds, err
}

// sourcesOf is what of the inputs has to do with an area.
func (l *taskLog) sourcesOf(area assignor.Area) (all []logSource) {
	for name, id := range l.t.app.topics {
		if slots := l.t.group.Slots(name, area); len(slots) > 0 {
			all = append(all, logSource{topic: name, id: id, slots: slots})
		}
	}
	return all
}

// settle starts what has been restored, and follows the rest.
func (l *taskLog) settle() error {
	left := l.given[:0]
	for _, g := range l.given {
		restored, err := l.isRestored(&g)
		if err != nil {
			return err
		}
		if !restored {
			left = append(left, g)
			continue
		}
		l.restored = l.restored.Union(g.area)
		for _, f := range g.feeds {
			f.start()
		}
		if l.t.app.cfg.hooks.Restored != nil {
			l.t.app.cfg.hooks.Restored(l.t.bucket, l.read)
		}
		l.read = 0
	}
	clear(l.given[len(left):])
	l.given = left
	l.changes.own = l.restored
	l.t.state.visible = l.restored
	if active := l.t.want.active; !active.Empty() {
		l.t.state.home = active[0].From
	}
	err := l.follow()
	l.t.note(l.t.want)
	return err
}

// isRestored tells whether the state has come to where the changelog ended.
func (l *taskLog) isRestored(g *given) (bool, error) {
	l.offsets = l.topic.appendOffsets(l.offsets[:0], g.area, func(p int32) (int64, bool) { return g.ends[p], true })
	for _, end := range l.offsets {
		next, ok, err := l.t.store.CommittedOffset(end.Source)
		if err != nil {
			return false, fmt.Errorf("bucket %d: read the offsets of its state: %w", l.t.bucket, err)
		}
		if end.Next > 0 && (!ok || next < end.Next) {
			return false, nil
		}
	}
	return true, nil
}

// follow reads the changelog for what is not restored.
func (l *taskLog) follow() error {
	area := l.t.want.rebuild
	for _, g := range l.given {
		area = area.Union(g.area)
	}
	offsets, err := l.t.storedOffsets()
	if err != nil {
		return err
	}
	l.ranges = l.rangesOf(area, offsets)
	if l.follower != nil && !area.Empty() && area.Minus(l.follower.area).Empty() {
		l.follower.area = area // for more it would have to begin anew
		return nil
	}
	l.stopFollower()
	if area.Empty() {
		return nil
	}
	next := make(map[int32]int64)
	for _, r := range l.ranges {
		p := int32(r.units.From / assignor.UnitsPerBucket)
		if at, ok := next[p]; !ok || max(r.next, 0) < at {
			next[p] = max(r.next, 0)
		}
	}
	if l.follower, err = l.t.app.openFollower(l.t.ctx, &l.topic, area, next); err != nil {
		return fmt.Errorf("bucket %d: %w", l.t.bucket, err)
	}
	return nil
}

// rangesOf divides an area by where the state is in the changelog.
func (l *taskLog) rangesOf(area assignor.Area, offsets []statestore.Offset) (all []logRange) {
	add := func(area assignor.Area, next func(int32) (int64, bool)) {
		for _, o := range l.topic.appendOffsets(nil, area, next) {
			units := l.topic.units(o.Partition, o.Slots.Lo, o.Slots.Hi)
			all = append(all, logRange{units: units, next: o.Next, sources: l.sourcesOf(assignor.NewArea(units))})
		}
	}
	for _, o := range offsets {
		known := l.topic.area(&o).Intersect(area)
		add(known, everywhere(o.Next))
		area = area.Minus(known)
	}
	add(area, everywhere(-1))
	slices.SortFunc(all, func(x, y logRange) int { return cmp.Compare(x.units.From, y.units.From) })
	return all
}

// emit sends what a unit of work has changed, and how far it has come in the inputs.
func (l *taskLog) emit(inputs []statestore.Offset, emit func(*kgo.Record) error) (err error) {
	l.progress = l.progress[:0]
	for i := range inputs {
		o := &inputs[i]
		next, ok, err := l.t.store.CommittedOffset(o.Source)
		if err != nil {
			return err
		}
		if !ok || next < o.Next {
			l.progress = append(l.progress, progressChange{topic: o.TopicID, partition: o.Partition, slots: o.Slots, next: o.Next, partitions: l.t.group.Topics[o.Topic].Fold})
		}
	}
	home := int32(l.t.state.home / assignor.UnitsPerBucket)
	if l.written, err = l.changes.make(l.t.state, &l.topic, l.progress, home); err != nil {
		return err
	}
	for i := range l.written {
		if err := emit(&l.written[i]); err != nil {
			return err
		}
	}
	return nil
}

// reached appends where the state is in the changelog when the unit of work is committed.
func (l *taskLog) reached(dst []statestore.Offset) []statestore.Offset {
	return l.topic.appendOffsets(dst, l.restored, func(p int32) (next int64, ok bool) {
		for i := range l.written {
			if r := &l.written[i]; r.Partition == p {
				next, ok = max(next, r.Offset+1), true
			}
		}
		return next, ok
	})
}

// take applies a part of the changelog.
func (l *taskLog) take(b *followed) error {
	if b.err != nil {
		return b.err
	}
	l.read += len(b.records)
	l.offsets = l.offsets[:0]
	for _, r := range b.records {
		err := l.apply(r)
		if errors.Is(err, statestore.ErrUncommittedFull) {
			if err = l.commit(map[int32]int64{r.Partition: r.Offset}); err == nil {
				err = l.apply(r)
			}
		}
		if err != nil {
			return fmt.Errorf("bucket %d: restore from %s[%d] offset %d: %w", l.t.bucket, r.Topic, r.Partition, r.Offset, err)
		}
	}
	if err := l.commit(b.next); err != nil {
		return err
	}
	return l.settle()
}

// commit commits what was applied, up to offsets of partitions.
func (l *taskLog) commit(next map[int32]int64) error {
	for i := range l.ranges {
		r := &l.ranges[i]
		if at, ok := next[int32(r.units.From/assignor.UnitsPerBucket)]; ok && at > r.next {
			r.next = at
			l.offsets = l.topic.appendOffsets(l.offsets, assignor.NewArea(r.units), everywhere(at))
		}
	}
	if err := l.t.store.Commit(l.offsets...); err != nil {
		return fmt.Errorf("bucket %d: commit its state: %w", l.t.bucket, err)
	}
	l.offsets = l.offsets[:0]
	return nil
}

// followed is what builds up state of the changelog, nil: nothing does.
func (t *task) followed() <-chan *followed {
	if t.log == nil || t.log.follower == nil {
		return nil
	}
	return t.log.follower.batches
}

// followLog applies what was read of the changelog, if anything was.
func (t *task) followLog() bool {
	select {
	case b := <-t.followed():
		t.takeFollowed(b)
		return true
	default:
		return false
	}
}

func (t *task) takeFollowed(b *followed) {
	if err := t.log.take(b); err != nil {
		t.restart(err)
	}
}
