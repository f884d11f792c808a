package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kgo"
)

// RangeHandler handles records of one partition or several, of each in offset order, and
// commits them through the Reader that they come from: all or some, at once or with Enqueue.
// What it leaves open comes again when the range is assigned anew. Records of ranges with
// different slots may be handled at the same time; those of the same range are not.
//
// ctx ends, because of [ErrRevoked], when the handler has to return: it had its time to
// finish, or the group has removed the member. A commit that waits with ctx returns that
// error too; it may have happened all the same, unless the member was removed before. The
// handler must not close the Reader or the GroupReader, nor keep the Reader after it has
// returned.
type RangeHandler func(ctx context.Context, r *Reader, records []*kgo.Record)

// GroupReader is a member of a consumer group that reads with Readers what the group assigns
// to it: whole partitions, and where there are more members than partitions ranges of their
// key slots ([SplitBalancer]). It commits as that member, in the generation in which it was
// assigned the records, so the broker refuses what comes too late.
//
// The group rebalances when members come and go. Before that each member lets its handlers
// return, waits until all that they commit is answered, and only then gives its ranges up
// and is assigned others. So a record is handled by one member at a time, in order per key,
// and one whose commit was answered is not delivered again. A handler that takes longer than
// half the rebalance timeout of the group has its context ended; one that goes on all the
// same is removed from the group, and may then be at work on records that another member has.
type GroupReader struct {
	cfg      readerConfig
	handler  RangeHandler
	balancer *splittingBalancer
	cl       *kgo.Client

	errorsDone chan struct{} // closed when nothing is heard from kgo any more

	releasing sync.Mutex // held by whoever waits for holdings to end

	mu struct {
		sync.Mutex
		holdings []*holding
		closing  bool
	}
}

// OpenGroupReader checks what the broker can do and begins to join the group. The balancer
// is one of kgo's or alike, and must be eager: see [SplitBalancer], in which it is wrapped.
//
// Options are those of [OpenReader] except [Partitions], [StartAt], [Slots] and [Keys], and
// [MemberOpts], [GroupHooks] and [HandleAtMost].
func OpenGroupReader(ctx context.Context, inner kgo.GroupBalancer, handler RangeHandler, opts ...ReaderOpt) (*GroupReader, error) {
	cfg, err := groupReaderConfig(opts)
	if err == nil {
		err = checkGroupReader(ctx, inner, &cfg)
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
func checkGroupReader(ctx context.Context, inner kgo.GroupBalancer, cfg *readerConfig) error {
	if inner.IsCooperative() {
		return ErrCooperativeBalancer
	}
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
// answered, and leaves the group. When ctx ends first, so do the contexts of the handlers,
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
	g.release(holdings)
	if !first {
		<-g.errorsDone
		return nil
	}
	err := g.cl.LeaveGroupContext(ctx)
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

// assigned begins to read what a new generation gives the member.
func (g *GroupReader) assigned(_ context.Context, cl *kgo.Client, _ map[string][]int32) {
	as := new(membership)
	as.member, as.generation = cl.GroupMetadata()
	if instance, ok := cl.OptValues(kgo.InstanceID)[0].(string); ok && instance != "" {
		as.instance = &instance
	}
	ranges := g.balancer.began(as.generation)
	g.mu.Lock()
	if g.mu.closing {
		g.mu.Unlock()
		return
	}
	holdings := newHoldings(g, as, ranges)
	g.mu.holdings = holdings
	g.mu.Unlock()
	if g.cfg.member.hooks.Assigned != nil {
		g.cfg.member.hooks.Assigned(as.generation, ranges)
	}
	for _, h := range holdings {
		go h.run()
	}
}

// revoked gives everything up in good order: kgo waits for it before it joins the next
// generation, and goes on with its heartbeats meanwhile.
func (g *GroupReader) revoked(_ context.Context, cl *kgo.Client, _ map[string][]int32) {
	holdings := g.current()
	timeout := cl.OptValue(kgo.RebalanceTimeout).(time.Duration)
	soon := time.AfterFunc(timeout/2, func() { endHandlers(holdings, ErrRevoked) })
	defer soon.Stop()
	late := time.AfterFunc(timeout, func() { endAll(holdings, ErrRevoked) })
	defer late.Stop()
	g.release(holdings)
}

// lost is revoked when the group has others already: nothing can be committed any more.
func (g *GroupReader) lost(context.Context, *kgo.Client, map[string][]int32) {
	holdings := g.current()
	endAll(holdings, ErrRevoked)
	g.release(holdings)
}

func (g *GroupReader) current() []*holding {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.holdings
}

// release returns when nothing of the holdings is delivered or committed any more. kgo and
// Close may ask for it at the same time: then neither goes on before it is done.
func (g *GroupReader) release(holdings []*holding) {
	for _, h := range holdings {
		h.stop()
	}
	g.releasing.Lock()
	defer g.releasing.Unlock()
	var ranges []AssignedSlots
	for _, h := range holdings {
		<-h.done
		ranges = append(ranges, h.ranges...)
	}
	g.mu.Lock()
	again := len(g.mu.holdings) == 0
	g.mu.holdings = nil
	g.mu.Unlock()
	if !again && g.cfg.member.hooks.Revoked != nil {
		sortAssigned(ranges)
		g.cfg.member.hooks.Revoked(ranges)
	}
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
