package commitlog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/protocol"
)

// faultRun is a fixed history on a file system that fails. Operations may return
// errors; what was answered must survive.
type faultRun struct {
	t     *testing.T
	o     Options
	l     *Log
	nowMs int64
	truth truth
	// doubtful is what was refused because the disk failed. It may turn up after a restart.
	doubtful truth
	acked    int64 // everything below was answered
	failed   error // the last error of an operation
	pending  []Appended
}

func (r *faultRun) note(err error) {
	if err != nil {
		r.failed = err
	}
}

func (r *faultRun) open() bool {
	l, err := Open(r.o)
	r.note(err)
	if err == nil {
		r.l = l
	}
	return err == nil
}

func (r *faultRun) append(id int64, sequence int32) {
	var b protocol.BatchBuilder
	b.Reset(protocol.BatchOptions{ProducerID: id, ProducerEpoch: 0, BaseSequence: sequence})
	for i := range 2 {
		b.Append(fmt.Appendf(nil, "key-%d", i), fmt.Appendf(nil, "value %d of %d", sequence, id), nil, r.nowMs)
	}
	batch, err := b.Build(nil)
	require.NoError(r.t, err)
	a, err := r.l.Append(batch, AppendOptions{})
	r.note(err)
	if err != nil {
		if errors.Is(err, ErrReadOnly) {
			r.doubtful.add(batch) // it may have been written
		}
		return
	}
	r.truth.add(batch)
	r.pending = append(r.pending, a)
}

func (r *faultRun) wait() {
	for _, a := range r.pending {
		if a.Flush != nil {
			<-a.Flush.Done()
			if err := a.Flush.Err(); err != nil {
				require.ErrorIs(r.t, err, ErrReadOnly)
				r.note(err)
				continue
			}
		}
		r.acked = max(r.acked, a.Last+1)
	}
	r.pending = nil
}

// play runs the history; it stops early when the log cannot be opened again.
func (r *faultRun) play() {
	if !r.open() {
		return
	}
	next := [2]int32{}
	for i := range 24 {
		p := i % 2
		r.append(int64(p+1), next[p])
		next[p] += 2
		if i%3 == 2 {
			r.wait()
		}
		r.nowMs += 1000
		switch i {
		case 5:
			r.note(r.l.Seal())
		case 8:
			_, err := r.l.DeleteRecords(4)
			r.note(err)
		case 12, 20:
			_, err := r.l.Clean(time.UnixMilli(r.nowMs))
			r.note(err)
		case 15:
			r.note(r.l.ApplyRetention(time.UnixMilli(r.nowMs)))
		case 17:
			r.wait()
			r.o.Unclean = r.l.Close() != nil
			if !r.open() {
				return
			}
		case 22:
			r.note(r.l.Flush(context.Background()))
		}
	}
	r.wait()
}

func faultOptions(fs vfs.FS, r *faultRun) Options {
	o := testOptions(fs)
	o.Config.SegmentBytes = 500
	o.Config.IndexIntervalBytes = 100
	o.Config.Compact = true
	o.Config.MinCleanableRatio = 0
	o.checkpointBytes = 250
	o.Now = func() time.Time { return time.UnixMilli(r.nowMs) }
	return o
}

// faultCounter fails the n-th operation and, if forever, all later ones.
type faultCounter struct {
	n             int64
	forever       bool
	err           error // nil: errorfs.ErrInjected
	count, faults atomic.Int64
}

func (c *faultCounter) fault() error {
	if i := c.count.Add(1) - 1; i < c.n || i > c.n && !c.forever {
		return nil
	}
	c.faults.Add(1)
	if c.err != nil {
		return c.err
	}
	return errorfs.ErrInjected
}

// faultKinds are ways for a file system to fail.
var faultKinds = map[string]func(mem vfs.FS, c *faultCounter) vfs.FS{
	"write": func(mem vfs.FS, c *faultCounter) vfs.FS { return faultsOf(mem, c, errorfs.OpIsWrite) },
	"read":  func(mem vfs.FS, c *faultCounter) vfs.FS { return faultsOf(mem, c, errorfs.OpIsRead) },
	"late":  func(mem vfs.FS, c *faultCounter) vfs.FS { return &lateFaults{FS: mem, fault: c.fault} },
}

