package commitlog

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/protocol"
)

// gateFS lets a test hold the fsyncs of segments, and counts them.
type gateFS struct {
	vfs.FS
	gate    chan struct{} // each fsync takes one; nil: none waits
	syncs   atomic.Int64
	running atomic.Int64
	most    atomic.Int64
}

type gateFile struct {
	vfs.File
	fs *gateFS
}

func (g *gateFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := g.FS.OpenReadWrite(name, c, opts...)
	if err != nil {
		return nil, err
	}
	return &gateFile{File: f, fs: g}, nil
}

func (f *gateFile) SyncData() error {
	n := f.fs.running.Add(1)
	defer f.fs.running.Add(-1)
	f.fs.most.Store(max(n, f.fs.most.Load()))
	f.fs.syncs.Add(1)
	if f.fs.gate != nil {
		<-f.fs.gate
	}
	return f.File.SyncData()
}

// openGated opens a log in the bubble of a synctest.
func openGated(t *testing.T, g *gateFS, change func(o *Options)) *Log {
	o := testOptions(g)
	o.Now = nil
	if change != nil {
		change(&o)
	}
	return openTest(t, o)
}

func isDone(f *Flush) bool {
	select {
	case <-f.Done():
		return true
	default:
		return false
	}
}

// TestAppendsShareTheNextFsync: while one fsync runs, all appends join the one after it.
func TestAppendsShareTheNextFsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateFS{FS: vfs.NewMem(), gate: make(chan struct{})}
		l := openGated(t, g, nil)
		first, err := l.Append(plainBatch(t, 1, "a", 1), AppendOptions{})
		require.NoError(t, err)
		synctest.Wait() // its fsync has begun
		var later []*Flush
		for range 5 {
			a, err := l.Append(plainBatch(t, 1, "b", 1), AppendOptions{})
			require.NoError(t, err)
			later = append(later, a.Flush)
		}
		synctest.Wait()
		require.Equal(t, Bounds{End: 6}, l.Bounds(), "nothing is visible before it is durable")
		g.gate <- struct{}{}
		synctest.Wait()
		require.True(t, isDone(first.Flush))
		require.Equal(t, int64(1), l.Bounds().HighWatermark)
		for _, f := range later {
			require.Same(t, later[0], f)
			require.False(t, isDone(f))
		}
		g.gate <- struct{}{}
		synctest.Wait()
		require.True(t, isDone(later[0]))
		require.NoError(t, later[0].Err())
		require.Equal(t, int64(6), l.Bounds().HighWatermark)
		require.Equal(t, int64(2), g.syncs.Load())
		close(g.gate)
		require.NoError(t, l.Close())
	})
}

// TestNobodyWaits: an append that nobody waits for is fsynced within FlushInterval, with
// others, and not before.
func TestNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateFS{FS: vfs.NewMem()}
		l := openGated(t, g, func(o *Options) { o.FlushInterval = 7 * time.Millisecond })
		for range 3 {
			a, err := l.Append(plainBatch(t, 1, "a", 1), AppendOptions{NoWait: true})
			require.NoError(t, err)
			require.Nil(t, a.Flush)
			time.Sleep(2 * time.Millisecond)
		}
		synctest.Wait()
		require.Zero(t, l.Bounds().HighWatermark)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Equal(t, int64(3), l.Bounds().HighWatermark)
		require.Equal(t, int64(1), g.syncs.Load())
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, int64(1), g.syncs.Load(), "an idle log does nothing")
		require.NoError(t, l.Close())
	})
}

// TestSomebodyWaitsAfterAll: the fsync that somebody waits for is that of the appends before
// it, too, and leaves no timer behind that would have the next one come early.
func TestSomebodyWaitsAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateFS{FS: vfs.NewMem()}
		l := openGated(t, g, func(o *Options) { o.FlushInterval = 7 * time.Millisecond })
		noWait := func() {
			_, err := l.Append(plainBatch(t, 1, "a", 1), AppendOptions{NoWait: true})
			require.NoError(t, err)
		}
		noWait()
		time.Sleep(2 * time.Millisecond)
		a, err := l.Append(plainBatch(t, 1, "a", 1), AppendOptions{})
		require.NoError(t, err)
		<-a.Flush.Done()
		require.Equal(t, int64(2), l.Bounds().HighWatermark)
		noWait()
		time.Sleep(6 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, int64(2), l.Bounds().HighWatermark)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Equal(t, int64(3), l.Bounds().HighWatermark)
		require.Equal(t, int64(2), g.syncs.Load())
		require.NoError(t, l.Close())
	})
}

func TestTopicFlushesItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateFS{FS: vfs.NewMem()}
		l := openGated(t, g, func(o *Options) { o.Config.FlushMs, o.Config.FlushMessages = 1000, 5 })
		a, err := l.Append(plainBatch(t, 4, "a", 1), AppendOptions{})
		require.NoError(t, err)
		require.Nil(t, a.Flush, "answered after the write")
		require.Equal(t, int64(4), l.Bounds().HighWatermark, "visible when written")
		synctest.Wait()
		require.Zero(t, g.syncs.Load())
		mustAppend(t, l, plainBatch(t, 1, "a", 1)) // the fifth message
		synctest.Wait()
		require.Equal(t, int64(1), g.syncs.Load())
		mustAppend(t, l, plainBatch(t, 1, "a", 1))
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, int64(1), g.syncs.Load())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Equal(t, int64(2), g.syncs.Load())
		require.NoError(t, l.Close())
	})
}

func TestFsyncOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateFS{FS: vfs.NewMem()}
		l := openGated(t, g, func(o *Options) { o.Fsync = false })
		for range 10 {
			require.Nil(t, mustAppend(t, l, plainBatch(t, 1, "a", 1)).Flush)
		}
		require.Equal(t, int64(10), l.Bounds().HighWatermark)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Zero(t, g.syncs.Load())
		require.NoError(t, l.Seal())
		synctest.Wait()
		require.Equal(t, int64(1), g.syncs.Load(), "a sealed segment is made durable in the background")
		mustAppend(t, l, plainBatch(t, 1, "a", 1))
		require.NoError(t, l.Flush(context.Background()))
		require.Equal(t, int64(2), g.syncs.Load(), "and whatever Flush is asked for")
		require.NoError(t, l.Close())
	})
}

// TestDuplicateWaitsForTheFirst: a batch sent again is answered no earlier than its
// first copy is durable.
func TestDuplicateWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateFS{FS: vfs.NewMem(), gate: make(chan struct{})}
		l := openGated(t, g, nil)
		batch := func() []byte { return idempotentBatch(t, 1, 0, 0, 1) }
		first, err := l.Append(batch(), AppendOptions{})
		require.NoError(t, err)
		synctest.Wait()
		again, err := l.Append(batch(), AppendOptions{})
		require.NoError(t, err)
		require.True(t, again.Duplicate)
		require.Same(t, first.Flush, again.Flush)
		g.gate <- struct{}{}
		synctest.Wait()
		again, err = l.Append(batch(), AppendOptions{})
		require.NoError(t, err)
		require.Nil(t, again.Flush, "it is durable")
		close(g.gate)
		require.NoError(t, l.Close())
	})
}

// TestStableOffsetWaitsForTheMarker: a transaction is over for readers when its marker
// is durable.
func TestStableOffsetWaitsForTheMarker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateFS{FS: vfs.NewMem()}
		l := openGated(t, g, nil)
		c := &cleanTest{t: t, l: l, nowMs: time.Now().UnixMilli()}
		c.putAs(c.txn(1, 0, 0), "a=1")
		synctest.Wait()
		g.gate = make(chan struct{})
		var b protocol.BatchBuilder
		batch, err := b.AppendEndTxnMarker(nil, protocol.EndTxnMarker{ProducerID: 1, Commit: true}, c.nowMs)
		require.NoError(t, err)
		a, err := l.Append(batch, AppendOptions{Internal: true})
		require.NoError(t, err)
		require.Equal(t, Bounds{HighWatermark: 1, End: 2}, l.Bounds())
		close(g.gate)
		<-a.Flush.Done()
		require.Equal(t, Bounds{LSO: 2, HighWatermark: 2, End: 2}, l.Bounds())
		require.NoError(t, l.Close())
	})
}

func TestFlushIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateFS{FS: vfs.NewMem(), gate: make(chan struct{})}
		l := openGated(t, g, nil)
		_, err := l.Append(plainBatch(t, 1, "a", 1), AppendOptions{NoWait: true})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, l.Flush(ctx), context.DeadlineExceeded)
		close(g.gate)
		require.NoError(t, l.Flush(t.Context()))
		require.NoError(t, l.Close())
		require.ErrorIs(t, l.Flush(t.Context()), ErrClosed)
	})
}

// TestSyncLimiter: logs that share a limiter run no more fsyncs at once than it allows.
func TestSyncLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateFS{FS: vfs.NewMem()}
		limiter := NewSyncLimiter(2)
		var flushes []*Flush
		var logs []*Log
		for i := range 5 {
			l := openGated(t, g, func(o *Options) { o.Syncs, o.Dir = limiter, o.Dir+string(rune('a'+i)) })
			mustAppend(t, l, plainBatch(t, 1, "a", 1))
			logs = append(logs, l)
		}
		synctest.Wait()
		g.gate = make(chan struct{})
		g.most.Store(0)
		for _, l := range logs {
			a, err := l.Append(plainBatch(t, 1, "a", 1), AppendOptions{})
			require.NoError(t, err)
			flushes = append(flushes, a.Flush)
		}
		synctest.Wait()
		require.Equal(t, int64(2), g.running.Load())
		close(g.gate)
		for _, f := range flushes {
			<-f.Done()
		}
		require.Equal(t, int64(2), g.most.Load())
		for _, l := range logs {
			require.NoError(t, l.Close())
		}
	})
}

// TestFailedWriteEndsWriting: what was written before becomes durable, nothing else is
// written, and the stop is not a clean one.
func TestFailedWriteEndsWriting(t *testing.T) {
	c := &faultCounter{n: 1 << 40}
	l := openTest(t, testOptions(&lateFaults{FS: vfs.NewMem(), fault: c.fault}))
	mustAppend(t, l, plainBatch(t, 1, "a", 1))
	before, err := l.Append(plainBatch(t, 1, "b", 1), AppendOptions{NoWait: true})
	require.NoError(t, err)
	require.Nil(t, before.Flush)
	c.n = c.count.Load()
	_, err = l.Append(plainBatch(t, 1, "c", 1), AppendOptions{})
	require.ErrorIs(t, err, ErrReadOnly)
	require.ErrorIs(t, err, errorfs.ErrInjected)
	require.ErrorIs(t, l.Err(), ErrReadOnly)
	_, err = l.DeleteRecords(1)
	require.ErrorIs(t, err, ErrReadOnly)
	_, err = l.Clean(time.UnixMilli(1))
	require.ErrorIs(t, err, ErrReadOnly)
	require.ErrorIs(t, l.ApplyRetention(time.UnixMilli(1)), ErrReadOnly)
	require.ErrorIs(t, l.Close(), ErrReadOnly)
	require.Equal(t, int64(2), l.Bounds().HighWatermark)
}

// TestFailedSyncIsNeverRetried: it ends the log's writing, and everybody who waits is
// told.
func TestFailedSyncIsNeverRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("the disk is gone")
		var fail atomic.Bool
		fs := &syncFaults{FS: vfs.NewMem(), fault: func() error {
			if fail.Swap(false) {
				return cause
			}
			return nil
		}}
		o := testOptions(fs)
		l := openTest(t, o)
		mustAppend(t, l, plainBatch(t, 1, "a", 1))
		ch := make(chan struct{}, 1)
		defer l.Watch(ch)()
		fail.Store(true)
		a, err := l.Append(plainBatch(t, 1, "b", 1), AppendOptions{})
		require.NoError(t, err)
		<-a.Flush.Done()
		require.ErrorIs(t, a.Flush.Err(), ErrReadOnly)
		require.ErrorIs(t, a.Flush.Err(), cause)
		<-ch
		_, err = l.Append(plainBatch(t, 1, "c", 1), AppendOptions{})
		require.ErrorIs(t, err, ErrReadOnly)
		require.ErrorIs(t, l.Flush(t.Context()), ErrReadOnly)
		require.Equal(t, int64(1), l.Bounds().HighWatermark)
		require.NotEmpty(t, readAll(t, l), "what was durable is served")
		require.ErrorIs(t, l.Close(), ErrReadOnly, "the stop is not a clean one")
		require.ErrorIs(t, l.Close(), ErrReadOnly, "however often it is tried")
	})
}
