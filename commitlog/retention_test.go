package commitlog

import (
	"io/fs"
	"math"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// retentionTest is a log of segments with one batch each, at times 1000, 2000, ...
func retentionTest(t *testing.T, segments int, change func(c *Config)) *Log {
	o := testOptions(vfs.NewMem())
	o.Config.RetentionMs = -1
	change(&o.Config)
	l := openTest(t, o)
	for i := range segments {
		mustAppend(t, l, plainBatch(t, 1, "value", int64(1000*(i+1))))
		if i < segments-1 {
			require.NoError(t, l.Seal())
		}
	}
	return l
}

func apply(t *testing.T, l *Log, nowMs int64) {
	t.Helper()
	require.NoError(t, l.ApplyRetention(time.UnixMilli(nowMs)))
	require.NoError(t, l.CheckInvariants())
}

func TestRetentionByTime(t *testing.T) {
	l := retentionTest(t, 5, func(c *Config) { c.RetentionMs = 2500 })
	apply(t, l, 3500)
	require.Zero(t, l.Bounds().Start, "the first is 2,500 ms old, not more")
	apply(t, l, 4501)
	require.Equal(t, int64(2), l.Bounds().Start)
	require.Len(t, l.Segments(), 3)
	apply(t, l, 1_000_000)
	require.Equal(t, Bounds{Start: 5, LSO: 5, HighWatermark: 5, End: 5}, l.Bounds(), "the active segment expires too")
	require.Equal(t, int64(5), mustAppend(t, l, plainBatch(t, 1, "value", 1)).Base)
}

// TestRetentionOfSealedLog: the last segment goes too when it was sealed before.
func TestRetentionOfSealedLog(t *testing.T) {
	l := retentionTest(t, 2, func(c *Config) { c.RetentionMs = 1000 })
	require.NoError(t, l.Seal())
	apply(t, l, 1_000_000)
	require.Equal(t, int64(2), l.Bounds().Start)
	require.Zero(t, l.Size())
	require.Len(t, l.Segments(), 1)
}

// TestRetentionWithoutTimestamps: records without a time are as old as their file.
func TestRetentionWithoutTimestamps(t *testing.T) {
	l := retentionTest(t, 1, func(c *Config) { c.RetentionMs = time.Hour.Milliseconds() })
	mustAppend(t, l, plainBatch(t, 1, "value", -1))
	require.NoError(t, l.Seal())
	apply(t, l, time.Now().UnixMilli())
	require.Equal(t, int64(2), l.Bounds().Start, "the first segment has one record with a time, and is old")
	mustAppend(t, l, plainBatch(t, 1, "value", -1))
	apply(t, l, time.Now().UnixMilli())
	require.Equal(t, int64(2), l.Bounds().Start)
	apply(t, l, time.Now().Add(2*time.Hour).UnixMilli())
	require.Equal(t, int64(3), l.Bounds().Start)
}

func TestRetentionBySize(t *testing.T) {
	size := int64(len(plainBatch(t, 1, "value", 1)))
	l := retentionTest(t, 5, func(c *Config) { c.RetentionBytes = 3*size - 1 })
	apply(t, l, 10_000)
	require.Equal(t, int64(2), l.Bounds().Start, "at least retention.bytes stay")
	require.Equal(t, 3*size, l.Size())
	c := l.Config()
	c.RetentionBytes = 0
	c.Delete = false
	l.SetConfig(c)
	apply(t, l, 10_000)
	require.Equal(t, int64(2), l.Bounds().Start, "the topic is not cleaned by deletion")
	c.Delete = true
	l.SetConfig(c)
	apply(t, l, 10_000)
	require.Equal(t, int64(5), l.Bounds().Start)
	require.Zero(t, l.Size())
}

// TestRetentionKeepsProducers: the state of a producer outlives its records.
func TestRetentionKeepsProducers(t *testing.T) {
	o := testOptions(vfs.NewCrashableMem())
	o.Config.RetentionMs = 0
	l := openTest(t, o)
	mustAppend(t, l, idempotentBatch(t, 1, 0, 0, 3))
	apply(t, l, 1_000_000)
	require.Equal(t, int64(3), l.Bounds().Start)
	o.FS, o.Unclean = o.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{}), true
	again := openTest(t, o)
	require.Equal(t, l.Producers(), again.Producers())
	require.True(t, mustAppend(t, again, idempotentBatch(t, 1, 0, 0, 3)).Duplicate)
}

