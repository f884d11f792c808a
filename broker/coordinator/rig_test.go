package coordinator

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/journal/journaltest"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a coordinator over logs and a store in memory, whose fsyncs the test may hold up
// or fail.
type rig struct {
	*journaltest.Topic
	t     testing.TB
	syncs *syncGate
	c     *Coordinator
	opts  Options
}

const rigPartitions = 4

func newRig(t testing.TB, change func(*Options)) *rig {
	r := &rig{Topic: journaltest.New("offsets"), t: t, syncs: &syncGate{}}
	r.LogFS = errorfs.Wrap(r.Disk, r.syncs)
	config := group.DefaultConfig()
	config.InitialRebalanceDelay = 0
	r.opts = Options{Partitions: rigPartitions, Open: r.Open, Written: r.Written, Config: config}
	if change != nil {
		change(&r.opts)
	}
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *rig) start() {
	require.NoError(r.t, r.Start())
	r.c = Open(r.opts)
}

// stop ends all cleanly.
func (r *rig) stop() {
	if r.c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = r.c.Close(ctx)
	_ = r.CloseLogs()
	require.NoError(r.t, r.DB.Close())
	r.c = nil
}

func (r *rig) restart() {
	r.stop()
	r.start()
}

// syncGate decides about fsyncs of log segments.
type syncGate struct {
	mu     sync.Mutex
	closed chan struct{} // fsyncs wait for it; nil: they don't
	err    error
	waits  chan struct{} // told when one waits
}

func (g *syncGate) String() string { return "sync gate" }

func (g *syncGate) MaybeError(op errorfs.Op) error {
	if op.Kind != errorfs.OpFileSync && op.Kind != errorfs.OpFileSyncData && op.Kind != errorfs.OpFileSyncTo {
		return nil
	}
	g.mu.Lock()
	closed, waits := g.closed, g.waits
	g.mu.Unlock()
	if closed != nil {
		select {
		case waits <- struct{}{}:
		default:
		}
		<-closed
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// hold makes fsyncs wait until release is called. The channel tells of one that waits.
func (g *syncGate) hold() (waiting <-chan struct{}, release func(err error)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	closed := make(chan struct{})
	g.closed, g.waits = closed, make(chan struct{}, 1)
	return g.waits, func(err error) {
		g.mu.Lock()
		g.closed, g.err = nil, err
		g.mu.Unlock()
		close(closed)
	}
}

// Requests, with what they need only.

func (r *rig) join(id, client, memberID string) (group.JoinAnswer, error) {
	return r.c.Join(context.Background(), &group.JoinRequest{
		Group: id, ClientID: client, MemberID: memberID, SessionTimeout: 10 * time.Second, RebalanceTimeout: time.Minute,
		ProtocolType: group.ConsumerProtocolType, Protocols: []group.Protocol{{Name: "range", Metadata: []byte(client)}},
	})
}

// lead joins as the only member, and assigns.
func (r *rig) lead(id, client string) group.JoinAnswer {
	r.t.Helper()
	joined, err := r.join(id, client, "")
	require.NoError(r.t, err)
	require.Nil(r.t, joined.Err)
	synced, err := r.c.Sync(context.Background(), &group.SyncRequest{
		Group: id, MemberID: joined.MemberID, Generation: joined.Generation,
		Assignments: []group.Assignment{{MemberID: joined.MemberID, Data: []byte("all")}},
	})
	require.NoError(r.t, err)
	require.Nil(r.t, synced.Err)
	require.Equal(r.t, "all", string(synced.Assignment))
	return joined
}

func (r *rig) heartbeat(id string, m group.JoinAnswer) error {
	return r.c.Heartbeat(context.Background(), &group.HeartbeatRequest{Group: id, MemberID: m.MemberID, Generation: m.Generation})
}

func commitOf(id string, partition int32, offset int64) *group.CommitRequest {
	return &group.CommitRequest{
		Identity: group.Identity{Group: id, Generation: -1}, RetentionMs: -1,
		Offsets: []group.CommitOffset{{TopicPartition: group.TopicPartition{Topic: "t", Partition: partition}, Offset: offset}},
	}
}

func (r *rig) commit(id string, offset int64) error {
	_, err := r.c.Commit(context.Background(), commitOf(id, 0, offset))
	return err
}

// committed is -1 for none.
func (r *rig) committed(id string) (int64, error) {
	found, err := r.c.Committed(context.Background(), id,
		[]PartitionOf{{TopicPartition: group.TopicPartition{Topic: "t"}}})
	if err != nil || !found[0].OK {
		return -1, err
	}
	return found[0].Offset, nil
}

func (r *rig) requireCommitted(id string, offset int64) {
	r.t.Helper()
	got, err := r.committed(id)
	require.NoError(r.t, err)
	require.Equal(r.t, offset, got)
}

// pass lets the clock of a bubble run.
func pass(d time.Duration) { <-time.After(d) }
