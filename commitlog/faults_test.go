package commitlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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

// lateFaults is a file system on which an operation that writes is done, and then
// reported as failed.
type lateFaults struct {
	vfs.FS
	fault func() error
}

type lateFaultsFile struct {
	vfs.File
	fault func() error
}

func (d *lateFaults) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(name, c, opts...)
	if err != nil {
		return nil, err
	}
	return &lateFaultsFile{File: f, fault: d.fault}, nil
}

func (d *lateFaults) Rename(from, to string) error {
	return errors.Join(d.FS.Rename(from, to), d.fault())
}

func (d *lateFaults) Remove(name string) error {
	if _, err := d.Stat(name); err != nil {
		return err
	}
	return errors.Join(d.FS.Remove(name), d.fault())
}

func (f *lateFaultsFile) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(p, at)
	return n, errors.Join(err, f.fault())
}

func (f *lateFaultsFile) Sync() error     { return errors.Join(f.File.Sync(), f.fault()) }
func (f *lateFaultsFile) SyncData() error { return errors.Join(f.File.SyncData(), f.fault()) }

// smallDisk is a file system with a bounded number of bytes to write. A write that
// does not fit is torn.
type smallDisk struct {
	vfs.FS
	mu   sync.Mutex
	left int64
}

func (d *smallDisk) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	d.mu.Lock()
	left := d.left
	d.mu.Unlock()
	if _, err := d.Stat(name); err != nil && left <= 0 {
		return nil, syscall.ENOSPC
	}
	f, err := d.FS.OpenReadWrite(name, c, opts...)
	if err != nil {
		return nil, err
	}
	return &smallDiskFile{File: f, disk: d}, nil
}

type smallDiskFile struct {
	vfs.File
	disk *smallDisk
}

func (f *smallDiskFile) WriteAt(p []byte, at int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if n := f.disk.left; n < int64(len(p)) {
		f.disk.left = 0
		wrote, _ := f.File.WriteAt(p[:n], at)
		return wrote, syscall.ENOSPC
	}
	f.disk.left -= int64(len(p))
	return f.File.WriteAt(p, at)
}

func (d *smallDisk) free(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = n
}

// TestTornWriteIsNotOverwritten: the rest of a write that failed must never be taken
// for data, even if a producer made its bytes look like a batch.
func TestTornWriteIsNotOverwritten(t *testing.T) {
	for _, before := range []int{0, 1} { // batches in the segment, which is made anew when empty
		t.Run(fmt.Sprint("before=", before), func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			disk := &smallDisk{FS: mem, left: 1 << 20}
			o := testOptions(disk)
			makeParent(t, Options{FS: mem, Dir: o.Dir})
			l := openTest(t, o)
			for range before {
				mustAppend(t, l, plainBatch(t, 1, "before", 1))
			}
			forged := plainBatch(t, 1, "forged", 1)
			protocol.SetBaseOffset(forged, int64(before+1))
			evil := evilBatch(t, forged)
			at := bytes.Index(evil, forged)
			next := plainBatchOfSize(t, at)

			if before == 0 { // so that only the file of the segment fails
				mustAppend(t, l, plainBatch(t, 1, "first", 1))
				require.NoError(t, l.Seal())
				protocol.SetBaseOffset(forged, 2)
				evil = evilBatch(t, forged)
			}
			disk.free(int64(len(evil) - 1))
			_, err := l.Append(evil, AppendOptions{})
			require.ErrorIs(t, err, ErrNoSpace)
			disk.free(1 << 20)
			want := append(readAll(t, l), next...)
			mustAppend(t, l, next)
			copy(want[len(want)-len(next):], next) // as it was stamped
			for _, percent := range []int{0, 100} {
				o := o
				o.FS = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(1, 1))})
				o.Unclean = true
				require.Equal(t, want, readAll(t, openTest(t, o)))
			}
		})
	}
}

// evilBatch is a batch whose one record holds other bytes as they are.
func evilBatch(t *testing.T, inside []byte) []byte {
	var b protocol.BatchBuilder
	b.Reset(protocol.PlainBatch(0))
	b.Append([]byte("key"), append(bytes.Repeat([]byte("x"), 100), inside...), nil, 1)
	batch, err := b.Build(nil)
	require.NoError(t, err)
	return batch
}

