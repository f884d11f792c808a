package dealer

import (
	"context"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/share"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"go.uber.org/zap"
)

// change is what happened to a group.
type change = group.ShareChange

// ShareChanged is part of coordinator.ShareWatcher. The change is followed soon after.
func (d *Dealer) ShareChanged(c group.ShareChange) {
	d.mu.Lock()
	d.mu.changes = append(d.mu.changes, c)
	d.mu.Unlock()
	select {
	case d.roused <- struct{}{}:
	default:
	}
}

// follow follows the groups until the Dealer is closed.
func (d *Dealer) follow() {
	for {
		select {
		case <-d.roused:
		case <-d.ctx.Done():
			return
		}
		d.mu.Lock()
		changes := d.mu.changes
		d.mu.changes = nil
		d.mu.Unlock()
		for i := range changes {
			d.followChange(d.ctx, &changes[i])
		}
	}
}

func (d *Dealer) followChange(ctx context.Context, c *change) {
	if c.View != nil && len(c.View.Members()) > 0 {
		d.found(ctx, c.View)
	}
	for _, p := range d.of(c.Group) {
		if p = d.existing(p.key); p == nil {
			continue // it takes the view of when it is open
		}
		idle := false
		_, _ = p.do(func(*individualcommit.Ledger) { // if the ledger is gone there is nothing to tell
			p.adopt(c.View, c.Gone)
			idle = p.idle()
		})
		if p.rouse(); idle {
			p.cancel()
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

// found founds the ledgers of partitions that got their first member, so that what is
// written from now on is for the group.
func (d *Dealer) found(ctx context.Context, v *share.View) {
	for _, t := range v.Topics() {
		for i := range t.Partitions {
			k := key{v.Group(), extension.TopicPartition{Topic: t.Topic, Partition: i}}
			if err := d.foundOne(ctx, k); err != nil && ctx.Err() == nil {
				d.opts.Logger.Warn("a ledger cannot be founded yet, its share partition begins where the first fetch finds it",
					zap.Stringer("partition", k), zap.Error(err))
			}
		}
	}
}

func (d *Dealer) foundOne(ctx context.Context, k key) error {
	founded, err := d.opts.Ledgers.Founded(ctx, k.group, k.TopicPartition)
	if founded || err != nil {
		return err
	}
	log, err := d.opts.Log(k.TopicPartition)
	if err != nil {
		return err
	}
	origin, err := d.opts.Settings(k.group).Origin(log)
	if err != nil {
		return err
	}
	_, err = d.opts.Ledgers.OpenShare(ctx, k.group, k.TopicPartition, origin, nil)
	return err
}
