package client

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// memberEvents are what the owner of a Member does in the course of the membership. But for
// expelled and failed they are called one after the other, by kgo.
type memberEvents struct {
	// revoked gives up everything, before the member joins the next generation of an eager
	// group, or when the client ends.
	revoked func()
	// assigned gives up what the member holds no more in the generation that has begun, and
	// begins what is new. rejoin: others wait for what it gave up. ctx ends when that takes
	// too long, as [MemberHooks] says.
	assigned func(ctx context.Context, as *membership, now memberIdentity) (rejoin bool)
	// expelled ends, while assigned takes too long, all that the member holds, because it
	// is about to leave and others get it. ctx ends when that is not waited for any more.
	expelled func(ctx context.Context)
	// ended: the membership has ended, so nothing can be committed. back: another one has
	// begun already.
	ended func(back bool)
	// failed is told of an error that nobody waits for.
	failed func(error)
}

func newMember(cfg readerConfig, events memberEvents) *Member {
	m := &Member{cfg: cfg, events: events, joined: make(chan struct{}), errorsDone: make(chan struct{})}
	m.closing, m.close = context.WithCancel(context.Background())
	return m
}

// join begins to join the group.
func (m *Member) join(balancer kgo.GroupBalancer) (err error) {
	kafka := append(append([]kgo.Opt(nil), m.cfg.kafka...), m.cfg.member.kafka...)
	m.cooperative = balancer.IsCooperative()
	m.cl, err = kgo.NewClient(append(kafka, kgo.ConsumerGroup(m.cfg.group), kgo.ConsumeTopics(m.cfg.topics...),
		kgo.Balancers(balancer), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(m.assigned), kgo.OnPartitionsRevoked(m.revoked), kgo.OnPartitionsLost(m.lost))...)
	if err != nil {
		return err
	}
	close(m.joined)
	go m.hearErrors()
	return nil
}

// hearErrors reports what kgo says of the membership, until the client is closed. There is
// nothing else to poll, since kgo believes that the member holds nothing.
func (m *Member) hearErrors() {
	defer close(m.errorsDone)
	for {
		fetches := m.cl.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		fetches.EachError(func(_ string, _ int32, err error) {
			m.events.failed(&GroupError{Group: m.cfg.group, Doing: "be a member", Err: err})
		})
	}
}

// What kgo calls in the course of a membership, one after the other. With an eager balancer
// it is revoked, then assigned, in each generation. With a cooperative one as well, but
// revoked takes nothing: what the member has lost shows when the next assignment is there.

// revoked is called before the member joins the next generation. kgo waits for it, and goes
// on with its heartbeats meanwhile.
func (m *Member) revoked(ctx context.Context, _ *kgo.Client, _ map[string][]int32) {
	<-m.joined
	if !m.cooperative || ctx.Err() != nil {
		m.events.revoked()
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.as != nil {
		m.mu.as.leave()
	}
}

// lost is called when the group has the member no more: others have what it held, so
// nothing can be committed.
func (m *Member) lost(context.Context, *kgo.Client, map[string][]int32) {
	<-m.joined
	m.mu.Lock()
	as := m.mu.as
	m.mu.as, m.mu.owesJoin = nil, false
	m.mu.Unlock()
	if as != nil {
		as.end()
	}
	m.events.ended(false)
}

// assigned is called when a generation has begun.
func (m *Member) assigned(_ context.Context, cl *kgo.Client, _ map[string][]int32) {
	<-m.joined
	now := identityOf(cl)
	as := m.enter(now)
	timeout := rebalanceTimeout(cl)
	grace := timeout / 4
	assigning, tooLate := context.WithCancelCause(m.closing)
	defer tooLate(nil)
	late := time.AfterFunc(timeout/2, func() { tooLate(ErrRevoked) })
	defer late.Stop()
	returned, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-returned:
		case <-time.After(timeout + grace):
			m.removeItself(as, grace)
		}
	}()
	rejoin := m.events.assigned(assigning, as, now)
	close(returned)
	<-watched
	m.mu.Lock()
	m.mu.owesJoin = rejoin
	m.mu.Unlock()
	if rejoin && m.closing.Err() == nil && !as.hasEnded() {
		cl.ForceRebalance()
	}
}

func identityOf(cl *kgo.Client) (now memberIdentity) {
	now.member, now.generation = cl.GroupMetadata()
	if instance, ok := cl.OptValues(kgo.InstanceID)[0].(string); ok && instance != "" {
		now.instance = &instance
	}
	return now
}

// enter goes on with the membership in its next generation, or begins one.
func (m *Member) enter(now memberIdentity) *membership {
	m.mu.Lock()
	before := m.mu.as
	if before != nil && before.precedes(&now) {
		m.mu.Unlock()
		before.enter(now)
		return before
	}
	as := newMembership(now)
	m.mu.as = as
	m.mu.Unlock()
	if before != nil {
		before.end()
		m.events.ended(true)
	}
	return as
}

// removeItself leaves the group, which kgo does not know and so hears of from the broker.
// What the member still holds ends before that, because others get it. Members that do not
// join in time are removed by the broker. Of this one the others wait for a second time to
// join, and the broker does not know that.
func (m *Member) removeItself(as *membership, grace time.Duration) {
	as.end()
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	m.events.expelled(ctx)
	ctx, cancel = context.WithTimeout(context.Background(), rebalanceTimeout(m.cl))
	defer cancel()
	if err := m.leave(ctx, as.identity()); err != nil {
		m.events.failed(err)
	}
}

// leaveIfOwing leaves the group for good where kgo does not: a static member that closes
// keeps its place for the process that comes after it, and that one is given what is
// assigned now. Somebody else would wait for what this one gave up and did not say so.
func (m *Member) leaveIfOwing(ctx context.Context) error {
	m.mu.Lock()
	as, owes := m.mu.as.identity(), m.mu.owesJoin
	m.mu.Unlock()
	if as == nil || as.instance == nil || !owes {
		return nil
	}
	return m.leave(ctx, as)
}

func (m *Member) leave(ctx context.Context, as *memberIdentity) error {
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID, member.InstanceID = as.member, as.instance
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID, req.Members = m.cfg.group, as.member, []kmsg.LeaveGroupRequestMember{member}
	resp, err := req.RequestWith(ctx, m.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err == nil && len(resp.Members) > 0 {
		err = kerr.ErrorForCode(resp.Members[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("leave the group: %w", err)
	}
	return nil
}

func rebalanceTimeout(cl *kgo.Client) time.Duration {
	return cl.OptValue(kgo.RebalanceTimeout).(time.Duration)
}
