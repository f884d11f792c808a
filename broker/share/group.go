package share

import (
	"slices"
	"strings"
)

// Group is one share group. It is not safe for concurrent use.
type Group struct {
	id string
	groupValue
	assignment assignmentValue
	members    []*member // by id
	// names are the topics that the members subscribe to, each once; nil: to be found anew.
	names []string
	view  *View // of the assignment; nil before the group is loaded
}

// member is a member of a share group.
type member struct {
	id string
	memberValue
	// named tells that the member's own record is there. Only with it is it a member; what
	// lacks it is left of one by a crash, or not read to the end yet.
	named   bool
	target  targetValue
	current currentValue
}

// New is a group of which nothing is logged yet.
func New(id string) *Group {
	g := &Group{id: id}
	g.epoch, g.assignment.epoch = firstEpoch, firstEpoch
	return g
}

// firstEpoch is that of a group without members; 0 is for members that join.
const firstEpoch = 1

// Apply carries out a record of this group, live or in recovery, but for the end of the
// group itself.
func (g *Group) Apply(c *Change) {
	g.names = nil
	switch v := c.what.(type) {
	case *groupValue:
		if v != nil {
			g.groupValue = *v
		}
	case *assignmentValue:
		g.assignment = assignmentValue{epoch: firstEpoch}
		if v != nil {
			g.assignment = *v
		}
	case *memberChange:
		if v.value == nil {
			g.drop(v.id)
			return
		}
		m := g.at(v.id)
		m.memberValue, m.named = *v.value, true
	case *targetChange:
		if m := g.atUnless(v.id, v.value == nil); m != nil {
			m.target = orZero(v.value)
			g.dropBlank(m)
		}
	case *currentChange:
		if m := g.atUnless(v.id, v.value == nil); m != nil {
			m.current = orZero(v.value)
			g.dropBlank(m)
		}
	}
}

func orZero[T any](v *T) (value T) {
	if v != nil {
		value = *v
	}
	return value
}

// search finds where a member is, or would be.
func (g *Group) search(id string) (at int, found bool) {
	return slices.BinarySearchFunc(g.members, id, func(m *member, id string) int { return strings.Compare(m.id, id) })
}

// find is the member of that id, nil if there is none.
func (g *Group) find(id string) *member {
	if at, found := g.search(id); found && g.members[at].named {
		return g.members[at]
	}
	return nil
}

// at is where records of a member are applied to.
func (g *Group) at(id string) *member {
	at, found := g.search(id)
	if !found {
		g.members = slices.Insert(g.members, at, &member{id: id})
	}
	return g.members[at]
}

// atUnless is at, but nil for somebody unknown if there is nothing to note of him.
func (g *Group) atUnless(id string, nothing bool) *member {
	if _, found := g.search(id); !found && nothing {
		return nil
	}
	return g.at(id)
}

func (g *Group) drop(id string) {
	if at, found := g.search(id); found {
		g.members = slices.Delete(g.members, at, at+1)
	}
}

// dropBlank forgets somebody of whom nothing is known any more.
func (g *Group) dropBlank(m *member) {
	blank := len(m.target.partitions)+len(m.target.buckets) == 0 && m.target.idle == 0 &&
		m.current.epoch == 0 && len(m.current.partitions) == 0
	if !m.named && blank {
		g.drop(m.id)
	}
}

// Empty tells that the group has no members.
func (g *Group) Empty() bool { return len(g.members) == 0 }

// Size is the number of members.
func (g *Group) Size() int { return len(g.members) }

// Members lists the ids of the members, in order.
func (g *Group) Members() []string {
	ids := make([]string, len(g.members))
	for i, m := range g.members {
		ids[i] = m.id
	}
	return ids
}

// Member tells whether somebody is a member.
func (g *Group) Member(id string) bool { return g.find(id) != nil }

// View is what the members may fetch. It never changes; another assignment is another View.
func (g *Group) View() *View { return g.view }