func TestProducersExpire(t *testing.T) {
	nowMs := int64(1_000_000)
	o := testOptions(vfs.NewMem())
	o.Now = func() time.Time { return time.UnixMilli(nowMs) }
	o.Config.ProducerIDExpirationMs = 1000
	o.Config.RetentionMs = -1
	o.MaxProducers = 3
	l := openTest(t, o)
	w := &cleanTest{t: t, l: l, nowMs: nowMs}
	w.putAs(w.txn(1, 0, 0), "a=1")
	mustAppend(t, l, idempotentBatch(t, 2, 0, 0, 1))
	nowMs += 999
	apply(t, l, nowMs)
	require.Len(t, l.Producers(), 2)
	nowMs++
	apply(t, l, nowMs)
	require.Len(t, l.Producers(), 1, "one in a transaction stays")
	for id := range int64(5) {
		nowMs++
		mustAppend(t, l, idempotentBatch(t, 10+id, 0, 0, 1))
	}
	apply(t, l, nowMs)
	var ids []int64
	for _, p := range l.Producers() {
		ids = append(ids, p.ID)
	}
	require.Equal(t, []int64{1, 13, 14}, ids, "past the limit those idle for longest go")
}

func TestRollBySizeAndTime(t *testing.T) {
	batch := plainBatch(t, 1, "value", 1000)
	o := testOptions(vfs.NewMem())
	o.Config.SegmentBytes = 2*int64(len(batch)) + 1
	o.Config.SegmentMs = 500
	l := openTest(t, o)
	segments := func() int { return len(l.Segments()) }
	mustAppend(t, l, plainBatch(t, 1, "value", 1000))
	mustAppend(t, l, plainBatch(t, 1, "value", 1500))
	require.Equal(t, 1, segments())
	mustAppend(t, l, plainBatch(t, 1, "value", 1000))
	require.Equal(t, 2, segments(), "by size")
	mustAppend(t, l, plainBatch(t, 1, "value", 1501))
	require.Equal(t, 3, segments(), "by the time of records")
	mustAppend(t, l, plainBatch(t, 1, "value", 900))
	require.Equal(t, 3, segments(), "older records do not roll")
	c := l.Config()
	c.Compact, c.MaxCompactionLagMs, c.SegmentBytes = true, 100, 1<<20
	l.SetConfig(c)
	mustAppend(t, l, plainBatch(t, 1, "value", 1602))
	require.Equal(t, 4, segments(), "an active segment is not compacted, so it ends in time")
	require.NoError(t, l.CheckInvariants())
}

func TestRollByClock(t *testing.T) {
	nowMs := int64(1_000_000)
	o := testOptions(vfs.NewMem())
	o.Now = func() time.Time { return time.UnixMilli(nowMs) }
	o.Config.SegmentMs = 500
	l := openTest(t, o)
	require.NoError(t, l.Roll(time.UnixMilli(nowMs)))
	mustAppend(t, l, plainBatch(t, 1, "value", 5))
	nowMs += 499
	require.NoError(t, l.Roll(time.UnixMilli(nowMs)))
	require.False(t, l.Segments()[0].Sealed)
	nowMs++
	require.NoError(t, l.Roll(time.UnixMilli(nowMs)))
	require.True(t, l.Segments()[0].Sealed)
	require.NoError(t, l.Roll(time.UnixMilli(nowMs)))
	require.Equal(t, int64(1), mustAppend(t, l, plainBatch(t, 1, "value", 5)).Base)
	require.Len(t, l.Segments(), 2)
}

