package dealer

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/extension/extensiontest"
	"github.com/lacunamq/lacuna/broker/filter"
	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/ledgers"
	"github.com/lacunamq/lacuna/broker/share"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/statestore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// tp is the partition that most tests are about, of the topic `t`.
var tp = extension.TopicPartition{Topic: [16]byte{1}, Partition: 0}

// lockMs is how long records are locked for where a test does not say.
const lockMs = 30_000

// patience is a maximum wait that no test sits out: a missed wake-up hangs.
const patience = time.Hour

// rig is a Dealer over real ledgers and logs in memory, and groups that are pretended.
type rig struct {
	extensiontest.Host
	t        testing.TB
	fs       *vfs.MemFS
	config   commitlog.Config
	slow     atomic.Bool  // what is appended takes a while to become durable
	memory   atomic.Int64 // for the ledgers
	letters  DeadLetters
	settings atomic.Pointer[Settings]
	ledgers  *ledgers.Coordinator
	groups   *groups
	filters  *filter.Reader
	d        *Dealer
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, fs: vfs.NewCrashableMem(), config: commitlog.DefaultConfig()}
	r.Options, r.Journals, r.Gone = r.options, 1, make(map[extension.TopicPartition]error)
	r.groups = newGroups(t)
	r.memory.Store(1 << 30)
	r.settings.Store(&Settings{
		Limits: cooperative.Limits{LockMs: lockMs, Deliveries: 5, Acquired: 100_000, BackoffMaxMs: 60_000, WaitingMaxBytes: 1 << 20},
		Renew:  true,
		Origin: func(Log) (int64, error) { return 0, nil },
	})
	r.start()
	t.Cleanup(r.stop)
	return r
}

func (r *rig) start() {
	var err error
	r.Logs = make(map[string]*commitlog.Log)
	r.DB, err = statestore.Open(r.fs, "views", statestore.Options{})
	require.NoError(r.t, err)
	names, err := r.fs.List("")
	require.NoError(r.t, err)
	for _, name := range names {
		if name != "views" {
			_, err := r.Open(name)
			require.NoError(r.t, err)
		}
	}
	r.ledgers, err = ledgers.Open(ctx, ledgers.Options{
		Log: r, Journal: r, Committed: noCommitted{}, Members: anyMember{}, Owner: r,
		MaxMemoryBytes: r.memory.Load,
		Decode:         commitlog.NewDecodeLimiter(1, 0).Records,
		PartitionFor:   func(string, int32) int32 { return 0 },
	}, true)
	require.NoError(r.t, err)
	r.filters = filter.New(filter.Config{DecodedCacheBytes: 1, Decoding: commitlog.NewDecodeLimiter(2, 1<<20)})
	r.d = Open(Options{
		Ledgers: r.ledgers, Groups: r.groups, Partitions: r.groups.partitions,
		Log: func(tp extension.TopicPartition) (Log, error) {
			log, err := r.Data(tp)
			if err != nil {
				return nil, err
			}
			return log, nil
		},
		Settings:    func(string) Settings { return *r.settings.Load() },
		DeadLetters: r.letters,
		Decode:      commitlog.NewDecodeLimiter(2, 1<<20),
		Filters:     r.filters,
	})
	r.groups.watch(r.d)
}

func (r *rig) stop() {
	r.groups.watch(nil)
	r.d.Close()
	require.NoError(r.t, r.ledgers.Close(ctx))
	for _, l := range r.Logs {
		require.NoError(r.t, l.Close())
	}
	require.NoError(r.t, r.DB.Close())
}

// crash starts over what is left after kill -9 and a power cut. The members are gone.
func (r *rig) crash() {
	r.t.Helper()
	r.crashTo(r.fs.CrashClone(vfs.CrashCloneCfg{}))
}

// crashTo is crash for what a crash left of the disk before.
func (r *rig) crashTo(left *vfs.MemFS) {
	r.t.Helper()
	r.stop()
	r.fs, r.groups = left, newGroups(r.t)
	r.start()
}

// change changes the settings of all groups.
func (r *rig) change(f func(*Settings)) {
	s := *r.settings.Load()
	f(&s)
	r.settings.Store(&s)
	r.d.SettingsChanged()
}

func (r *rig) options(dir string) commitlog.Options {
	config := r.config
	if dir == extensiontest.JournalDir(0) {
		config.Delete, config.Compact = false, true
	}
	return commitlog.Options{FS: errorfs.Wrap(r.fs, errorfs.InjectorFunc(r.delay)), Fsync: true, Config: config}
}

func (r *rig) delay(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		if r.slow.Load() {
			<-time.After(50 * time.Millisecond)
		}
	}
	return nil
}

// log is the log of tp.
func (r *rig) log() *commitlog.Log {
	log, err := r.Data(tp)
	require.NoError(r.t, err)
	return log
}

// noCommitted is a primary topic without offsets, which forgets what is written.
type noCommitted struct{}

func (noCommitted) Get(_ context.Context, _ string, partitions []extension.TopicPartition) (got []extension.CommittedOffset, err error) {
	for _, tp := range partitions {
		got = append(got, extension.CommittedOffset{TopicPartition: tp, Offset: -1, LeaderEpoch: -1})
	}
	return got, nil
}

