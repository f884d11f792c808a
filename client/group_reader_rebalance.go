package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What kgo calls in the course of a membership, one after the other. With an eager balancer
// it is revoked, then assigned, in each generation. With a cooperative one as well, but
// revoked takes nothing: what the member has lost shows when the next assignment is there.

// revoked is called before the member joins the next generation. kgo waits for it, and goes
// on with its heartbeats meanwhile. Everything is given up, in good order; in a cooperative
// group nothing is, unless the client ends.
func (g *GroupReader) revoked(ctx context.Context, cl *kgo.Client, _ map[string][]int32) {
	if g.balancer.IsCooperative() && ctx.Err() == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.mu.as != nil {
			g.mu.as.leave()
		}
		return
	}
	g.giveUp(cl, g.current(), nil)
}

// lost is called when the group has the member no more: others have what it held, so
// nothing can be committed.
func (g *GroupReader) lost(context.Context, *kgo.Client, map[string][]int32) {
	g.mu.Lock()
	as := g.mu.as
	g.mu.as, g.mu.owesJoin = nil, false
	g.mu.Unlock()
	g.abandon(as)
	g.balancer.lost()
}

// assigned is called when a generation has begun. The member goes on with what it keeps,
// gives up what it does not, and begins what is new. If it gave anything up it joins again,
// since that is assigned to nobody before.
func (g *GroupReader) assigned(_ context.Context, cl *kgo.Client, _ map[string][]int32) {
	now := identityOf(cl)
	ranges, rejoin := g.balancer.began(now.generation)
	as := g.enter(now, rejoin)
	if !g.giveUpBut(cl, as, ranges) {
		return
	}
	begun, ok := g.begin(as, ranges)
	if !ok {
		return // Close sees to it that the others hear of what was given up
	}
	if g.cfg.member.hooks.Assigned != nil {
		g.cfg.member.hooks.Assigned(now.generation, ranges)
	}
	for _, h := range begun {
		go h.run()
	}
	if rejoin {
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
func (g *GroupReader) enter(now memberIdentity, rejoin bool) *membership {
	g.mu.Lock()
	before := g.mu.as
	g.mu.owesJoin = rejoin
	if before != nil && before.precedes(&now) {
		g.mu.Unlock()
		before.enter(now)
		return before
	}
	as := newMembership(now)
	g.mu.as = as
	g.mu.Unlock()
	g.abandon(before)
	return as
}

// begin adds what of the ranges is not read yet to what is; ok is false when it is too late
// for that.
func (g *GroupReader) begin(as *membership, ranges []AssignedSlots) (begun []*holding, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.closing {
		return nil, false
	}
	fresh := slices.Clone(ranges)
	for _, h := range g.mu.holdings {
		fresh = slices.DeleteFunc(fresh, func(r AssignedSlots) bool { return slices.Contains(h.ranges, r) })
	}
	begun = newHoldings(g, as, fresh)
	g.mu.holdings = slices.Concat(g.mu.holdings, begun)
	return begun, true
}

// giveUpBut gives up what does not read ranges only, and tells whether the member is one
// after it. A handler that does not return keeps no eager group waiting, since the broker
// removes members that do not join in time. Of this one the others wait for a second time to
// join, and the broker does not know it, so it removes itself.
func (g *GroupReader) giveUpBut(cl *kgo.Client, as *membership, ranges []AssignedSlots) bool {
	var kept, over []*holding
	for _, h := range g.current() {
		if h.isOf(ranges) {
			kept = append(kept, h)
		} else {
			over = append(over, h)
		}
	}
	if len(over) == 0 {
		return true
	}
	released, watched := make(chan struct{}), make(chan struct{})
	stays := true
	go func() {
		defer close(watched)
		grace := rebalanceTimeout(cl) / 4
		select {
		case <-released:
		case <-time.After(rebalanceTimeout(cl) + grace):
			stays = false
			g.removeItself(cl, as, kept, grace)
		}
	}()
	g.giveUp(cl, over, ranges)
	close(released)
	<-watched
	return stays
}

// removeItself leaves the group, which kgo does not know and so hears of from the broker.
// What is kept ends before that, because others get it.
func (g *GroupReader) removeItself(cl *kgo.Client, as *membership, kept []*holding, grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	as.end()
	endAll(kept, ErrRevoked)
	for _, h := range kept {
		select {
		case <-h.done:
		case <-ctx.Done(): // it does not return either
		}
	}
	ctx, cancel = context.WithTimeout(context.Background(), rebalanceTimeout(cl))
	defer cancel()
	if err := g.leave(ctx, cl, as.identity()); err != nil {
		g.failed(err)
	}
}

// leaveIfOwing leaves the group for good where kgo does not: a static member that closes
// keeps its place for the process that comes after it, and that one is given what is
// assigned now. Somebody else would wait for what this one gave up and did not say so.
func (g *GroupReader) leaveIfOwing(ctx context.Context) error {
	g.mu.Lock()
	as, owes := g.mu.as.identity(), g.mu.owesJoin
	g.mu.Unlock()
	if as == nil || as.instance == nil || !owes {
		return nil
	}
	return g.leave(ctx, g.cl, as)
}

func (g *GroupReader) leave(ctx context.Context, cl *kgo.Client, as *memberIdentity) error {
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID, member.InstanceID = as.member, as.instance
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID, req.Members = g.cfg.group, as.member, []kmsg.LeaveGroupRequestMember{member}
	resp, err := req.RequestWith(ctx, cl)
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

// giveUp ends holdings in good order: handlers have half of the rebalance timeout to
// return, and their commits have the rest.
func (g *GroupReader) giveUp(cl *kgo.Client, holdings []*holding, keeps []AssignedSlots) {
	timeout := rebalanceTimeout(cl)
	soon := time.AfterFunc(timeout/2, func() { endHandlers(holdings, ErrRevoked) })
	defer soon.Stop()
	late := time.AfterFunc(timeout, func() { endAll(holdings, ErrRevoked) })
	defer late.Stop()
	g.release(holdings, keeps)
}

// abandon ends everything at once, because the membership has ended.
func (g *GroupReader) abandon(as *membership) {
	if as != nil {
		as.end()
	}
	holdings := g.current()
	endAll(holdings, ErrRevoked)
	g.release(holdings, nil)
}

func (g *GroupReader) current() []*holding {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.holdings
}

// release returns when nothing of the holdings is delivered or committed any more, and
// reports what of them is not kept. kgo and Close may ask for it at the same time: then
// neither goes on before it is done.
func (g *GroupReader) release(holdings []*holding, keeps []AssignedSlots) {
	for _, h := range holdings {
		h.stop()
	}
	g.releasing.Lock()
	defer g.releasing.Unlock()
	var ranges []AssignedSlots
	for _, h := range holdings {
		<-h.done
		if g.remove(h) {
			ranges = append(ranges, h.ranges...)
		}
	}
	ranges = slices.DeleteFunc(ranges, func(r AssignedSlots) bool { return slices.Contains(keeps, r) })
	if len(ranges) > 0 && g.cfg.member.hooks.Revoked != nil {
		sortAssigned(ranges)
		g.cfg.member.hooks.Revoked(ranges)
	}
}

// remove takes a holding out of the current ones; false means that somebody else has.
func (g *GroupReader) remove(h *holding) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.mu.holdings, h) {
		return false
	}
	g.mu.holdings = slices.DeleteFunc(slices.Clone(g.mu.holdings), func(other *holding) bool { return other == h })
	return true
}
