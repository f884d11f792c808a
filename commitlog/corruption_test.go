package commitlog

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/protocol"
)

// corruptible is a small log, closed cleanly, with everything in it.
func corruptible(t *testing.T) (Options, *truth) {
	r := &faultRun{t: t, nowMs: 1_000_000}
	r.o = faultOptions(vfs.NewMem(), r)
	r.o.Config.Compact = false
	makeParent(t, r.o)
	r.play()
	require.NoError(t, r.failed)
	require.NoError(t, r.l.Close())
	return r.o, &r.truth
}

func cloneMem(t *testing.T, from vfs.FS, dir string) vfs.FS {
	to := vfs.NewMem()
	require.NoError(t, to.MkdirAll(dir, 0o755))
	names, err := from.List(dir)
	require.NoError(t, err)
	for _, name := range names {
		require.NoError(t, vfs.CopyAcrossFS(from, from.PathJoin(dir, name), to, to.PathJoin(dir, name)))
	}
	return to
}

// TestCorruptByte changes one byte of each file, everywhere. The log opens, what it
// returns is what was appended, or is seen to be damaged by its checksum, and a file
// other than a segment costs no record.
func TestCorruptByte(t *testing.T) {
	o, want := corruptible(t)
	long := os.Getenv("LACUNA_LONG") != ""
	var where string
	defer func() {
		if t.Failed() {
			t.Log(where)
		}
	}()
	names, err := o.FS.List(o.Dir)
	require.NoError(t, err)
	for _, name := range names {
		info, err := o.FS.Stat(o.FS.PathJoin(o.Dir, name))
		require.NoError(t, err)
		for at := int64(0); at < info.Size(); at++ {
			for _, unclean := range []bool{false, true} {
				if !long && (at%11 != 0 && at > 90 || at%raceSlowdown != 0) { // all of the headers
					continue
				}
				o := o
				o.FS, o.Unclean = cloneMem(t, o.FS, o.Dir), unclean
				where = fmt.Sprintf("byte %d of %s, unclean=%v", at, name, unclean)
				flipByte(t, o.FS, o.FS.PathJoin(o.Dir, name), at)
				readCorrupt(t, o, want, strings.HasSuffix(name, logExt))
			}
		}
	}
}

func flipByte(t *testing.T, fs vfs.FS, path string, at int64) {
	f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	require.NoError(t, err)
	b[0] ^= 0x41
	_, err = f.WriteAt(b[:], at)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func readCorrupt(t *testing.T, o Options, want *truth, data bool) {
	l, err := Open(o)
	require.NoError(t, err)
	defer l.Close()
	b := l.Bounds()
	good, bad := 0, 0
	for next := b.Start; next < b.HighWatermark; {
		r, err := l.Read(nil, next, ReadOptions{MaxBytes: 1, UpTo: b.HighWatermark, MinOne: true})
		if err != nil {
			require.ErrorIs(t, err, protocol.ErrCorruptBatch)
			bad++
			next++
			continue
		}
		if len(r.Data) > 0 && want.has(r.Data) {
			good++
		} else if len(r.Data) > 0 {
			h, err := protocol.ParseBatchHeader(r.Data)
			require.True(t, err != nil || protocol.VerifyCRC(&h, r.Data) != nil, "a batch that was never appended, and looks good")
			bad++
		}
		require.Greater(t, r.Next, next)
		next = r.Next
	}
	_, _, err = l.OffsetForTimestamp(1_010_000)
	require.True(t, err == nil || data)
	if !data {
		require.Zero(t, bad)
		require.Equal(t, int64(48), b.End)
		require.GreaterOrEqual(t, good, 22)
		require.NoError(t, l.CheckInvariants())
	}
	a, err := l.Append(plainBatch(t, 1, "goes on", 1), AppendOptions{})
	require.NoError(t, err)
	require.Equal(t, b.End, a.Base)
}

// has tells whether the batch, with its offsets and epoch, was appended.
func (tr *truth) has(batch []byte) bool {
	for _, b := range tr.batches {
		if bytes.Equal(b.bytes, batch) {
			return true
		}
	}
	return false
}

// TestLostFiles removes each file in turn, and all of a kind.
func TestLostFiles(t *testing.T) {
	o, want := corruptible(t)
	names, err := o.FS.List(o.Dir)
	require.NoError(t, err)
	for _, lost := range append(names, indexExt) {
		if strings.HasSuffix(lost, logExt) {
			continue
		}
		for _, unclean := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/unclean=%v", lost, unclean), func(t *testing.T) {
				o := o
				o.FS, o.Unclean = cloneMem(t, o.FS, o.Dir), unclean
				for _, name := range names {
					if strings.HasSuffix(name, lost) {
						require.NoError(t, o.FS.Remove(o.FS.PathJoin(o.Dir, name)))
					}
				}
				l, err := Open(o)
				require.NoError(t, err)
				require.NoError(t, l.CheckInvariants())
				require.Equal(t, int64(48), l.Bounds().End)
				require.True(t, bytes.HasSuffix(want.bytesFrom(0), readAll(t, l)))
				require.Len(t, l.Producers(), 2)
				require.NoError(t, l.Close())
			})
		}
	}
}

// TestFailedSyncLeavesDoubt: after a failed fsync the system may show bytes that the
// disk does not have. They are not believed at the next start.
func TestFailedSyncLeavesDoubt(t *testing.T) {
	mem := vfs.NewCrashableMem()
	c := &faultCounter{n: 1 << 40}
	r := &faultRun{t: t, nowMs: 1_000_000}
	r.o = faultOptions(&syncFaults{FS: mem, fault: c.fault}, r)
	makeParent(t, Options{FS: mem, Dir: r.o.Dir})
	require.True(t, r.open())
	r.append(1, 0)
	r.wait()
	require.NoError(t, r.failed)

	c.n = c.count.Load() // the next fsync of a segment
	r.append(1, 2)
	r.wait()
	require.ErrorIs(t, r.failed, ErrReadOnly)
	require.Error(t, r.l.Close())

	o := r.o
	o.FS, o.Unclean = mem, true
	o.Now = func() time.Time { return time.UnixMilli(r.nowMs) }
	l := openTest(t, o)
	require.Equal(t, int64(2), l.Bounds().HighWatermark)
	require.Len(t, l.Recovery().Dropped, 1)
	require.Equal(t, "its fsync failed", l.Recovery().Dropped[0].Reason)
	require.Equal(t, int64(2), mustAppend(t, l, plainBatch(t, 1, "x", 1)).Base)
	require.NoError(t, l.CheckInvariants())
	require.NoError(t, l.Close())

	o.Unclean = false
	l = openTest(t, o)
	require.Equal(t, int64(3), l.Bounds().HighWatermark)
	require.Equal(t, Recovery{End: 3}, l.Recovery())
}

// syncFaults fails fsyncs of segments after they were done.
type syncFaults struct {
	vfs.FS
	fault func() error
}

type syncFaultsFile struct {
	vfs.File
	fault func() error
}

func (d *syncFaults) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(name, c, opts...)
	if err != nil || !strings.HasSuffix(name, logExt) {
		return f, err
	}
	return &syncFaultsFile{File: f, fault: d.fault}, nil
}

func (f *syncFaultsFile) SyncData() error {
	if err := f.File.SyncData(); err != nil {
		return err
	}
	return f.fault()
}
