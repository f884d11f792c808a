package share

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"
)

// TestModel drives a group by members that come, go, fall silent and repeat themselves,
// while topics, settings and the broker change under it, and compares it with what a naive
// model says each member is to fetch.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{world: newWorld(), members: make(map[string]*modelMember)}
		m.settings.MaxSize = rapid.SampledFrom([]int{3, 100}).Draw(rt, "max")
		m.settings.KeyRangeInitial = rapid.SampledFrom([]int32{1, 2, 3, 16}).Draw(rt, "initial")
		m.settings.Mode = rapid.SampledFrom([]Mode{RoundRobin, KeyOrdered, KeyRange, KeyRange}).Draw(rt, "mode")
		rt.Repeat(map[string]func(*rapid.T){
			"join":      m.join,
			"heartbeat": m.heartbeatOf,
			"leave":     m.leave,
			"silent":    m.silent,
			"topic":     m.topic,
			"mode":      m.mode,
			"crash":     m.crash,
			"":          m.check,
		})
	})
}

type model struct {
	*world
	members map[string]*modelMember
	checked int // how long the log was at the last check
}

// modelMember is what a client knows.
type modelMember struct {
	topics []string
	epoch  int32
	has    []TopicPartitions
	heard  bool // has is of the newest answer
}

var modelTopics = []string{"t", "u", "v"}

func drawMember(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(rt, "member")
}

func (m *model) send(rt *rapid.T, h *Heartbeat) (Answer, error) {
	h.Group, h.ClientID, h.ClientHost = "g", "c", "/h"
	require.NoError(rt, h.Check())
	m.now = m.now.Add(time.Second)
	return m.group.Heartbeat(m.env(rt), h)
}

func (m *model) join(rt *rapid.T) {
	id := drawMember(rt)
	topics := rapid.SliceOfNDistinct(rapid.SampledFrom(modelTopics), 1, 3, rapid.ID[string]).Draw(rt, "topics")
	before := m.group.View()
	a, err := m.send(rt, &Heartbeat{MemberID: id, Topics: topics})
	known := m.members[id]
	if known == nil && len(m.members) >= m.settings.MaxSize {
		require.ErrorIs(rt, err, kerr.GroupMaxSizeReached)
		return
	}
	require.NoError(rt, err)
	slices.Sort(topics)
	m.members[id] = &modelMember{topics: topics}
	m.note(rt, id, a)
	require.True(rt, a.Assigned, "a member's assignment comes with the answer that admits it")
	if known == nil {
		m.requireFewMoves(rt, before, 1, "a join")
	}
}

// requireFewMoves holds that between two assignments the slots of only so many slices have
// changed hands, if nothing else has changed and there is a bucket or less for each member.
func (m *model) requireFewMoves(rt *rapid.T, before *View, most int, what string) {
	after := m.group.View()
	if before.Mode() != KeyRange || after.Mode() != KeyRange || !m.alike() ||
		len(after.Members()) <= int(m.group.initial) || len(before.Members()) <= int(m.group.initial) {
		return
	}
	for _, t := range after.Topics() {
		if t.Partitions != 1 || m.lineOf(t.Topic) != 1 || before.topics[t.Topic] == nil {
			continue
		}
		moved := 0
		was, is := before.Slices(t.Topic, 0), after.Slices(t.Topic, 0)
		for _, s := range cut(was, is) {
			from, to := before.Holder(t.Topic, 0, uint16(s.Start)), after.Holder(t.Topic, 0, uint16(s.Start))
			if from != to {
				moved++
			}
		}
		require.LessOrEqual(rt, moved, most, "%s moved %d slices: %v, then %v", what, moved, was, is)
	}
}

func (m *model) lineOf(topic [16]byte) int32 {
	at, found := searchLine(m.group.lines, topic)
	if !found {
		return 0
	}
	return m.group.lines[at].partitions
}

// cut is the slices between all borders of two lists.
func cut(a, b []Slice) []Slice {
	var borders []int32
	for _, s := range append(slices.Clone(a), b...) {
		borders = append(borders, s.Start, s.End)
	}
	slices.Sort(borders)
	borders = slices.Compact(borders)
	var list []Slice
	for i := 1; i < len(borders); i++ {
		list = append(list, Slice{Start: borders[i-1], End: borders[i]})
	}
	return list
}

// alike tells that all members subscribe to the same, so that nobody is stood in for.
func (m *model) alike() bool {
	var topics []string
	for _, member := range m.members {
		if topics != nil && !slices.Equal(topics, member.topics) {
			return false
		}
		topics = member.topics
	}
	return true
}

func (m *model) heartbeatOf(rt *rapid.T) {
	id := drawMember(rt)
	member := m.members[id]
	behind := rapid.SampledFrom([]int32{0, 0, 0, 0, 1, -1}).Draw(rt, "behind")
	if member == nil {
		_, err := m.send(rt, &Heartbeat{MemberID: id, Epoch: 1 + behind*behind})
		require.ErrorIs(rt, err, kerr.UnknownMemberID)
		return
	}
	epoch := member.epoch - behind
	if epoch < 1 {
		return
	}
	stored := m.group.find(id)
	valid := epoch == stored.current.epoch || epoch == stored.current.previousEpoch
	h := &Heartbeat{MemberID: id, Epoch: epoch}
	if rapid.Bool().Draw(rt, "in full") {
		h.Topics = member.topics
	}
	a, err := m.send(rt, h)
	if !valid {
		require.ErrorIs(rt, err, kerr.FencedMemberEpoch)
		return
	}
	require.NoError(rt, err)
	if rapid.IntRange(0, 5).Draw(rt, "lost") == 0 {
		member.heard = false
		return // it stays at its epoch
	}
	m.note(rt, id, a)
}

