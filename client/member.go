package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Member is a member of a classic consumer group whose balancer keeps what it assigns to
// itself. What the member does with it is its owner's affair, who opens Readers that commit
// as the member. [GroupReader] is a Member that reads by itself.
//
// The balancer must be cooperative, and its ParseSyncAssignment has to return an empty
// assignment, so that kgo neither fetches nor commits. A member gives up what it has lost in
// [MemberHooks].Assigned. When others wait for that, it says so by joining once more.
type Member struct {
	cfg    readerConfig
	events memberEvents
	cl     *kgo.Client
	joined chan struct{} // closed when cl is set, which may already call

	// cooperative tells whether the balancer is.
	cooperative bool
	errorsDone  chan struct{} // closed when nothing is heard from kgo any more

	closing context.Context // ends when Close is called
	close   context.CancelFunc

	mu struct {
		sync.Mutex
		as *membership // nil before the first generation, and when it has ended
		// owesJoin: others wait until the member joins again and says what it gave up.
		owesJoin bool
	}
}

// MemberHooks are called in the course of a membership, one at a time. They must not call
// [Member.Close]. Failed may be called beside the others.
type MemberHooks struct {
	// Assigned: a generation has begun, and the balancer has had its assignment. Whoever
	// is called gives up what the member has lost, with all commits answered, and begins what
	// is new. It returns true if the member is to join again at once, because others wait for
	// what it gave up or it has something new to say.
	//
	// Heartbeats go on meanwhile. The context ends, because of [ErrRevoked], after half the
	// rebalance timeout, or when the Member is closed. If Assigned goes on all the same for
	// the other half and a quarter more, the member leaves the group.
	//
	// It may be called before JoinGroup has returned, and so is given the Member.
	Assigned func(ctx context.Context, m *Member, generation int32) (rejoin bool)
	// Lost: the group has the member no more, or had it no more for a while. Others may have
	// what it held, and the Readers of the member so far cannot commit. They are to be closed,
	// at once and without waiting for commits. Assigned follows when the member is back; if
	// it is back already the balancer has had the next assignment before Lost is called.
	Lost func()
	// Failed: something went wrong that no caller waits for. The member goes on. Nil: ignored.
	Failed func(err error)
}