func plainBatchOfSize(t *testing.T, size int) []byte {
	for n := range size {
		if batch := plainBatch(t, 1, strings.Repeat("y", n), 1); len(batch) == size {
			return batch
		}
	}
	require.Fail(t, "no batch of that size", "%d", size)
	return nil
}

// TestRefusedBatchInAFullSegment: a batch that was written and refused does not come
// back before the ones of the next segment.
func TestRefusedBatchInAFullSegment(t *testing.T) {
	mem := vfs.NewCrashableMem()
	c := &faultCounter{n: 1 << 40, err: syscall.ENOSPC}
	o := testOptions(&lateFaults{FS: mem, fault: c.fault})
	o.Fsync = false
	makeParent(t, Options{FS: mem, Dir: o.Dir})
	l := openTest(t, o)
	first, second := plainBatch(t, 1, "first", 1), plainBatch(t, 1, "second", 1)
	mustAppend(t, l, first)
	require.NoError(t, l.Flush(t.Context()))
	c.n = c.count.Load() // the next write is done, and reported as failed
	_, err := l.Append(plainBatch(t, 1, "refused", 1), AppendOptions{})
	require.ErrorIs(t, err, ErrNoSpace)
	mustAppend(t, l, second)
	l.waitFlusher() // the first segment is sealed
	require.Len(t, l.Segments(), 2)
	o.FS, o.Unclean = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}), true
	require.NoError(t, o.FS.Remove(o.FS.PathJoin(o.Dir, segmentName(0, indexExt))))
	again := openTest(t, o)
	require.Equal(t, append(first, second...), readAll(t, again))
	require.NoError(t, again.CheckInvariants())
}

// TestSealOnAFullDisk: a segment whose index finds no space is sealed later.
func TestSealOnAFullDisk(t *testing.T) {
	disk := &smallDisk{FS: vfs.NewMem(), left: 1 << 20}
	o := testOptions(disk)
	o.Fsync = false
	l := openTest(t, o)
	mustAppend(t, l, plainBatch(t, 1, "a", 1))
	disk.free(10)
	require.NoError(t, l.Seal())
	l.waitFlusher()
	require.False(t, (*l.segments.Load())[0].indexed.Load())
	disk.free(1 << 20)
	require.NoError(t, l.Flush(t.Context()))
	require.True(t, (*l.segments.Load())[0].indexed.Load())
	require.NoError(t, l.Close())
}

// TestFullDisk: a full disk refuses appends and does no other harm; with room again the
// log goes on.
func TestFullDisk(t *testing.T) {
	for seed := range seeds(t, 100) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), 3))
			mem := vfs.NewCrashableMem()
			disk := &smallDisk{FS: mem, left: 1 << 20}
			r := &faultRun{t: t, nowMs: 1_000_000}
			r.o = faultOptions(disk, r)
			r.o.Fsync = rng.IntN(4) > 0
			makeParent(t, Options{FS: mem, Dir: r.o.Dir})
			require.True(t, r.open())
			sequence := int32(0)
			for range 60 {
				before := len(r.truth.batches)
				r.failed = nil
				r.append(1, sequence)
				if r.failed != nil {
					require.ErrorIs(t, r.failed, ErrNoSpace)
					require.NoError(t, r.l.Err(), "a full disk does not end the log's writing")
				}
				sequence += 2 * int32(len(r.truth.batches)-before)
				r.wait()
				if rng.IntN(4) == 0 {
					disk.free(rng.Int64N(1500))
				}
				if rng.IntN(10) == 0 {
					_, err := r.l.Clean(time.UnixMilli(r.nowMs))
					require.True(t, err == nil || errors.Is(err, syscall.ENOSPC), err)
				}
			}
			r.compare(r.l, r.acked)
			disk.free(1 << 20)
			r.verifySurvives(mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng}))
			if r.o.Fsync {
				r.verifySurvives(mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 40, RNG: rng}))
			}
			r.append(1, sequence)
			r.wait()
			require.NoError(t, r.l.CheckInvariants())
			require.NoError(t, r.l.Close())
		})
	}
}
