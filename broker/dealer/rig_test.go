package dealer

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/journal"
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

// rig is a Dealer over real ledgers and logs in memory, and groups that are pretended. It
// is what the ledgers see of a broker.
type rig struct {
	t        testing.TB
	fs       *vfs.MemFS
	db       *statestore.DB
	mu       sync.Mutex
	logs     map[string]*commitlog.Log
	gone     map[extension.TopicPartition]bool
	config   commitlog.Config
	settings atomic.Pointer[Settings]
	ledgers  *ledgers.Coordinator
	groups   *groups
	d        *Dealer
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, fs: vfs.NewCrashableMem(), gone: make(map[extension.TopicPartition]bool), config: commitlog.DefaultConfig()}
	r.groups = newGroups(t)
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
	r.logs = make(map[string]*commitlog.Log)
	r.db, err = statestore.Open(r.fs, "views", statestore.Options{})
	require.NoError(r.t, err)
	names, err := r.fs.List("")
	require.NoError(r.t, err)
	for _, name := range names {
		if name != "views" {
			_, err := r.open(name)
			require.NoError(r.t, err)
		}
	}
	r.ledgers, err = ledgers.Open(ctx, ledgers.Options{
		Log: r, Journal: r, Committed: noCommitted{}, Members: anyMember{}, Owner: r,
		MaxMemoryBytes: func() int64 { return 1 << 30 },
		Decode:         commitlog.NewDecodeLimiter(1, 0).Records,
		PartitionFor:   func(string, int32) int32 { return 0 },
	}, true)
	require.NoError(r.t, err)
	r.d = Open(Options{
		Ledgers: r.ledgers, Groups: r.groups,
		Log: func(tp extension.TopicPartition) (Log, error) {
			log, err := r.data(tp)
			if err != nil {
				return nil, err
			}
			return log, nil
		},
		Settings: func(string) Settings { return *r.settings.Load() },
		Decode:   commitlog.NewDecodeLimiter(2, 1<<20),
	})
	r.groups.watch(r.d)
}

func (r *rig) stop() {
	r.groups.watch(nil)
	r.d.Close()
	require.NoError(r.t, r.ledgers.Close(ctx))
	for _, l := range r.logs {
		require.NoError(r.t, l.Close())
	}
	require.NoError(r.t, r.db.Close())
}

// crash starts over what is left after kill -9 and a power cut. The members are gone.
func (r *rig) crash() {
	r.t.Helper()
	left := r.fs.CrashClone(vfs.CrashCloneCfg{})
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

func (r *rig) open(dir string) (*commitlog.Log, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if log := r.logs[dir]; log != nil {
		return log, nil
	}
	config := r.config
	if strings.HasPrefix(dir, "individual") {
		config.Delete, config.Compact = false, true
	}
	log, err := commitlog.Open(commitlog.Options{FS: r.fs, Dir: dir, Name: dir, Fsync: true, Config: config})
	if err == nil {
		r.logs[dir] = log
	}
	return log, err
}

func (r *rig) data(tp extension.TopicPartition) (*commitlog.Log, error) {
	r.mu.Lock()
	gone := r.gone[tp]
	r.mu.Unlock()
	if gone {
		return nil, extension.ErrUnknownPartition
	}
	return r.open(fmt.Sprintf("data-%d-%d", tp.Topic[0], tp.Partition))
}

// log is the log of tp.
func (r *rig) log() *commitlog.Log {
	log, err := r.data(tp)
	require.NoError(r.t, err)
	return log
}

// Bounds is part of extension.Log.
func (r *rig) Bounds(tp extension.TopicPartition) (extension.Bounds, error) {
	log, err := r.data(tp)
	if err != nil {
		return extension.Bounds{}, err
	}
	b := log.Bounds()
	return extension.Bounds{Start: b.Start, HighWatermark: b.HighWatermark, LSO: b.LSO}, nil
}

// Read is part of extension.Log.
func (r *rig) Read(tp extension.TopicPartition, dst []byte, from int64) ([]byte, error) {
	log, err := r.data(tp)
	if err != nil {
		return dst, err
	}
	read, err := log.Read(dst, from, commitlog.ReadOptions{MaxBytes: 1, UpTo: log.Bounds().HighWatermark, MinOne: true})
	return read.Data, err
}

// LeaderEpoch is part of extension.Log.
func (r *rig) LeaderEpoch(extension.TopicPartition, int64) int32 { return -1 }

// Partitions is part of extension.Journal.
func (r *rig) Partitions() int32 { return 1 }

// Written is part of extension.Journal.
func (r *rig) Written(int32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.logs["individual-0"] != nil
}

// Recover is part of extension.Journal.
func (r *rig) Recover(ctx context.Context, _, _ int32, state journal.State) (extension.JournalPartition, error) {
	const dir = "individual-0"
	log, err := r.open(dir)
	if err != nil {
		return nil, err
	}
	view := r.db.View(dir)
	_, err = journal.Recover(ctx, view, dir, log, state)
	return &rigJournal{journal.Open(log, dir), journal.NewCheckpointer(view, dir, log), log}, err
}

// Epoch is part of extension.Owner.
func (r *rig) Epoch(int32) (int32, bool) { return 0, true }

type rigJournal struct {
	*journal.Journal
	*journal.Checkpointer
	log *commitlog.Log
}

func (j *rigJournal) Stage(state journal.State) error {
	return j.Checkpointer.Stage(state, j.log.Bounds().End)
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