// note is what a member hears. After each answer it knows its newest assignment, however
// many answers were lost before.
func (m *model) note(rt *rapid.T, id string, a Answer) {
	member := m.members[id]
	member.epoch = a.Epoch
	if a.Assigned {
		member.has = a.Assignment
	}
	member.heard = true
	require.Equal(rt, m.group.epoch, a.Epoch)
	require.True(rt, equalPartitions(m.group.find(id).target.partitions, member.has), "%s has %s, and should %s",
		id, describePartitions(member.has), describePartitions(m.group.find(id).target.partitions))
}

func (m *model) leave(rt *rapid.T) {
	id := drawMember(rt)
	before := m.group.View()
	a, err := m.send(rt, &Heartbeat{MemberID: id, Epoch: -1})
	if m.members[id] == nil {
		require.ErrorIs(rt, err, kerr.UnknownMemberID)
		return
	}
	require.NoError(rt, err)
	require.Equal(rt, int32(-1), a.Epoch)
	delete(m.members, id)
	m.requireFewMoves(rt, before, 2, "a leave")
}

func (m *model) silent(rt *rapid.T) {
	id := drawMember(rt)
	if m.members[id] == nil {
		return
	}
	m.group.Remove(m.env(rt), id)
	delete(m.members, id)
}

func (m *model) topic(rt *rapid.T) {
	m.setTopic(rapid.SampledFrom(modelTopics).Draw(rt, "topic"), rapid.SampledFrom([]int32{0, 1, 1, 2, 5}).Draw(rt, "partitions"))
	m.group.Refresh(m.env(rt))
}

func (m *model) mode(rt *rapid.T) {
	m.settings.Mode = rapid.SampledFrom([]Mode{RoundRobin, KeyOrdered, KeyRange}).Draw(rt, "mode")
	m.settings.KeyRangeInitial = rapid.SampledFrom([]int32{1, 5}).Draw(rt, "initial")
	m.group.Refresh(m.env(rt))
}

// crash loads the group from its log, which may lack the end of what the last operation
// logged. What it lacks was not answered, so that members may be fewer or more than they
// think; they find out.
func (m *model) crash(rt *rapid.T) {
	n := rapid.IntRange(min(m.fresh, len(m.log)), len(m.log)).Draw(rt, "left")
	lost := n < len(m.log)
	m.group, m.log = m.recovered(n), m.log[:n]
	m.group.Refresh(m.env(rt))
	if !lost {
		return
	}
	for _, id := range m.group.Members() {
		if m.members[id] == nil {
			m.members[id] = &modelMember{topics: m.group.find(id).topics}
		}
	}
	for _, id := range sortedKeys(m.members) {
		known := m.group.find(id)
		if known == nil {
			delete(m.members, id)
			continue
		}
		// It joins again, as a client does that is fenced.
		m.members[id].topics = known.topics
		a, err := m.send(rt, &Heartbeat{MemberID: id, Topics: known.topics})
		require.NoError(rt, err)
		m.note(rt, id, a)
	}
}

func (m *model) check(rt *rapid.T) {
	require.NoError(rt, m.group.CheckInvariants())
	if len(m.log) != m.checked {
		m.requireRecoverable(rt)
		m.checked = len(m.log)
	}
	require.Equal(rt, sortedKeys(m.members), append([]string{}, m.group.Members()...))
	v := m.group.View()
	for _, name := range modelTopics {
		t, exists := m.topics[name]
		var all []string
		for _, id := range m.group.Members() {
			if exists && slices.Contains(m.members[id].topics, name) {
				all = append(all, id)
			}
		}
		for p := range t.Partitions {
			m.checkPartition(rt, v, name, t, p, all)
		}
		for _, id := range m.group.Members() {
			require.False(rt, v.MayFetch(id, t.ID, t.Partitions), "a partition that is not there")
		}
	}
}

// checkPartition holds that those who subscribe, and they alone, may fetch the partition,
// and that each of its slots is dealt to one of them.
func (m *model) checkPartition(rt *rapid.T, v *View, name string, t Topic, p int32, all []string) {
	var may []string
	for _, id := range v.Members() {
		if v.MayFetch(id, t.ID, p) {
			may = append(may, id)
		}
	}
	require.Equal(rt, all, may, "%s-%d", name, p)
	if v.Mode() != KeyRange {
		require.Empty(rt, v.Slices(t.ID, p))
		for _, id := range all {
			require.True(rt, m.group.find(id).has(t.ID, p), "%s works on all of %s", id, name)
		}
		return
	}
	for slot := 0; slot < 65536; slot += 1021 {
		holder := v.Holder(t.ID, p, uint16(slot))
		require.Equal(rt, len(all) > 0, slices.Contains(all, holder), fmt.Sprintf("slot %d of %s-%d is dealt to %q", slot, name, p, holder))
	}
}
