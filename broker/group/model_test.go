package group

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestModel drives groups by clients that behave well and badly, and holds after each
// step what must hold of any history: see the methods of model.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"join":      m.join,
			"rejoin":    m.rejoin,
			"sync":      m.sync,
			"heartbeat": m.heartbeat,
			"leave":     m.leave,
			"commit":    m.commit,
			"pass":      func(rt *rapid.T) { m.pass(rt, rapid.Int64Range(0, 20_000).Draw(rt, "ms")) },
			"delete":    m.deleteGroup,
			"reload":    m.reload,
			"":          m.check,
		})
		m.requireAllAnswered(rt)
	})
}

// model is what the clients of a State know.
type model struct {
	*world
	known   map[string][]string         // by group: member ids handed out
	asked   map[Ticket]string           // the group of a parked request
	leaders map[string]map[int32]string // by group and generation
	highest map[string]int32            // the generation last seen
}

func newModel(rt *rapid.T) *model {
	config := DefaultConfig()
	config.InitialRebalanceDelay = time.Duration(rapid.SampledFrom([]int{0, 3}).Draw(rt, "delay")) * time.Second
	config.MaxSize = rapid.SampledFrom([]int{2, 100}).Draw(rt, "max size")
	config.OffsetsRetention = time.Hour
	m := &model{world: newWorld(config), known: make(map[string][]string), asked: make(map[Ticket]string)}
	m.forgetGenerations()
	return m
}

func (m *model) forgetGenerations() {
	m.leaders, m.highest = make(map[string]map[int32]string), make(map[string]int32)
}

func drawGroup(rt *rapid.T) string { return rapid.SampledFrom([]string{"g", "h"}).Draw(rt, "group") }

// drawMember is an id that was given out once, valid or not, or one that never was.
func (m *model) drawMember(rt *rapid.T, group string) string {
	return rapid.SampledFrom(append([]string{"stranger"}, m.known[group]...)).Draw(rt, "member")
}

// drawGeneration is mostly the current one.
func (m *model) drawGeneration(rt *rapid.T, group string) int32 {
	d, _ := m.state.Describe(group)
	return d.Generation - rapid.SampledFrom([]int32{0, 0, 0, 0, 1}).Draw(rt, "behind")
}

func (m *model) request(rt *rapid.T) *JoinRequest {
	protocols := rapid.SampledFrom([][]Protocol{
		{{Name: "range", Metadata: []byte("r")}},
		{{Name: "range", Metadata: []byte("r")}, {Name: "sticky", Metadata: []byte("s")}},
		{{Name: "sticky", Metadata: []byte("s")}, {Name: "range", Metadata: subscriptionTo("t")}},
		{{Name: "range"}, {Name: "range", Metadata: []byte("twice")}},
	}).Draw(rt, "protocols")
	return &JoinRequest{
		Group: drawGroup(rt), ProtocolType: ConsumerProtocolType, Protocols: protocols,
		SessionTimeout:   time.Duration(rapid.SampledFrom([]int{6, 30}).Draw(rt, "session")) * time.Second,
		RebalanceTimeout: time.Duration(rapid.SampledFrom([]int{0, 5, 60}).Draw(rt, "rebalance")) * time.Second,
	}
}

func (m *model) send(req *JoinRequest) {
	t := m.ticket("join")
	m.asked[t] = req.Group
	m.state.Join(m.now, t, req, &m.out)
}

func (m *model) join(rt *rapid.T) {
	req := m.request(rt)
	req.InstanceID = rapid.SampledFrom([]string{"", "", "i", "j"}).Draw(rt, "instance")
	req.RequireMemberID = rapid.Bool().Draw(rt, "twice")
	req.CanSkipAssignment = rapid.Bool().Draw(rt, "v9")
	req.NewMemberID = m.newID("m")
	m.known[req.Group] = append(m.known[req.Group], req.NewMemberID)
	if req.InstanceID != "" {
		delete(m.leaders, req.Group) // the leader may get another id within its generation
	}
	m.send(req)
}

func (m *model) rejoin(rt *rapid.T) {
	req := m.request(rt)
	req.MemberID = m.drawMember(rt, req.Group)
	m.send(req)
}

func (m *model) sync(rt *rapid.T) {
	g := drawGroup(rt)
	req := &SyncRequest{Group: g, MemberID: m.drawMember(rt, g), Generation: m.drawGeneration(rt, g)}
	if rapid.Bool().Draw(rt, "as leader") && m.state.groups[g] != nil {
		req.MemberID = m.state.groups[g].classic.leader
	}
	for _, id := range m.known[g] {
		req.Assignments = append(req.Assignments, Assignment{MemberID: id, Data: []byte(id)})
	}
	t := m.ticket("sync")
	m.asked[t] = g
	m.state.Sync(m.now, t, req, &m.out)
}

func (m *model) heartbeat(rt *rapid.T) {
	g := drawGroup(rt)
	m.state.Heartbeat(m.now, &HeartbeatRequest{Group: g, MemberID: m.drawMember(rt, g), Generation: m.drawGeneration(rt, g)})
}

