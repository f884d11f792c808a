package dealer

import (
	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/share"
	"github.com/lacunamq/lacuna/cooperative"
)

// change is what happened to a group.
type change = group.ShareChange

// ShareChanged is part of coordinator.ShareWatcher. Each partition of the group hears of
// the change before anything else is done with it.
func (d *Dealer) ShareChanged(c group.ShareChange) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.mu.groups[c.Group] {
		p.news.add(c)
		p.rouse()
	}
	if c.View == nil || len(c.View.Members()) == 0 {
		delete(d.mu.joined, c.Group)
		return
	}
	d.mu.joined[c.Group] = c.View
	signal(d.roused)
}

// follow founds the ledgers of what groups work on, until the Dealer is closed.
func (d *Dealer) follow() {
	for {
		select {
		case <-d.roused:
		case <-d.ctx.Done():
			return
		}
		d.mu.Lock()
		joined := d.mu.joined
		d.mu.joined = make(map[string]*share.View)
		d.mu.Unlock()
		for _, v := range joined {
			for _, t := range v.Topics() {
				d.found(d.ctx, v.Group(), t.Topic)
			}
		}
	}
}

// idle tells whether nobody works on the partition, so that it need not be kept.
func (p *partition) idle() bool {
	s := &p.locked
	if s.view != nil && len(s.view.Members()) > 0 || len(s.waiting) > 0 {
		return false
	}
	busy := 0
	for _, state := range []cooperative.State{cooperative.Acquired, cooperative.Delayed, cooperative.Pending, cooperative.Archiving} {
		busy += s.dealing.Count(state)
	}
	return busy == 0
}
