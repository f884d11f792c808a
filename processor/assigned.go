package processor

import (
	"context"
	"sync"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/processor/assignor"
)

// assigned keeps what the leader of the group has assigned, before the generation begins.
func (a *App) assigned(plan assignor.Assignment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.next = plan
}

// begin does what was assigned, when the generation begins. What was lost is given up before
// it returns; it asks to join again if there was any, since that goes to nobody before.
func (a *App) begin(ctx context.Context, m *client.Member, generation int32) (rejoin bool) {
	a.mu.Lock()
	a.mu.plan, a.mu.generation = a.mu.next, generation
	if a.mu.closed || a.mu.err != nil {
		a.mu.Unlock()
		return false
	}
	if err := a.anew(&a.mu.plan); err != nil {
		a.mu.Unlock()
		a.fail(err)
		return false
	}
	group := a.mu.plan.Group
	wanted := make(map[int32]areas)
	for _, t := range a.mu.plan.Tasks {
		wanted[t.Bucket] = areas{t.Active, t.Rebuild}
	}
	var over []*task
	kept := make(map[*task]areas)
	for bucket, t := range a.mu.tasks {
		if want, ok := wanted[bucket]; ok {
			kept[t] = want
			delete(wanted, bucket)
		} else {
			over = append(over, t)
		}
		rejoin = rejoin || !t.has().active.Minus(kept[t].active).Empty()
	}
	a.mu.Unlock()
	abort := context.AfterFunc(ctx, func() {
		for _, t := range over {
			t.abort()
		}
	})
	defer abort()
	a.endTasks(over)
	var told sync.WaitGroup // all at once: while one gives up the others would go on with what they lost
	for t, want := range kept {
		told.Go(func() { a.change(t, change{want: want, group: group}) })
	}
	told.Wait()
	for bucket, want := range wanted {
		a.startTask(m, bucket, want, group)
	}
	a.keepPlan()
	if a.cfg.hooks.Assigned != nil {
		a.cfg.hooks.Assigned(a.Status())
	}
	return rejoin
}

func (a *App) startTask(m *client.Member, bucket int32, want areas, group assignor.Group) {
	t := newTask(a, m, bucket, want, group)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.closed || a.mu.err != nil {
		return
	}
	a.mu.tasks[bucket] = t
	go t.run()
}

// lost ends everything at once: others have what this member had.
func (a *App) lost() {
	tasks := a.allTasks()
	for _, t := range tasks {
		t.abort()
	}
	for _, t := range tasks {
		<-t.done
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range tasks {
		delete(a.mu.tasks, t.bucket)
	}
}

// has is what a task has.
func (t *task) has() areas {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.has
}

// readiness is what a task has built up far enough to be handed over, and how many offsets
// it is behind the ledger.
func (t *task) readiness(threshold int64) (ready assignor.Area, lag int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rebuild := t.mu.has.rebuild
	if rebuild.Empty() || t.app.topology.Ack == AckOnPunctuate {
		return rebuild, 0
	}
	if len(t.mu.building) == 0 {
		return nil, 0 // not opened yet
	}
	for _, f := range t.mu.building {
		behind, known := f.behind()
		if !known {
			return nil, lag
		}
		lag += behind
	}
	if t.mu.staged || lag > threshold { // staged: there is more than is being read
		return nil, lag
	}
	return rebuild, lag
}

// watch joins again when a bucket has become ready to be handed over, and leaves the group
// when the App has failed, so that others get what it had.
func (a *App) watch() {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-a.failed:
			for _, t := range a.allTasks() {
				<-t.done
			}
			a.report(a.member.Close(a.leaving))
			return
		case <-ticker.C:
		}
		news := a.isToLookAgain()
		for _, t := range a.allTasks() {
			ready, _ := t.readiness(a.cfg.threshold)
			a.mu.Lock()
			news = news || !ready.Minus(a.mu.ready[t.bucket]).Empty()
			a.mu.Unlock()
		}
		if news {
			a.member.Rejoin()
		}
	}
}

// claim is what the member says when it joins.
func (a *App) claim() assignor.Claim {
	c := a.knownPlan()
	c.Name, c.Initial = a.cfg.name, a.cfg.initial
	if a.cache != nil {
		c.OnDisk = a.stored(&c)
	}
	ready := make(map[int32]assignor.Area)
	for _, t := range a.allTasks() {
		has := t.has()
		r, lag := t.readiness(a.cfg.threshold)
		ready[t.bucket] = r
		said := assignor.TaskState{Bucket: t.bucket, Active: has.active, Rebuild: has.rebuild, Ready: r, Lag: lag}
		if c.Group != nil {
			for _, at := range a.reachedIn(c.Group, t.offsets(), has.rebuild) {
				if at.Next >= 0 {
					said.Reached = append(said.Reached, assignor.Reached{Topic: at.Topic, Next: at.Next,
						Slots: assignor.Slots{Partition: at.Partition, Lo: at.Slots.Lo, Hi: at.Slots.Hi}})
				}
			}
		}
		c.Tasks = append(c.Tasks, said)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.ready = ready
	return c
}
