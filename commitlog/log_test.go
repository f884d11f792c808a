package commitlog

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lacunamq/lacuna/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testOptions is a log in memory at a fixed time.
func testOptions(fs vfs.FS) Options {
	c := DefaultConfig()
	c.SegmentBytes = 1 << 20
	return Options{FS: fs, Dir: "data/orders-0", Name: "orders-0", Fsync: true, Config: c,
		Now: func() time.Time { return time.UnixMilli(1_000_000) }}
}

func openTest(t *testing.T, o Options) *Log {
	t.Helper()
	makeParent(t, o)
	l, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// makeParent makes the directory that holds the log's, durably.
func makeParent(t testing.TB, o Options) {
	t.Helper()
	parent := o.FS.PathDir(o.Dir)
	require.NoError(t, o.FS.MkdirAll(parent, 0o755))
	f, err := o.FS.OpenDir(o.FS.PathDir(parent))
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}

// plainBatch is a batch of n records with keys k0, k1, ... at the given time.
func plainBatch(t testing.TB, n int, value string, ms int64) []byte {
	t.Helper()
	var b protocol.BatchBuilder
	b.Reset(protocol.PlainBatch(0))
	for i := range n {
		b.Append(fmt.Appendf(nil, "k%d", i), []byte(value), nil, ms)
	}
	batch, err := b.Build(nil)
	require.NoError(t, err)
	return batch
}

// idempotentBatch is a batch of n records of an idempotent producer.
func idempotentBatch(t testing.TB, id int64, epoch int16, sequence int32, n int) []byte {
	t.Helper()
	var b protocol.BatchBuilder
	b.Reset(protocol.BatchOptions{ProducerID: id, ProducerEpoch: epoch, BaseSequence: sequence})
	for i := range n {
		b.Append(fmt.Appendf(nil, "k%d", i), []byte("value"), nil, 1000)
	}
	batch, err := b.Build(nil)
	require.NoError(t, err)
	return batch
}

// mustAppend appends and waits until the batch is durable.
func mustAppend(t testing.TB, l *Log, batch []byte) Appended {
	t.Helper()
	a, err := l.Append(batch, AppendOptions{})
	require.NoError(t, err)
	if a.Flush != nil {
		<-a.Flush.Done()
		require.NoError(t, a.Flush.Err())
	}
	return a
}

func readAll(t testing.TB, l *Log) []byte {
	t.Helper()
	b := l.Bounds()
	var all []byte
	for next := b.Start; next < b.HighWatermark; {
		r, err := l.Read(all, next, ReadOptions{MaxBytes: 1 << 20, UpTo: b.HighWatermark, MinOne: true})
		require.NoError(t, err)
		require.Greater(t, r.Next, next)
		all, next = r.Data, r.Next
	}
	return all
}

func TestAppendAndReadBack(t *testing.T) {
	fs := vfs.NewCrashableMem()
	l := openTest(t, testOptions(fs))
	var want []byte
	for i := range 20 {
		batch := plainBatch(t, 3, fmt.Sprint("value ", i), 1000)
		a := mustAppend(t, l, batch)
		require.Equal(t, int64(3*i), a.Base)
		require.Equal(t, int64(3*i+2), a.Last)
		want = append(want, batch...)
	}
	require.Equal(t, Bounds{LSO: 60, HighWatermark: 60, End: 60}, l.Bounds())
	require.Equal(t, want, readAll(t, l))

	require.NoError(t, l.Flush(context.Background()))
	require.NoError(t, l.Close())
	l = openTest(t, testOptions(fs))
	require.Equal(t, Recovery{End: 60}, l.Recovery())
	require.Equal(t, want, readAll(t, l))
	a := mustAppend(t, l, plainBatch(t, 1, "more", 1000))
	require.Equal(t, int64(60), a.Base)
}

func TestUncleanStop(t *testing.T) {
	fs := vfs.NewCrashableMem()
	l := openTest(t, testOptions(fs))
	var want []byte
	for i := range 20 {
		batch := plainBatch(t, 3, fmt.Sprint("value ", i), 1000)
		mustAppend(t, l, batch)
		want = append(want, batch...)
	}
	o := testOptions(fs.CrashClone(vfs.CrashCloneCfg{}))
	o.Unclean = true
	l2 := openTest(t, o)
	require.Equal(t, want, readAll(t, l2))
	require.Equal(t, int32(1), l2.Bounds().LeaderEpoch)
	found, end := l2.EndOfEpoch(0)
	require.Equal(t, int32(0), found)
	require.Equal(t, int64(60), end)
	require.Equal(t, int64(60), mustAppend(t, l2, plainBatch(t, 1, "more", 1000)).Base)
}
