package ledgers

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/extension/extensiontest"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/statestore"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// rig is a coordinator over real logs and views in memory, and a primary topic and
// members that are pretended.
type rig struct {
	extensiontest.Host
	t       testing.TB
	fs      *vfs.MemFS
	gate    *gate
	fsync   bool
	unclean bool
	limit   int64

	segmentBytes int64 // of all logs; 0: the default

	primary *primary
	members *members
	logged  *observer.ObservedLogs
	c       *Coordinator
}

const rigPartitions = 2

func newRig(t testing.TB) *rig { return newRigOn(t, vfs.NewCrashableMem()) }

func newRigOn(t testing.TB, fs *vfs.MemFS) *rig {
	r := &rig{
		t: t, fs: fs, gate: &gate{}, fsync: true, limit: 1 << 30,
		primary: &primary{offsets: map[string]map[extension.TopicPartition]extension.CommittedOffset{}},
		members: &members{},
	}
	r.Options, r.Journals, r.Gone = r.options, rigPartitions, make(map[extension.TopicPartition]error)
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

// start opens all over what the file system holds.
func (r *rig) start() { require.NoError(r.t, r.tryStart()) }

func (r *rig) tryStart() (err error) {
	r.Logs = map[string]*commitlog.Log{}
	r.DB, err = statestore.Open(r.fs, "views", statestore.Options{})
	require.NoError(r.t, err)
	// Logs that have files are opened at the start, as the broker does.
	names, err := r.fs.List("")
	require.NoError(r.t, err)
	for _, name := range names {
		if name != "views" {
			_, err := r.Open(name)
			require.NoError(r.t, err)
		}
	}
	core, logged := observer.New(zapcore.WarnLevel)
	r.logged = logged
	r.c, err = Open(ctx, Options{
		Log: r, Journal: r, Committed: r.primary, Members: r.members, Owner: r,
		MaxMemoryBytes: func() int64 { return r.limit },
		Decode:         commitlog.NewDecodeLimiter(1, 0).Records,
		PartitionFor: func(group string, n int32) int32 {
			h := fnv.New32a()
			_, _ = h.Write([]byte(group))
			return int32(h.Sum32() % uint32(n))
		},
		Logger: zap.New(core),
	}, r.unclean)
	return err
}

// stop ends all cleanly.
func (r *rig) stop() {
	if r.c != nil {
		require.NoError(r.t, r.c.Close(ctx))
	}
	r.closeFiles()
	r.c, r.unclean = nil, false
}

func (r *rig) closeFiles() {
	for _, l := range r.Logs {
		_ = l.Close()
	}
	if r.DB != nil {
		_ = r.DB.Close()
	}
	r.Logs, r.DB = nil, nil
}

func (r *rig) restart() {
	r.stop()
	r.start()
}

// startAfterCrash starts over what a power cut has left.
func (r *rig) startAfterCrash(left *vfs.MemFS) {
	r.c.stop()
	r.c.wg.Wait()
	r.closeFiles()
	r.fs, r.c, r.unclean = left, nil, true
	r.start()
}

func (r *rig) options(string) commitlog.Options {
	config := commitlog.DefaultConfig()
	config.Delete, config.Compact = false, true
	if r.segmentBytes > 0 {
		config.SegmentBytes = r.segmentBytes
	}
	return commitlog.Options{FS: errorfs.Wrap(r.fs, r.gate), Fsync: r.fsync, Config: config, Unclean: r.unclean}
}

// primary pretends to be the primary topic: what is put there is durable.
type primary struct {
	mu      sync.Mutex
	offsets map[string]map[extension.TopicPartition]extension.CommittedOffset
	puts    []extension.CommittedOffset // in order
	err     error
	hold    chan struct{} // the next Put waits for it, and closes begun before
	begun   chan struct{}
}

func (p *primary) Get(_ context.Context, group string, partitions []extension.TopicPartition) ([]extension.CommittedOffset, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var got []extension.CommittedOffset
	for _, tp := range partitions {
		o, ok := p.offsets[group][tp]
		if !ok {
			o = extension.CommittedOffset{TopicPartition: tp, Offset: -1, LeaderEpoch: -1}
		}
		got = append(got, o)
	}
	return got, nil
}

func (p *primary) Put(_ context.Context, group string, offsets []extension.CommittedOffset) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if hold := p.hold; hold != nil {
		p.hold = nil
		p.mu.Unlock()
		close(p.begun)
		<-hold
		p.mu.Lock()
	}
	if p.err != nil {
		return p.err
	}
	if p.offsets[group] == nil {
		p.offsets[group] = map[extension.TopicPartition]extension.CommittedOffset{}
	}
	for _, o := range offsets {
		p.offsets[group][o.TopicPartition] = o
	}
	p.puts = append(p.puts, offsets...)
	return nil
}

// at is what the primary topic has, -1 for nothing.
func (p *primary) at(group string, tp extension.TopicPartition) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o, ok := p.offsets[group][tp]; ok {
		return o.Offset
	}
	return -1
}

func (p *primary) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// members pretends to know the members of all groups.
type members struct {
	refuse error
}

func (m *members) Check(_ context.Context, member *extension.Member, then func()) error {
	if m.refuse != nil {
		return m.refuse
	}
	then()
	return nil
}

func (m *members) Empty(context.Context, string) (bool, error) { return m.refuse == nil, nil }