// TestLargestOffset: a segment ends before its offsets no longer fit an index.
func TestLargestOffset(t *testing.T) {
	require.True(t, canHold(5, 5+math.MaxUint32))
	require.False(t, canHold(5, 6+math.MaxUint32))
}

func TestSideFiles(t *testing.T) {
	l := retentionTest(t, 3, func(c *Config) { c.Compact, c.MinCleanableRatio = true, 0 })
	infos := l.Segments()
	first := infos[0]
	require.Equal(t, SegmentInfo{Base: 0, Next: 1, SizeBytes: first.SizeBytes, Sealed: true}, first)
	_, err := l.SideFile(first, ".slots")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, l.WriteSideFile(first, ".slots", []byte("index")))
	data, err := l.SideFile(first, ".slots")
	require.NoError(t, err)
	require.Equal(t, "index", string(data))
	require.Error(t, l.WriteSideFile(infos[2], ".slots", nil), "an active segment has none")
	for _, ext := range []string{logExt, indexExt, swapExt, cleanedExt, "slots", "", "."} {
		require.Error(t, l.WriteSideFile(first, ext, nil), "%q", ext)
	}
	p := make([]byte, first.SizeBytes+10)
	n, err := l.ReadSegment(first, 0, p)
	require.NoError(t, err)
	require.Equal(t, readAll(t, l)[:n], p[:n])

	require.NoError(t, l.Close())
	l = openTest(t, l.opts)
	data, err = l.SideFile(l.Segments()[0], ".slots")
	require.NoError(t, err)
	require.Equal(t, "index", string(data), "it stays with the segment")

	first = l.Segments()[0]
	_, err = l.Clean(time.UnixMilli(1_000_000))
	require.NoError(t, err)
	_, err = l.SideFile(first, ".slots")
	require.ErrorIs(t, err, ErrSegmentGone, "a compacted segment is another")
	require.ErrorIs(t, l.WriteSideFile(first, ".slots", nil), ErrSegmentGone)
	_, err = l.ReadSegment(first, 0, p)
	require.ErrorIs(t, err, ErrSegmentGone)
	_, err = l.SideFile(l.Segments()[0], ".slots")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestRemove(t *testing.T) {
	fs := vfs.NewCrashableMem()
	o := testOptions(fs)
	l := openTest(t, o)
	mustAppend(t, l, plainBatch(t, 1, "value", 1))
	require.NoError(t, l.Remove())
	_, err := l.Append(plainBatch(t, 1, "value", 1), AppendOptions{})
	require.ErrorIs(t, err, ErrClosed)
	_, err = l.Read(nil, 0, ReadOptions{MaxBytes: 100, UpTo: 1})
	require.ErrorIs(t, err, ErrClosed)
	o.FS = fs.CrashClone(vfs.CrashCloneCfg{})
	l = openTest(t, o)
	require.Equal(t, Bounds{}, l.Bounds(), "a log made anew shares nothing with the old")
}

// TestIdleFilesAreClosed: what nobody reads holds no file and no index.
func TestIdleFilesAreClosed(t *testing.T) {
	l := retentionTest(t, 4, func(*Config) {})
	readAll(t, l)
	apply := func() { require.NoError(t, l.ApplyRetention(time.UnixMilli(1_000_000))) }
	apply()
	apply()
	for _, s := range *l.segments.Load() {
		require.Nil(t, s.handle.file)
		require.Nil(t, s.index.Load())
	}
	require.NotEmpty(t, readAll(t, l))
	require.Equal(t, int64(4), mustAppend(t, l, plainBatch(t, 1, "value", 1)).Base)
	require.NoError(t, l.CheckInvariants())
	apply()
	apply()
	require.NoError(t, l.Roll(time.UnixMilli(math.MaxInt64/2)))
	require.NoError(t, l.CheckInvariants())
	require.NoError(t, l.Close())
	l = openTest(t, l.opts)
	require.Equal(t, Recovery{End: 5}, l.Recovery())
}
