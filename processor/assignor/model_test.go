package assignor

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// simMember is a member as the runtime is one: it says what it has, gives up what it lost, and
// takes what it was newly given.
type simMember struct {
	id    string
	claim Claim // but for OnDisk, as it stands now
	disk  map[int32]bool
}

func (m *simMember) says() Claim {
	c := m.claim
	c.Tasks = slices.Clone(c.Tasks)
	c.OnDisk = nil
	for _, bucket := range slices.Sorted(maps.Keys(m.disk)) {
		c.OnDisk = append(c.OnDisk, Stored{Bucket: bucket})
	}
	return c
}

// takes begins a generation with what was assigned. It tells whether it lost something.
func (m *simMember) takes(generation int32, a Assignment) (lost bool) {
	before, measured := m.claim.Tasks, m.claim.Group
	m.claim.Group, m.claim.Generation, m.claim.Holders, m.claim.Idle = &a.Group, generation, a.Holders, a.Idle
	m.claim.Tasks = nil
	for _, t := range a.Tasks {
		was := taskOf(before, t.Bucket)
		if !a.Group.MeasuresAs(measured) {
			was.Ready = nil
		}
		m.claim.Tasks = append(m.claim.Tasks, TaskState{
			Bucket: t.Bucket, Active: t.Active, Rebuild: t.Rebuild, Ready: was.Ready.Intersect(t.Rebuild),
		})
		m.disk[t.Bucket] = true
	}
	for _, t := range before {
		lost = lost || !t.Active.Minus(taskOf(m.claim.Tasks, t.Bucket).Active).Empty()
	}
	return lost
}

func taskOf(tasks []TaskState, bucket int32) (found TaskState) {
	for _, t := range tasks {
		if t.Bucket == bucket {
			return t
		}
	}
	return TaskState{Bucket: bucket}
}

// readies lets up to n rebuilds catch up.
func (m *simMember) readies(n int) (any bool) {
	for i := range m.claim.Tasks {
		t := &m.claim.Tasks[i]
		if n > 0 && !t.Ready.Equal(t.Rebuild) {
			t.Ready, any = t.Rebuild, true
			n--
		}
	}
	return any
}

// sim is a group.
type sim struct {
	t          *rapid.T
	initial    int32
	topics     map[string]Input
	members    map[string]*simMember
	generation int32
	born       int
}

func newSim(t *rapid.T) *sim {
	return &sim{
		t: t, initial: rapid.Int32Range(0, 6).Draw(t, "initial"), members: make(map[string]*simMember),
		topics: map[string]Input{"in": {ID: [16]byte{1}, Partitions: rapid.Int32Range(1, 6).Draw(t, "partitions")}},
	}
}

// grows adds partitions to a topic, and records to those that it had.
func (s *sim) grows(topic string, added int32) {
	in := s.topics[topic]
	in.ID = [16]byte{1}
	in.Ends = append(slices.Clone(in.Ends), make([]int64, int(in.Partitions)-len(in.Ends))...)
	for i := range in.Ends {
		in.Ends[i] += rapid.Int64Range(0, 2).Draw(s.t, "written")
	}
	in.Partitions += added
	s.topics[topic] = in
}

// finds is what the leader finds of the topics. If it is not lucky it cannot look them up, and
// what its client has told it is all that it knows.
func (s *sim) finds(lucky bool) map[string]Input {
	found := maps.Clone(s.topics)
	for topic, in := range found {
		if !lucky {
			found[topic] = Input{Partitions: in.Partitions}
		}
	}
	return found
}

// join adds a member, which has nothing if before is nil, and else comes back as another.
func (s *sim) join(before *simMember) *simMember {
	s.born++
	// The ids do not come in the order of their births.
	m := &simMember{id: fmt.Sprintf("m%02d-%d", s.born*37%100, s.born), disk: make(map[int32]bool)}
	m.claim = Claim{Initial: s.initial, Generation: -1}
	if before != nil {
		m.claim, m.disk = before.claim, before.disk
		m.claim.Tasks = nil
	}
	s.members[m.id] = m
	return m
}

