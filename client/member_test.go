package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// quietBalancer keeps what it assigns to itself, as the balancer of a Member has to. These
// tests do not look at what that is.
type quietBalancer struct{ kgo.GroupBalancer }

func newQuietBalancer() kgo.GroupBalancer { return quietBalancer{kgo.CooperativeStickyBalancer()} }

func (quietBalancer) ParseSyncAssignment([]byte) (map[string][]int32, error) {
	return map[string][]int32{}, nil
}

// membering is a Member, and what its hooks were called for.
type membering struct {
	s *server
	*client.Member
	begun chan int32 // generations
	lost  chan struct{}
}

// joinGroup joins group g as a member whose hook Assigned does what it is given, if that is
// not nil.
func (s *server) joinGroup(assigned func(context.Context, *client.Member, int32) bool, opts ...client.ReaderOpt) *membering {
	s.tb.Helper()
	m := &membering{s: s, begun: make(chan int32, 100), lost: make(chan struct{}, 100)}
	var err error
	m.Member, err = client.JoinGroup(s.tb.Context(), "g", newQuietBalancer(), client.MemberHooks{
		Assigned: func(ctx context.Context, member *client.Member, generation int32) bool {
			m.begun <- generation
			return assigned != nil && assigned(ctx, member, generation)
		},
		Lost: func() { m.lost <- struct{}{} },
	}, append([]client.ReaderOpt{client.KafkaOpts(kgo.SeedBrokers(s.addr()), kgo.Dialer(s.dial)), client.Topics("t"),
		client.RetryBackoff(func(int) time.Duration { return 5 * time.Millisecond }),
		client.MemberOpts(kgo.HeartbeatInterval(20 * time.Millisecond))}, opts...)...)
	require.NoError(s.tb, err)
	s.tb.Cleanup(func() { assert.NoError(s.tb, m.Close(context.Background())) })
	return m
}

// read opens a Reader of all of partition 0 as the member.
func (m *membering) read(opts ...client.ReaderOpt) *client.Reader {
	m.s.tb.Helper()
	r, err := m.OpenReader(m.s.tb.Context(), append([]client.ReaderOpt{client.Partitions("t", 0)}, opts...)...)
	require.NoError(m.s.tb, err)
	m.s.tb.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // nothing is waited for
		_ = r.Close(ctx)
	})
	return r
}

// remove has the group remove the member, behind its back.
func (m *membering) remove() {
	m.s.tb.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(m.s.addr()))
	require.NoError(m.s.tb, err)
	defer cl.Close()
	req := kmsg.NewPtrLeaveGroupRequest()
	member := kmsg.NewLeaveGroupRequestMember()
	req.Group = "g"
	member.MemberID, _ = m.ID()
	req.Members = append(req.Members, member)
	resp, err := req.RequestWith(m.s.tb.Context(), cl)
	require.NoError(m.s.tb, err)
	require.NoError(m.s.tb, kerr.ErrorForCode(resp.Members[0].ErrorCode))
}

// The Readers of a member commit in every generation that follows, although the broker refuses
// commits of a generation that has passed; also a commit that was on its way when it did.
func TestReaderOfAMemberFollowsGenerations(t *testing.T) {
	s := newServer(t)
	s.produce(10)
	a := s.joinGroup(nil)
	first := <-a.begun
	commits := newValve(kmsg.OffsetCommit)
	r := a.read(commits.opt())
	in := pollN(t, r, 10)
	require.NoError(t, r.Commit(t.Context(), in[0]))

	commits.set(true)
	committed := make(chan error)
	go func() { committed <- r.Commit(t.Context(), in[1], in[2]) }()
	commits.awaitHeld()
	b := s.joinGroup(nil)
	second := <-a.begun
	require.Greater(t, second, first)
	<-b.begun
	member, generation := a.ID()
	require.NotEmpty(t, member)
	require.GreaterOrEqual(t, generation, second)
	commits.set(false)
	require.NoError(t, <-committed)
	require.EqualValues(t, 3, s.ledger().Stable)

	a.Rejoin()
	require.Greater(t, <-a.begun, second)
	tr := s.transact()
	require.NoError(t, tr.Do(t.Context(), func(tx *client.Txn) error { return tx.Ack(r, in[3]) }))
	require.EqualValues(t, 4, s.ledger().Stable)
}

// Commits go on while the member goes from generation to generation, whether they are sent
// in one or between two.
func TestCommitsThroughManyGenerations(t *testing.T) {
	const records = 400
	s := newServer(t)
	s.produce(records)
	a := s.joinGroup(nil)
	b := s.joinGroup(nil)
	<-a.begun
	<-b.begun
	r := a.read()
	in := pollN(t, r, records)
	done := make(chan error)
	go func() {
		for _, record := range in {
			if err := r.Commit(context.Background(), record); err != nil {
				done <- err
				return
			}
		}
		close(done)
	}()
	for range 10 {
		b.Rejoin()
		<-a.begun
	}
	require.NoError(t, <-done)
	require.EqualValues(t, records, s.ledger().Stable)
	require.Empty(t, a.lost)
}

