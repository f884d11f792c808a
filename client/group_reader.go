package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lacunamq/lacuna/protocol"
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
	cl       *kgo.Client

	errorsDone chan struct{} // closed when nothing is heard from kgo any more

	releasing sync.Mutex // held by whoever waits for holdings to end

	mu struct {
		sync.Mutex
		holdings []*holding  // never changed in place
		as       *membership // nil before the first generation, and when it has ended
		// owesJoin: others wait until the member joins again and says what it gave up.
		owesJoin bool
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
		err = checkGroupReader(ctx, &cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("open a group reader: %w", err)
	}
	g := &GroupReader{cfg: cfg, handler: handler, balancer: newSplittingBalancer(inner), errorsDone: make(chan struct{})}
	kafka := append(append([]kgo.Opt(nil), cfg.kafka...), cfg.member.kafka...)
	g.cl, err = kgo.NewClient(append(kafka, kgo.ConsumerGroup(cfg.group), kgo.ConsumeTopics(cfg.topics...),
		kgo.Balancers(g.balancer), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(g.assigned), kgo.OnPartitionsRevoked(g.revoked), kgo.OnPartitionsLost(g.lost))...)
	if err != nil {
		return nil, fmt.Errorf("open a group reader: %w", err)
	}
	go g.hearErrors()
	return g, nil
}

// checkGroupReader looks before the group is joined for what would fail after.
func checkGroupReader(ctx context.Context, cfg *readerConfig) error {
	cl, err := kgo.NewClient(cfg.kafka...)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := requireFeatures(ctx, cl, protocol.FeatureIndividualCommit, protocol.FeatureKeyFilter); err != nil {
		return err
	}
	_, err = findTopics(ctx, cl, cfg.topics...)
	return err
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
	first := !g.mu.closing
	g.mu.closing = true
	holdings := g.mu.holdings
	g.mu.Unlock()
	// While handlers finish the member keeps up its heartbeats, so that they may take their time.
	stop := context.AfterFunc(ctx, func() { endAll(holdings, context.Cause(ctx)) })
	defer stop()
	g.release(holdings, nil)
	if !first {
		<-g.errorsDone
		return nil
	}
	err := g.cl.LeaveGroupContext(ctx)
	if err == nil {
		err = g.leaveIfOwing(ctx)
	}
	g.cl.Close()
	<-g.errorsDone
	if err != nil {
		if ctx.Err() != nil { // kgo may say instead what it could not do until then
			err = errors.Join(context.Cause(ctx), err)
		}
		return &GroupError{Group: g.cfg.group, Doing: "leave", Err: err}
	}
	return nil
}

// hearErrors reports what kgo says of the membership, until the client is closed. There is
// nothing else to poll, since kgo believes that the member holds nothing.
func (g *GroupReader) hearErrors() {
	defer close(g.errorsDone)
	for {
		fetches := g.cl.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		fetches.EachError(func(_ string, _ int32, err error) {
			g.failed(&GroupError{Group: g.cfg.group, Doing: "be a member", Err: err})
		})
	}
}

// failed reports an error that nobody waits for.
func (g *GroupReader) failed(err error) {
	if g.cfg.member.hooks.Failed != nil {
		g.cfg.member.hooks.Failed(err)
	}
}