// JoinGroup checks what the broker can do and begins to join the group, which subscribes to
// the topics of [Topics]. Options are that, [KafkaOpts] and the like, and [MemberOpts], for
// example with kgo.SessionTimeout, kgo.RebalanceTimeout, kgo.HeartbeatInterval or
// kgo.InstanceID. All other options of Readers but [Partitions], [StartAt], [Slots] and [Keys]
// are passed on to those that the Member opens.
func JoinGroup(ctx context.Context, group string, balancer kgo.GroupBalancer, hooks MemberHooks, opts ...ReaderOpt) (*Member, error) {
	cfg, err := memberReaderConfig(append([]ReaderOpt{Group(group)}, opts...))
	switch {
	case err != nil:
	case cfg.group != group:
		err = fmt.Errorf("client.Group(%q) among the options", cfg.group)
	case hooks.Assigned == nil || hooks.Lost == nil:
		err = errors.New("the hooks Assigned and Lost are needed")
	case !balancer.IsCooperative():
		err = fmt.Errorf("balancer %s is not a cooperative one", balancer.ProtocolName())
	case cfg.member.handles:
		err = errors.New("client.GroupHooks and client.HandleAtMost are options of client.OpenGroupReader")
	default:
		err = checkMember(ctx, &cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("join group %s: %w", group, err)
	}
	m := newMember(cfg, memberEvents{})
	m.events = m.callHooks(hooks)
	if err := m.join(balancer); err != nil {
		return nil, fmt.Errorf("join group %s: %w", group, err)
	}
	return m, nil
}

// callHooks makes events of hooks.
func (m *Member) callHooks(h MemberHooks) memberEvents {
	return memberEvents{
		revoked: func() {},
		assigned: func(ctx context.Context, _ *membership, now memberIdentity) bool {
			return h.Assigned(ctx, m, now.generation)
		},
		expelled: func(context.Context) {},
		ended:    func(bool) { h.Lost() },
		failed: func(err error) {
			if h.Failed != nil {
				h.Failed(err)
			}
		},
	}
}

// memberReaderConfig checks the options of a member of a group.
func memberReaderConfig(opts []ReaderOpt) (readerConfig, error) {
	cfg := defaultReaderConfig()
	for _, o := range opts {
		o.applyReader(&cfg)
	}
	switch {
	case cfg.group == "":
		return cfg, errors.New("no group: name one with client.Group")
	case len(cfg.topics) == 0 || len(cfg.partitions) > 0:
		return cfg, errors.New("the group assigns the partitions: name topics with client.Topics, and nothing else to read")
	case cfg.filtered():
		return cfg, errors.New("the group assigns the slots: client.Slots and client.Keys are options of a Reader without members")
	}
	return cfg, cfg.validateLimits()
}

// checkMember looks before the group is joined for what would fail after.
func checkMember(ctx context.Context, cfg *readerConfig) error {
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

// OpenReader opens a Reader that commits as the member: in the generation of the time, also
// in those that follow, for as long as the group has the member. After that its commits fail
// with [ErrRevoked]; it has to be closed, and another one opened when the member is back. Its
// options come after those of JoinGroup and must name what it reads, by [Partitions] or
// [StartAt] with [Slots]. While the group does not have the member OpenReader fails with
// [ErrRevoked].
//
// The Readers must be closed before the Member.
func (m *Member) OpenReader(ctx context.Context, opts ...ReaderOpt) (*Reader, error) {
	m.mu.Lock()
	as := m.mu.as
	m.mu.Unlock()
	if as == nil || as.hasEnded() {
		return nil, &GroupError{Group: m.cfg.group, Doing: "open a reader", Err: &revokedError{errors.New("the group does not have the member")}}
	}
	cfg := m.cfg.readingAs(as)
	for _, o := range opts {
		o.applyReader(&cfg)
	}
	if cfg.group != m.cfg.group {
		return nil, fmt.Errorf("open a reader: client.Group(%q) of a member of group %s", cfg.group, m.cfg.group)
	}
	return openReader(ctx, cfg)
}

// readingAs is the configuration of a Reader of the member that has nothing to read yet.
func (cfg *readerConfig) readingAs(as *membership) readerConfig {
	c := *cfg
	c.kafka = slices.Clone(c.kafka)
	c.groupTopics = cfg.topics
	c.topics, c.partitions = nil, make(map[string][]int32)
	c.positions, c.ends = maps.Clone(c.positions), maps.Clone(c.ends)
	c.member, c.as = memberConfig{}, as
	return c
}

// Rejoin has the member join once more, so that the group rebalances: it has something new to
// say in its join metadata. It does not wait for that.
func (m *Member) Rejoin() { m.cl.ForceRebalance() }

// ID is the id of the member, and the generation that it is in or was in last; empty and
// -1 while the group does not have it.
func (m *Member) ID() (member string, generation int32) {
	m.mu.Lock()
	as := m.mu.as
	m.mu.Unlock()
	if as == nil {
		return "", -1
	}
	now := as.identity()
	return now.member, now.generation
}

// Close leaves the group, unless the member is a static one that owes nobody a rejoin. When ctx
// ends first it does not wait for the hook that runs, nor for the broker.
func (m *Member) Close(ctx context.Context) error {
	return m.end(ctx, m.beginClose())
}

// beginClose lets no other generation begin that anybody needs. first: nobody else has
// called it.
func (m *Member) beginClose() (first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first = m.closing.Err() == nil
	m.close()
	return first
}

// end ends the membership, or waits until whoever does has done so.
func (m *Member) end(ctx context.Context, first bool) error {
	if !first {
		<-m.errorsDone
		return nil
	}
	err := m.cl.LeaveGroupContext(ctx)
	if err == nil {
		err = m.leaveIfOwing(ctx)
	}
	m.cl.Close()
	<-m.errorsDone
	m.mu.Lock()
	if m.mu.as != nil {
		m.mu.as.end()
	}
	m.mu.Unlock()
	if err != nil {
		if ctx.Err() != nil { // kgo may say instead what it could not do until then
			err = errors.Join(context.Cause(ctx), err)
		}
		return &GroupError{Group: m.cfg.group, Doing: "leave", Err: err}
	}
	return nil
}