func (s *sim) ids() []string { return slices.Sorted(maps.Keys(s.members)) }

// rebalance is a generation, of which the members of missed hear nothing. It tells whether
// anybody lost something, and so joins again.
func (s *sim) rebalance(missed map[string]bool) (again bool) {
	s.generation++
	var said []Member
	for _, id := range s.ids() {
		said = append(said, Member{ID: id, Claim: s.members[id].says()})
	}
	plan, err := Assign(said, s.finds(missed == nil || rapid.IntRange(0, 3).Draw(s.t, "luck") > 0))
	require.NoError(s.t, err)
	require.Len(s.t, plan, len(said))
	s.check(said, plan)
	for _, id := range rapid.Permutation(s.ids()).Draw(s.t, "order") {
		if !missed[id] {
			again = s.members[id].takes(s.generation, plan[id]) || again
			s.checkDisjoint()
		}
	}
	return again || len(missed) > 0
}

// checkDisjoint: no slot of a partition is processed by two tasks, in whatever units each counts.
func (s *sim) checkDisjoint() {
	taken := make(map[string]Area) // by topic, of the points of its partitions in a row
	for id, m := range s.members {
		for _, t := range m.claim.Tasks {
			require.Empty(s.t, t.Rebuild.Intersect(t.Active), "%s, bucket %d", id, t.Bucket)
			for topic := range s.topics {
				var spans []Span
				for _, slots := range m.claim.Group.Slots(topic, t.Active) {
					base := int64(slots.Partition) << 16
					spans = append(spans, Span{base + int64(slots.Lo), base + int64(slots.Hi) + 1})
				}
				has := NewArea(spans...)
				require.Empty(s.t, taken[topic].Intersect(has), "%s, bucket %d of %s", id, t.Bucket, topic)
				taken[topic] = taken[topic].Union(has)
			}
		}
	}
}

// check holds a plan against what the members said.
func (s *sim) check(said []Member, plan map[string]Assignment) {
	any := plan[said[0].ID]
	buckets := bucketsOf(s.t, any)
	var processed, ready Area
	foreign := false // somebody counts in other units and is to give up all: others may have to as well
	for _, m := range said {
		if !any.Group.MeasuresAs(m.Claim.Group) {
			if m.Claim.processes() {
				processed, foreign = any.Group.all(), true // what it is cannot be told
			}
			continue
		}
		for _, t := range m.Claim.Tasks {
			processed = processed.Union(t.Active)
			if int(t.Bucket) < len(any.Holders) && any.Holders[t.Bucket] == m.ID {
				ready = ready.Union(t.Ready)
			}
		}
	}
	for _, m := range said {
		a := plan[m.ID]
		require.Equal(s.t, any.Holders, a.Holders)
		require.Equal(s.t, any.Idle, a.Idle)
		require.Equal(s.t, any.Group, a.Group)
		if !a.Group.MeasuresAs(m.Claim.Group) {
			m.Claim.Tasks = nil
		}
		for _, t := range a.Tasks {
			was := taskOf(m.Claim.Tasks, t.Bucket)
			gained := t.Active.Minus(was.Active)
			require.Empty(s.t, gained.Intersect(processed), "%s is given of bucket %d what is still processed", m.ID, t.Bucket)
			require.Empty(s.t, t.Rebuild.Minus(processed), "%s builds up of bucket %d what nobody processes", m.ID, t.Bucket)
			if !t.Rebuild.Empty() {
				require.Equal(s.t, m.ID, a.Holders[t.Bucket], "builds up bucket %d", t.Bucket)
			}
		}
		for _, was := range m.Claim.Tasks {
			lost := was.Active.Minus(assigned(a, was.Bucket).Active)
			require.True(s.t, foreign || lost.Minus(ready).Empty(), "%s loses of bucket %d what nobody is ready for", m.ID, was.Bucket)
		}
	}
	for bucket, holder := range any.Holders {
		has := assigned(plan[holder], int32(bucket))
		area := any.Group.bucket(buckets, int32(bucket))
		require.Empty(s.t, area.Minus(processed).Minus(has.Active), "of bucket %d %s is not given what nobody processes", bucket, holder)
		require.Empty(s.t, area.Minus(has.Active).Minus(has.Rebuild), "of bucket %d %s misses some", bucket, holder)
	}
}

