package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lacunamq/lacuna/protocol"
)

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

// TestFullDiskIsTold: once when appends begin to fail, and once when they go on.
func TestFullDiskIsTold(t *testing.T) {
	disk := &smallDisk{FS: vfs.NewMem(), left: 1 << 20}
	o := testOptions(disk)
	core, told := observer.New(zap.InfoLevel)
	o.Logger = zap.New(core)
	l := openTest(t, o)
	mustAppend(t, l, plainBatch(t, 1, "before", 1))
	require.Zero(t, told.Len())
	disk.free(10)
	for range 3 {
		_, err := l.Append(plainBatch(t, 1, "refused", 1), AppendOptions{})
		require.ErrorIs(t, err, ErrNoSpace)
	}
	disk.free(1 << 20)
	for range 3 {
		mustAppend(t, l, plainBatch(t, 1, "after", 1))
	}
	var messages []string
	for _, e := range told.All() {
		require.Equal(t, o.Name, e.ContextMap()["log"])
		messages = append(messages, e.Message)
	}
	require.Equal(t, []string{"the disk is full: appends fail until there is room", "the disk has room again: appends go on"}, messages)
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