func (m *model) leave(rt *rapid.T) {
	g := drawGroup(rt)
	l := LeavingMember{MemberID: m.drawMember(rt, g)}
	if rapid.Bool().Draw(rt, "by instance") {
		l = LeavingMember{InstanceID: "i"}
	}
	_, err := m.state.Leave(m.now, &LeaveRequest{Group: g, Members: []LeavingMember{l}}, &m.out)
	require.Nil(rt, err)
}

// commit holds that an offset is taken exactly from a current member, or from anybody
// while there is no member.
func (m *model) commit(rt *rapid.T) {
	g := drawGroup(rt)
	id := Identity{Group: g, MemberID: m.drawMember(rt, g), Generation: m.drawGeneration(rt, g)}
	if rapid.Bool().Draw(rt, "simple") {
		id = Identity{Group: g, Generation: -1}
	}
	d, found := m.state.Describe(g)
	current := slices.ContainsFunc(d.Members, func(md MemberDescription) bool { return md.ID == id.MemberID }) &&
		id.Generation == d.Generation && d.State != CompletingRebalance
	allowed := current || id.Generation == -1 && (!found || d.State == Empty)
	_, err := m.state.Commit(m.now, &CommitRequest{Identity: id, RetentionMs: -1, Offsets: []CommitOffset{{
		TopicPartition: TopicPartition{Topic: "t", Partition: rapid.Int32Range(0, 2).Draw(rt, "partition")},
		Offset:         rapid.Int64Range(0, 9).Draw(rt, "offset"), LeaderEpoch: -1,
	}}}, &m.out)
	require.Equal(rt, allowed, err == nil, "%+v in %+v: %v", id, d, err)
}

func (m *model) deleteGroup(rt *rapid.T) {
	g := drawGroup(rt)
	d, found := m.state.Describe(g)
	err := m.state.DeleteGroup(g, &m.out)
	require.Equal(rt, found && d.State == Empty, err == nil, "%v", err)
	if err == nil {
		delete(m.highest, g)
		delete(m.leaders, g)
	}
}

// reload is a crash: parked requests die with their connections.
func (m *model) reload(*rapid.T) {
	m.note()
	m.world.reload()
	clear(m.asked)
	m.forgetGenerations() // one that was not assigned is not logged, and given out again
}

func (m *model) pass(rt *rapid.T, ms int64) {
	end := m.now.Add(time.Duration(ms) * time.Millisecond)
	for {
		at, ok := m.state.NextDeadline()
		if !ok || at.After(end) {
			break
		}
		if at.After(m.now) {
			m.now = at
		}
		m.state.Tick(m.now, &m.out)
		m.check(rt)
	}
	m.now = end
}

// check is called after each step.
func (m *model) check(rt *rapid.T) {
	require.NoError(rt, m.state.CheckInvariants())
	m.note()
	for _, id := range m.state.ids() {
		d, _ := m.state.Describe(id)
		require.GreaterOrEqual(rt, d.Generation, m.highest[id], "the generation of %s falls", id)
		m.highest[id] = d.Generation
	}
	m.requireRecoverable(rt)
}

// note moves the output to the log, and holds that no request is answered twice and that
// all members of a generation hear of one leader.
func (m *model) note() {
	for _, r := range m.out.Replies {
		group, ok := m.asked[r.Ticket]
		if !ok {
			panic(fmt.Sprintf("ticket %d is answered twice", r.Ticket))
		}
		delete(m.asked, r.Ticket)
		if r.Join == nil || r.Join.Err != nil {
			continue
		}
		if m.leaders[group] == nil {
			m.leaders[group] = make(map[int32]string)
		}
		a := r.Join
		if l := m.leaders[group][a.Generation]; l != "" && l != a.Leader {
			panic(fmt.Sprintf("generation %d of %s is led by %s and by %s", a.Generation, group, l, a.Leader))
		}
		m.leaders[group][a.Generation] = a.Leader
		if (a.Leader == a.MemberID) != (len(a.Members) > 0) {
			panic(fmt.Sprintf("member %s, led by %s, learns of %d members", a.MemberID, a.Leader, len(a.Members)))
		}
	}
	m.settle(panicT{})
}

// requireAllAnswered lets a long time go by in silence: nobody waits any more, and all
// members are gone.
func (m *model) requireAllAnswered(rt *rapid.T) {
	m.pass(rt, (time.Hour).Milliseconds())
	require.Empty(rt, m.asked, "requests that are never answered")
	for _, id := range m.state.ids() {
		d, _ := m.state.Describe(id)
		require.Equal(rt, Empty, d.State)
	}
	require.Zero(rt, m.state.deadlines.Len())
	m.now = m.now.Add(2 * time.Hour)
	m.state.Expire(m.now, nil, &m.out)
	m.check(rt)
	require.Zero(rt, m.state.Len(), "groups that are kept for ever")
}

// panicT turns a failed requirement into a panic, which rapid shrinks as well.
type panicT struct{}

func (panicT) Errorf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
func (panicT) FailNow()                       { panic("failed") }