func assigned(a Assignment, bucket int32) Task {
	for _, t := range a.Tasks {
		if t.Bucket == bucket {
			return t
		}
	}
	return Task{Bucket: bucket}
}

// settle lets everything that is being built up get ready, until nothing changes: after a
// generation in which all hear of the plan, one takes and one gives.
func (s *sim) settle() Assignment {
	newest := s.newest()
	for round := 0; s.rebalance(nil) || s.allReady(); round++ {
		require.Less(s.t, round, 4, "the group does not settle")
	}
	var a Assignment
	for _, m := range s.members {
		a = Assignment{Group: *m.claim.Group, Holders: m.claim.Holders, Idle: m.claim.Idle}
	}
	buckets := bucketsOf(s.t, a)
	require.EqualValues(s.t, max(int(a.Group.Initial), len(s.members)), len(a.Holders))
	for topic, in := range s.topics {
		known := a.Group.Topics[topic]
		require.Equal(s.t, in.Partitions, known.Partitions)
		require.Equal(s.t, in.ID, known.ID)
		require.Zero(s.t, in.Partitions%known.Fold)
		require.Zero(s.t, newest[topic].Fold%known.Fold, "a key that was at one number modulo %d is at another of %d", newest[topic].Fold, known.Fold)
	}
	for id, m := range s.members {
		require.Equal(s.t, a.Holders, m.claim.Holders)
		for _, t := range m.claim.Tasks {
			require.Equal(s.t, id, a.Holders[t.Bucket])
		}
	}
	for bucket, holder := range a.Holders {
		has := taskOf(s.members[holder].claim.Tasks, int32(bucket))
		require.Equal(s.t, a.Group.bucket(buckets, int32(bucket)), has.Active)
		require.Empty(s.t, has.Rebuild)
	}
	return a
}

// newest is what the members of the newest generation know, of those that process anything if
// there are any.
func (s *sim) newest() map[string]Topic {
	newest := Claim{Group: new(Group), Generation: -1}
	for _, m := range s.members {
		c := m.claim
		if c.Group != nil && (c.processes() && !newest.processes() || c.processes() == newest.processes() && c.Generation > newest.Generation) {
			newest = c
		}
	}
	return newest.Group.Topics
}

func (s *sim) allReady() (any bool) {
	for _, m := range s.members {
		any = m.readies(1<<30) || any
	}
	return any
}

// TestGroupModel lets members come, go, crash, come back, miss generations and get ready while
// topics change.
func TestGroupModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(t)
		var crashed []*simMember
		founded := int32(0)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			someone := func() *simMember { return s.members[rapid.SampledFrom(s.ids()).Draw(t, "member")] }
			switch do := rapid.IntRange(0, 9).Draw(t, "do"); {
			case do <= 2 || len(s.members) == 0:
				s.join(nil)
			case do == 3:
				m := someone()
				delete(s.members, m.id)
				crashed = append(crashed, m)
			case do == 4 && len(crashed) > 0:
				s.join(crashed[0])
				crashed = crashed[1:]
			case do == 5:
				someone().readies(rapid.IntRange(1, 3).Draw(t, "tasks"))
			case do == 6:
				s.grows(rapid.SampledFrom([]string{"in", "other"}).Draw(t, "topic"), rapid.Int32Range(1, 3).Draw(t, "added"))
			case do == 7:
				a := s.settle()
				require.True(t, founded == 0 || a.Group.Initial == founded, "the initial buckets are remembered")
				founded = a.Group.Initial
			default:
				missed := make(map[string]bool)
				for _, id := range s.ids() {
					if rapid.IntRange(0, 3).Draw(t, "misses") == 0 {
						missed[id] = true
					}
				}
				s.rebalance(missed)
			}
		}
		if len(s.members) > 0 {
			s.settle()
		}
	})
}
