package processor

import (
	"cmp"
	"slices"

	"github.com/lacunamq/lacuna/client"
)

// TaskStatus is what a member does for one bucket.
type TaskStatus struct {
	Bucket int32
	// Active is what it processes, Rebuild what it builds up while another member does.
	Active, Rebuild []client.AssignedSlots
	// Lag is how many offsets Rebuild is behind the ledger, of all partitions together.
	Lag int64
	// Reached is how far its store is in both, as it was lately; nothing with AckOnPunctuate.
	Reached []Reached
	// ReadBytes are the bytes of the records that were fetched for what it reads now.
	ReadBytes int64
}

// Status is what this member does, by bucket.
func (a *App) Status() (all []TaskStatus) {
	group := a.measure()
	for _, t := range a.allTasks() {
		has := t.has()
		_, lag := t.readiness(a.cfg.threshold)
		s := TaskStatus{Bucket: t.bucket, Active: a.slotsOf(&group, has.active), Rebuild: a.slotsOf(&group, has.rebuild), Lag: lag, ReadBytes: t.readBytes()}
		if a.topology.Ack == AckAtProcess {
			s.Reached = a.reachedIn(&group, t.offsets(), has.active.Union(has.rebuild))
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(x, y TaskStatus) int { return cmp.Compare(x.Bucket, y.Bucket) })
	return all
}

// readBytes are those of the records that the feeds of a task have fetched.
func (t *task) readBytes() (n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.mu.feeds {
		_, bytes := f.reader.Received()
		n += bytes
	}
	if t.mu.follower != nil {
		_, bytes := t.mu.follower.reader.Received()
		n += bytes
	}
	return n
}
