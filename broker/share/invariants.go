package share

import (
	"fmt"
	"slices"

	"github.com/lacunamq/lacuna/keyfilter"
)

// CheckInvariants tells what is wrong with a group that is loaded, for tests: nil is well.
func (g *Group) CheckInvariants() error {
	if g.view == nil {
		return fmt.Errorf("there is no view")
	}
	if len(g.members) > 0 && (g.assignment.epoch != g.epoch || g.view.epoch != g.epoch) {
		return fmt.Errorf("group epoch %d, assignment epoch %d, view of %d", g.epoch, g.assignment.epoch, g.view.epoch)
	}
	if !slices.Equal(g.Members(), g.view.ids) {
		return fmt.Errorf("members %v, in the view %v", g.Members(), g.view.ids)
	}
	for i, m := range g.members {
		switch {
		case i > 0 && g.members[i-1].id >= m.id:
			return fmt.Errorf("member %q is out of order", m.id)
		case !m.named:
			return fmt.Errorf("there are only remains of member %q", m.id)
		case m.current.epoch > g.epoch || m.current.previousEpoch > m.current.epoch:
			return fmt.Errorf("member %q is at epoch %d after %d, the group at %d", m.id, m.current.epoch, m.current.previousEpoch, g.epoch)
		case m.current.epoch == g.epoch && !equalPartitions(m.current.partitions, m.target.partitions):
			return fmt.Errorf("member %q is up to date, but not with its target", m.id)
		}
		if err := g.checkTarget(m); err != nil {
			return fmt.Errorf("member %q: %w", m.id, err)
		}
	}
	return g.checkCover()
}

// checkTarget holds that what a member is told to fetch is what it may fetch.
func (g *Group) checkTarget(m *member) error {
	for _, t := range m.target.partitions {
		for _, p := range t.Partitions {
			if !g.view.MayFetch(m.id, t.Topic, p) {
				return fmt.Errorf("partition %d of %x is its target, and it may not fetch it", p, t.Topic)
			}
		}
	}
	if g.mode != KeyRange && len(m.target.buckets)+int(m.target.idle) > 0 {
		return fmt.Errorf("buckets %v, idle %d in mode %s", m.target.buckets, m.target.idle, g.mode)
	}
	return nil
}

// checkCover holds that every record of every topic is dealt to somebody who may fetch it
// and was told so.
func (g *Group) checkCover() error {
	if g.mode == KeyRange && len(g.members) > 0 {
		if _, err := g.logged(g.initial); err != nil {
			return err
		}
	}
	for _, t := range g.view.Topics() {
		for p := range t.Partitions {
			if g.mode != KeyRange {
				continue
			}
			next := int32(0)
			for _, s := range g.view.Slices(t.Topic, p) {
				if s.Start != next || s.End <= s.Start {
					return fmt.Errorf("topic %s, partition %d: slots [%d,%d) after %d", t.Name, p, s.Start, s.End, next)
				}
				next = s.End
				if m := g.find(s.Member); m == nil || !m.has(t.Topic, p) {
					return fmt.Errorf("topic %s, partition %d: slots [%d,%d) are dealt to %q, who is not to fetch them", t.Name, p, s.Start, s.End, s.Member)
				}
			}
			if next != keyfilter.Slots {
				return fmt.Errorf("topic %s, partition %d: slots from %d on are dealt to nobody", t.Name, p, next)
			}
		}
	}
	return nil
}

// has tells whether a partition is among the member's target.
func (m *member) has(topic [16]byte, partition int32) bool {
	for _, t := range m.target.partitions {
		if t.Topic == topic && slices.Contains(t.Partitions, partition) {
			return true
		}
	}
	return false
}