func (noCommitted) Put(context.Context, string, []extension.CommittedOffset) error { return nil }

// anyMember lets anybody commit.
type anyMember struct{}

func (anyMember) Check(_ context.Context, _ *extension.Member, then func()) error {
	then()
	return nil
}

func (anyMember) Empty(context.Context, string) (bool, error) { return true, nil }

// groups is one share group, `g`, which subscribes to the topic `t`.
type groups struct {
	t        testing.TB
	mu       sync.Mutex
	group    *share.Group
	topic    share.Topic
	settings share.Settings
	told     *share.View
	watcher  *Dealer
	asked    func() // called when the view is given away
	asks     int    // ... for the last of so many times
}

func newGroups(t testing.TB) *groups {
	g := &groups{t: t, group: share.New("g"), topic: share.Topic{ID: tp.Topic, Partitions: 2}}
	g.settings = share.Settings{SessionTimeout: time.Minute, HeartbeatInterval: time.Second, MaxSize: 200, KeyRangeInitial: 4}
	return g
}

func (g *groups) env() *share.Env {
	return &share.Env{Now: time.UnixMilli(1000), Cluster: g, Emit: func(c share.Change) { g.group.Apply(&c) }}
}

// Topic is part of share.Cluster.
func (g *groups) Topic(name string) (share.Topic, bool) { return g.topic, name == "t" }

// Settings is part of share.Cluster.
func (g *groups) Settings(string) share.Settings { return g.settings }

// partitions is how many the topic has.
func (g *groups) partitions([16]byte) int32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.topic.Partitions
}

// Share is part of Groups.
func (g *groups) Share(context.Context, string) (*share.View, error) {
	g.mu.Lock()
	view, asked := g.told, g.asked
	if g.asks > 0 {
		if g.asks--; g.asks > 0 {
			asked = nil
		}
	} else {
		asked = nil
	}
	g.mu.Unlock()
	if asked != nil {
		asked()
	}
	return view, nil
}

// hold has f called when the view is asked for by who opens a partition, before it gets it
// and after it was taken.
func (g *groups) hold(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked, g.asks = f, 2 // the fetch asks first
}

func (g *groups) watch(d *Dealer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watcher = d
}

// update changes the group, and tells of it unless it is to be kept back; then the change
// is returned.
func (g *groups) update(tell bool, f func(env *share.Env) (gone []string)) group.ShareChange {
	g.mu.Lock()
	defer g.mu.Unlock()
	gone := f(g.env())
	g.group.Refresh(g.env())
	g.told = g.group.View()
	c := group.ShareChange{Group: "g", Gone: gone, View: g.told}
	if tell && g.watcher != nil {
		g.watcher.ShareChanged(c)
	}
	return c
}

func (g *groups) joinQuietly(members ...string) group.ShareChange {
	return g.update(false, func(env *share.Env) []string { return g.heartbeat(env, members) })
}

func (g *groups) join(members ...string) {
	g.update(true, func(env *share.Env) []string { return g.heartbeat(env, members) })
}

func (g *groups) heartbeat(env *share.Env, members []string) []string {
	for _, m := range members {
		_, err := g.group.Heartbeat(env, &share.Heartbeat{Group: "g", MemberID: m, Topics: []string{"t"}})
		require.NoError(g.t, err)
	}
	return nil
}

func (g *groups) leave(members ...string) {
	g.update(true, func(env *share.Env) []string {
		for _, m := range members {
			g.group.Remove(env, m)
		}
		return members
	})
}

func (g *groups) mode(m share.Mode) {
	g.update(true, func(*share.Env) []string {
		g.settings.Mode = m
		return nil
	})
}

// What tests do.

// produce appends one batch with records of these keys, "" for none.
func (r *rig) produce(keys ...string) {
	r.t.Helper()
	r.produceAs(protocol.PlainBatch(0), keys...)
}

func (r *rig) produceAs(o protocol.BatchOptions, keys ...string) {
	r.t.Helper()
	var b protocol.BatchBuilder
	b.Reset(o)
	for _, key := range keys {
		k := []byte(key)
		if key == "" {
			k = nil
		}
		b.Append(k, []byte("value"), nil, 1)
	}
	batch, err := b.Build(nil)
	require.NoError(r.t, err)
	r.append(batch)
}

func (r *rig) append(batch []byte) {
	r.t.Helper()
	r.appendBatch(r.log(), batch)
}

// appendTo appends n records without keys to a log.
func (r *rig) appendTo(log *commitlog.Log, n int) {
	r.t.Helper()
	var b protocol.BatchBuilder
	b.Reset(protocol.PlainBatch(0))
	for range n {
		b.Append(nil, []byte("value"), nil, 1)
	}
	batch, err := b.Build(nil)
	require.NoError(r.t, err)
	r.appendBatch(log, batch)
}

func (r *rig) appendBatch(log *commitlog.Log, batch []byte) {
	r.t.Helper()
	appended, err := log.Append(batch, commitlog.AppendOptions{Internal: true})
	require.NoError(r.t, err)
	if appended.Flush != nil {
		<-appended.Flush.Done()
		require.NoError(r.t, appended.Flush.Err())
	}
}

// produceN appends n records without keys in one batch.
func (r *rig) produceN(n int) { r.t.Helper(); r.produce(make([]string, n)...) }