// What a member commits after the group has removed it is refused. It comes back by
// itself, as somebody else, and its Readers before stay refused.
func TestMemberThatIsLost(t *testing.T) {
	s := newServer(t)
	s.produce(3)
	m := s.joinGroup(nil)
	<-m.begun
	r := m.read()
	in := pollN(t, r, 3)
	require.NoError(t, r.Commit(t.Context(), in[0]))
	before, _ := m.ID()
	m.remove()
	err := r.Commit(t.Context(), in[1])
	require.ErrorIs(t, err, client.ErrRevoked)
	require.ErrorContains(t, err, "t[0] of group g")
	<-m.lost
	<-m.begun
	now, _ := m.ID()
	require.NotEqual(t, before, now)
	require.ErrorIs(t, r.Commit(t.Context(), in[1]), client.ErrRevoked, "the group has somebody else now")
	err = s.transact().Do(t.Context(), func(tx *client.Txn) error { return tx.Ack(r, in[1]) })
	require.ErrorIs(t, err, client.ErrRevoked)
	heir := m.read()
	require.NoError(t, heir.Commit(t.Context(), pollN(t, heir, 2)...))
	require.EqualValues(t, 3, s.ledger().Stable)
}

// Assigned is told when its time is up. If it goes on all the same the member leaves, for the
// others may wait for it, and its Readers commit nothing.
func TestMemberThatGivesNothingUp(t *testing.T) {
	s := newServer(t)
	s.produce(1)
	late, committed := make(chan error, 1), make(chan error, 1)
	m := s.joinGroup(func(ctx context.Context, m *client.Member, generation int32) bool {
		if generation > 1 {
			return false
		}
		r, err := m.OpenReader(ctx, client.Partitions("t", 0))
		if !assert.NoError(t, err) {
			return false
		}
		defer r.Close(context.Background())
		<-ctx.Done()
		late <- context.Cause(ctx)
		for { // until the member has left
			other, err := m.OpenReader(context.Background(), client.Partitions("t", 0))
			if err != nil {
				assert.ErrorIs(t, err, client.ErrRevoked)
				break
			}
			assert.NoError(t, other.Close(context.Background()))
		}
		for err == nil {
			err = r.CommitRuns(context.Background(), "t", 0, client.Run{Start: 0, End: 1})
		}
		committed <- err
		return true
	}, client.MemberOpts(kgo.RebalanceTimeout(200*time.Millisecond), kgo.SessionTimeout(5*time.Minute)))
	require.ErrorIs(t, <-late, client.ErrRevoked)
	require.ErrorIs(t, <-committed, client.ErrRevoked)
	<-m.lost
	<-m.begun
	<-m.begun
}

// Assigned may take longer than a session: the member goes on with its heartbeats.
func TestMemberThatTakesItsTime(t *testing.T) {
	s := newServer(t)
	s.produce(1)
	returned := make(chan struct{}, 1)
	m := s.joinGroup(func(ctx context.Context, _ *client.Member, _ int32) bool {
		<-ctx.Done()
		returned <- struct{}{}
		return false
	}, client.MemberOpts(kgo.RebalanceTimeout(2*time.Second), kgo.SessionTimeout(500*time.Millisecond)))
	<-returned
	r := m.read()
	require.NoError(t, r.Commit(t.Context(), pollN(t, r, 1)...))
	_, generation := m.ID()
	require.EqualValues(t, 1, generation)
	require.Empty(t, m.lost)
}

// The generation after one in which others wait for the member begins at once.
func TestMemberThatOwesAJoin(t *testing.T) {
	s := newServer(t)
	s.produce(1)
	m := s.joinGroup(func(_ context.Context, _ *client.Member, generation int32) bool { return generation < 4 })
	for want := range int32(4) {
		require.Equal(t, want+1, <-m.begun)
	}
}

// Close ends the context of Assigned, and waits for it.
func TestCloseOfAMemberAtWork(t *testing.T) {
	s := newServer(t)
	s.produce(1)
	returned := false
	m := s.joinGroup(func(ctx context.Context, _ *client.Member, _ int32) bool {
		<-ctx.Done()
		returned = true
		return false
	})
	<-m.begun
	require.NoError(t, m.Close(t.Context()))
	require.True(t, returned)
	member, generation := m.ID()
	require.True(t, member == "" || generation == 1)
	_, err := m.OpenReader(t.Context(), client.Partitions("t", 0))
	require.ErrorIs(t, err, client.ErrRevoked)
}

func TestJoinGroupRefuses(t *testing.T) {
	s := newServer(t)
	s.produce(1)
	hooks := client.MemberHooks{Assigned: func(context.Context, *client.Member, int32) bool { return false }, Lost: func() {}}
	good := []client.ReaderOpt{client.SeedBrokers(s.addr()), client.Topics("t")}
	for want, opts := range map[string][]client.ReaderOpt{
		"among the options":       {client.Group("h")},
		"the group assigns":       {client.Partitions("u", 0)},
		"without members":         {client.Slots(client.SlotRange{Lo: 0, Hi: 1})},
		"OpenGroupReader":         {client.HandleAtMost(3)},
		"UNKNOWN_TOPIC_OR_PARTIT": {client.Topics("none")},
	} {
		_, err := client.JoinGroup(t.Context(), "g", newQuietBalancer(), hooks, append(opts, good...)...)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "join group g")
	}
	_, err := client.JoinGroup(t.Context(), "g", kgo.RangeBalancer(), hooks, good...)
	require.ErrorContains(t, err, "range is not a cooperative one")
	_, err = client.JoinGroup(t.Context(), "g", newQuietBalancer(), client.MemberHooks{Failed: func(error) {}}, good...)
	require.ErrorContains(t, err, "Assigned and Lost")

	m := s.joinGroup(nil)
	<-m.begun
	_, err = m.OpenReader(t.Context(), client.Partitions("t", 0), client.Group("h"))
	require.ErrorContains(t, err, "of a member of group g")
	_, err = m.OpenReader(t.Context())
	require.ErrorContains(t, err, "nothing to read")
	_, err = m.OpenReader(t.Context(), client.Partitions("t", 0), client.MemberOpts(kgo.InstanceID("i")))
	require.True(t, err != nil && !errors.Is(err, client.ErrRevoked))
}
