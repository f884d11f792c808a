package client

import (
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// RangeHandler handles records of one partition or several, of each in offset order, and
// commits them through the Reader that they come from: all or some, at once or with Enqueue.
// What it leaves open comes again when the range is assigned anew. Records of different ranges
// may be handled at the same time; those of the same range are not.
//
// ctx ends, because of [ErrRevoked], when the handler has to return: it had its time to
// finish, or the group has removed the member. A commit that waits with ctx returns that
// error too; it may have happened all the same, unless the member was removed before. The
// handler must not close the Reader or the GroupReader, nor keep the Reader after it has
// returned.
type RangeHandler func(ctx context.Context, r *Reader, records []*kgo.Record)

// GroupReader is a member of a consumer group that reads with Readers what the group assigns
// to it: whole partitions, and where there are more members than partitions ranges of their
// key slots ([SplitBalancer]). It commits as that member, in the generation of the group at
// the time, so the broker refuses what comes too late.
//
// The group rebalances when members come and go. Before a member gives a range up it lets its
// handler return, and waits until all that it commits is answered; only then another member
// is assigned the range. So a record is handled by one member at a time, in order per key,
// and one whose commit was answered is not delivered to another GroupReader. Only a stock
// consumer may undo that, since it commits all below an offset: it is given again what others
// committed above the stable offset, and as it commits its way through, what it has not got
// to yet is open. With an eager balancer a member gives up everything in each rebalance. With
// a cooperative one it goes on with the ranges that it keeps, and gives up only those that it
// does not, or whose bounds change; of the partitions that it reads whole, those that it began
// in the same generation as one that it gives up pause until that is done.
//
// A handler that takes longer than half the rebalance timeout of the member has its context
// ended. If it goes on all the same the group removes the member, or the member leaves by
// itself in a cooperative group, and its records go to other members while it is at work.
//
// With kgo.InstanceID in [MemberOpts] the member is a static one: Close does not leave the
// group, and whoever opens a GroupReader with that id within the session timeout gets the same
// ranges, without a rebalance. Two at a time may not have the same id: the later one takes the
// place of the other, whose commits are refused with [ErrRevoked] and which reports
// kerr.FencedInstanceID to the hook Failed until it is closed.
type GroupReader struct {
	cfg      readerConfig
	handler  RangeHandler
	balancer *splittingBalancer
	member   *Member

	releasing sync.Mutex // held by whoever waits for holdings to end

	mu struct {
		sync.Mutex
		holdings []*holding // never changed in place
		closing  bool
	}
}

// OpenGroupReader checks what the broker can do and begins to join the group. The balancer
// is any of kgo's or alike, and all members of the group must have it; OpenGroupReader wraps
// it in [SplitBalancer] itself.
//
// Options are those of [OpenReader] except [Partitions], [StartAt], [Slots] and [Keys], and
// [MemberOpts], [GroupHooks] and [HandleAtMost].
func OpenGroupReader(ctx context.Context, inner kgo.GroupBalancer, handler RangeHandler, opts ...ReaderOpt) (*GroupReader, error) {
	cfg, err := groupReaderConfig(opts)
	if err == nil {
		err = checkMember(ctx, &cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("open a group reader: %w", err)
	}
	g := newGroupReader(cfg, inner, handler)
	if err := g.member.join(g.balancer); err != nil {
		return nil, fmt.Errorf("open a group reader: %w", err)
	}
	return g, nil
}

func newGroupReader(cfg readerConfig, inner kgo.GroupBalancer, handler RangeHandler) *GroupReader {
	g := &GroupReader{cfg: cfg, handler: handler, balancer: newSplittingBalancer(inner)}
	g.member = newMember(cfg, memberEvents{revoked: g.revoked, assigned: g.assigned, expelled: g.expelled, ended: g.ended, failed: g.failed})
	return g
}

// Assigned is what the member holds now, ordered by topic and partition.
func (g *GroupReader) Assigned() (ranges []AssignedSlots) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range g.mu.holdings {
		ranges = append(ranges, h.ranges...)
	}
	sortAssigned(ranges)
	return ranges
}

// Close delivers no more, waits until the handlers have returned and what they commit is
// answered, and leaves the group, unless the member is a static one. When ctx ends first, so do the contexts of the handlers,
// for which it still waits, and what is not answered may have been committed all the same.
func (g *GroupReader) Close(ctx context.Context) error {
	g.mu.Lock()
	g.mu.closing = true
	first := g.member.beginClose()
	holdings := g.mu.holdings
	g.mu.Unlock()
	// While handlers finish the member keeps up its heartbeats, so that they may take their time.
	stop := context.AfterFunc(ctx, func() { endAll(holdings, context.Cause(ctx)) })
	defer stop()
	g.release(holdings, nil)
	return g.member.end(ctx, first)
}

// failed reports an error that nobody waits for.
func (g *GroupReader) failed(err error) {
	if g.cfg.member.hooks.Failed != nil {
		g.cfg.member.hooks.Failed(err)
	}
}