func faultsOf(mem vfs.FS, c *faultCounter, kind errorfs.OpReadWrite) vfs.FS {
	return errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != kind {
			return nil
		}
		return c.fault()
	}))
}

// TestFaultAtEveryOperation fails the n-th operation for all n, until a run meets no
// fault.
func TestFaultAtEveryOperation(t *testing.T) {
	for name, kind := range faultKinds {
		for _, forever := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/forever=%v", name, forever), func(t *testing.T) {
				n := int64(0)
				defer func() {
					if t.Failed() {
						t.Log("fault at operation", n)
					}
				}()
				for ; ; n += 1 + raceSlowdown/3 { // every one without the race detector
					c := &faultCounter{n: n, forever: forever}
					mem := vfs.NewCrashableMem()
					playWithFaults(t, mem, kind(mem, c), name != "read")
					if c.faults.Load() == 0 {
						require.Greater(t, n, int64(50), "the history does something")
						return
					}
				}
			})
		}
	}
}

// playWithFaults plays the history on fs, over mem, and checks what remains.
func playWithFaults(t *testing.T, mem *vfs.MemFS, fs vfs.FS, readable bool) {
	r := &faultRun{t: t, nowMs: 1_000_000}
	r.o = faultOptions(fs, r)
	makeParent(t, Options{FS: mem, Dir: r.o.Dir})
	r.play()
	if readable {
		r.verifyServes()
	}
	for _, percent := range []int{0, 100} {
		rng := rand.New(rand.NewPCG(1, 1))
		r.verifySurvives(mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}))
	}
	if r.l != nil {
		_ = r.l.Close()
	}
}

// verifyServes checks that the log, read-only or not, still serves what was answered.
func (r *faultRun) verifyServes() {
	if r.l == nil || errors.Is(r.l.Err(), ErrClosed) {
		return
	}
	require.GreaterOrEqual(r.t, r.l.Bounds().HighWatermark, r.acked)
	if err := r.l.Err(); err != nil {
		require.ErrorIs(r.t, err, ErrReadOnly)
		_, err := r.l.Append(plainBatch(r.t, 1, "x", 1), AppendOptions{})
		require.ErrorIs(r.t, err, ErrReadOnly)
	}
	r.compare(r.l, r.acked)
}

// verifySurvives opens what the disk holds and checks that it has what was answered.
func (r *faultRun) verifySurvives(fs vfs.FS) {
	o := r.o
	o.FS, o.Unclean = fs, true
	files := fmt.Sprint(fs)
	l, err := Open(o)
	require.NoError(r.t, err)
	defer func() {
		if r.t.Failed() {
			r.t.Logf("after the crash:\n%sanswered: %d\nrecovery: %+v\nbounds: %+v", files, r.acked, l.Recovery(), l.Bounds())
		}
	}()
	require.NoError(r.t, l.CheckInvariants())
	require.GreaterOrEqual(r.t, l.Bounds().HighWatermark, r.acked)
	r.compare(l, r.acked)
	mustAppend(r.t, l, plainBatch(r.t, 1, "goes on", 1))
	require.NoError(r.t, l.Close())
}

// compare checks that what the log holds is what was appended, and that it holds, of
// each key, the last answered record.
func (r *faultRun) compare(l *Log, acked int64) {
	all := map[int64]truthRecord{}
	last := map[string]int64{}
	for _, x := range r.truth.records() {
		all[x.rec.Offset] = x
		if x.rec.Offset < acked {
			last[string(x.rec.Key)] = x.rec.Offset
		}
	}
	got := map[string]int64{} // of each key
	stored := storedTruth(r.t, l)
	for _, x := range stored.records() {
		got[string(x.rec.Key)] = x.rec.Offset
		want, ok := all[x.rec.Offset]
		if !ok || !sameRecord(&want.rec, &x.rec) {
			require.True(r.t, r.isDoubtful(&x), "offset %d was not appended like that", x.rec.Offset)
		}
	}
	for key, offset := range last {
		require.True(r.t, got[key] >= offset || offset < l.Bounds().Start, "%s at offset %d", key, offset)
	}
}

func (r *faultRun) isDoubtful(x *truthRecord) bool {
	for _, d := range r.doubtful.records() {
		if sameRecord(&d.rec, &x.rec) {
			return true
		}
	}
	return false
}
