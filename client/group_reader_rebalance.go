package client

import (
	"context"
	"slices"
	"time"
)

// revoked gives everything up, in good order.
func (g *GroupReader) revoked() { g.giveUp(g.current(), nil) }

// ended ends everything at once.
func (g *GroupReader) ended(back bool) {
	holdings := g.current()
	endAll(holdings, ErrRevoked)
	g.release(holdings, nil)
	if !back {
		g.balancer.lost()
	}
}

// expelled ends everything at once, beside an assigned that does not return because a
// handler does not. Of those that go on as if nothing was, it waits for what they commit.
func (g *GroupReader) expelled(ctx context.Context) {
	kept := slices.DeleteFunc(slices.Clone(g.current()), func(h *holding) bool { return h.committing.Err() != nil })
	endAll(kept, ErrRevoked)
	for _, h := range kept {
		select {
		case <-h.done:
		case <-ctx.Done(): // it does not return either
			return
		}
	}
}

// assigned goes on with what the member keeps, gives up what it does not, and begins what
// is new. If it gave anything up it joins again, since that is assigned to nobody before.
func (g *GroupReader) assigned(_ context.Context, as *membership, now memberIdentity) (rejoin bool) {
	ranges, rejoin := g.balancer.began(now.generation)
	g.giveUpBut(ranges)
	begun, ok := g.begin(as, ranges)
	if !ok {
		return rejoin // whoever ends the membership sees to it that the others hear of it
	}
	if g.cfg.member.hooks.Assigned != nil {
		g.cfg.member.hooks.Assigned(now.generation, ranges)
	}
	for _, h := range begun {
		go h.run()
	}
	return rejoin
}

// begin adds what of the ranges is not read yet to what is; ok is false when it is too late
// for that.
func (g *GroupReader) begin(as *membership, ranges []AssignedSlots) (begun []*holding, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.closing || as.hasEnded() {
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

// giveUpBut gives up what does not read ranges only. A handler that does not return keeps no
// eager group waiting, since the broker removes members that do not join in time; a member of
// a cooperative one removes itself.
func (g *GroupReader) giveUpBut(ranges []AssignedSlots) {
	over := slices.DeleteFunc(slices.Clone(g.current()), func(h *holding) bool { return h.isOf(ranges) })
	if len(over) > 0 {
		g.giveUp(over, ranges)
	}
}

// giveUp ends holdings in good order: handlers have half of the rebalance timeout to
// return, and their commits have the rest.
func (g *GroupReader) giveUp(holdings []*holding, keeps []AssignedSlots) {
	timeout := rebalanceTimeout(g.member.cl)
	soon := time.AfterFunc(timeout/2, func() { endHandlers(holdings, ErrRevoked) })
	defer soon.Stop()
	late := time.AfterFunc(timeout, func() { endAll(holdings, ErrRevoked) })
	defer late.Stop()
	g.release(holdings, keeps)
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