// gate decides about fsyncs and writes of logs.
type gate struct {
	mu    sync.Mutex
	shut  chan struct{} // fsyncs wait for it; nil: they don't
	path  string        // ... of files whose path has this
	waits chan struct{} // told when one waits
	write error         // of writes
	sync  error         // of fsyncs
	// before is called before each operation that changes files; nil: nothing is.
	before func()
}

func (g *gate) String() string { return "gate" }

func (g *gate) MaybeError(op errorfs.Op) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.before != nil && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
		g.before()
	}
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		if shut := g.shut; shut != nil && strings.Contains(op.Path, g.path) {
			select {
			case g.waits <- struct{}{}:
			default:
			}
			g.mu.Unlock()
			<-shut
			g.mu.Lock()
		}
		return g.sync
	case errorfs.OpFileWrite, errorfs.OpFileWriteAt:
		return g.write
	}
	return nil
}

// hold makes fsyncs of files whose path has that in it wait until release is called.
// waiting tells of one that does.
func (g *gate) hold(path string) (waiting <-chan struct{}, release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	shut := make(chan struct{})
	g.shut, g.path, g.waits = shut, path, make(chan struct{}, 1)
	return g.waits, func() {
		g.mu.Lock()
		g.shut = nil
		g.mu.Unlock()
		close(shut)
	}
}

func (g *gate) failSyncs(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sync = err
}

func (g *gate) failWrites(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.write = err
}

// What tests do.

func part(topic byte, partition int32) extension.TopicPartition {
	return extension.TopicPartition{Topic: [16]byte{topic}, Partition: partition}
}

// produce appends a batch of n records.
func (r *rig) produce(tp extension.TopicPartition, n int) {
	r.t.Helper()
	var b protocol.BatchBuilder
	b.Reset(protocol.PlainBatch(0))
	for i := range n {
		b.Append([]byte(fmt.Sprintf("key-%d", i)), []byte("value"), nil, 1)
	}
	r.append(tp, &b)
}

func (r *rig) append(tp extension.TopicPartition, b *protocol.BatchBuilder) {
	r.t.Helper()
	batch, err := b.Build(nil)
	require.NoError(r.t, err)
	r.appendBatch(tp, batch)
}

func (r *rig) appendBatch(tp extension.TopicPartition, batch []byte) {
	r.t.Helper()
	log, err := r.Open(extensiontest.DataDir(tp))
	require.NoError(r.t, err)
	appended, err := log.Append(batch, commitlog.AppendOptions{Internal: true})
	require.NoError(r.t, err)
	if appended.Flush != nil {
		<-appended.Flush.Done()
		require.NoError(r.t, appended.Flush.Err())
	}
}

// offsets are single offsets as runs.
func offsets(list ...int64) []individualcommit.Run {
	var set individualcommit.OffsetSet
	for _, x := range list {
		set.Add(individualcommit.Run{Start: x, End: x + 1})
	}
	return slices.Collect(set.Runs(0))
}

func commitOf(tp extension.TopicPartition, list ...int64) PartitionCommit {
	return PartitionCommit{
		TopicPartition: tp, Individual: true, Origin: protocol.NoOrigin,
		Request: individualcommit.Request{Offset: individualcommit.NoOffset, Commit: offsets(list...)},
	}
}

func reopenOf(tp extension.TopicPartition, list ...int64) PartitionCommit {
	p := commitOf(tp)
	p.Reopen = offsets(list...)
	return p
}

// plainOf is a commit without the extension.
func plainOf(tp extension.TopicPartition, offset int64, metadata string) PartitionCommit {
	p := commitOf(tp)
	p.Individual, p.Offset, p.Metadata = false, offset, &metadata
	return p
}

func (r *rig) commit(group string, parts ...PartitionCommit) []Result {
	return r.c.Begin(ctx, &extension.Member{Group: group, Generation: -1}, parts).Wait(ctx)
}

// mustCommit commits of one partition and checks the answer.
func (r *rig) mustCommit(group string, p PartitionCommit, stable, maxCommit int64) {
	r.t.Helper()
	require.Equal(r.t, []Result{{Stable: stable, MaxCommit: maxCommit}}, r.commit(group, p))
}

func (r *rig) refused(kind *kerr.Error, group string, p PartitionCommit) {
	r.t.Helper()
	require.ErrorIs(r.t, r.commit(group, p)[0].Err, kind)
}

func (r *rig) fetch(group string, tp extension.TopicPartition) View {
	r.t.Helper()
	views, err := r.c.Fetch(ctx, group, []extension.TopicPartition{tp}, &GapsQuery{})
	require.NoError(r.t, err)
	return views[0]
}

// requireLedger checks the committed offset and the gaps, as first-last pairs.
func (r *rig) requireLedger(group string, tp extension.TopicPartition, committed, maxCommit int64, gaps ...individualcommit.Run) {
	r.t.Helper()
	v := r.fetch(group, tp)
	require.True(r.t, v.Founded)
	require.Equal(r.t, committed, v.Offset)
	require.Equal(r.t, maxCommit, v.MaxCommit)
	require.Equal(r.t, gaps, v.Gaps)
}

func (r *rig) requireNoLedger(group string, tp extension.TopicPartition) {
	r.t.Helper()
	require.False(r.t, r.fetch(group, tp).Founded)
}

func run(start, end int64) individualcommit.Run { return individualcommit.Run{Start: start, End: end} }

// warnings are what was logged, sorted.
func (r *rig) warnings() []string {
	seen := map[string]bool{}
	for _, e := range r.logged.All() {
		seen[e.Message] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// pass lets the clock of a bubble run.
func pass(d time.Duration) { <-time.After(d) }
