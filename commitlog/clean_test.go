package commitlog

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/protocol"
)

// cleanTest is a compacted log with a clock.
type cleanTest struct {
	t     *testing.T
	l     *Log
	o     Options
	nowMs int64
}

func newCleanTest(t *testing.T, change func(o *Options)) *cleanTest {
	c := &cleanTest{t: t, nowMs: 1_000_000}
	c.o = testOptions(vfs.NewMem())
	c.o.Now = func() time.Time { return time.UnixMilli(c.nowMs) }
	c.o.Config.Compact, c.o.Config.Delete = true, false
	c.o.Config.MinCleanableRatio = 0
	c.o.Config.DeleteRetentionMs = 1000
	if change != nil {
		change(&c.o)
	}
	c.l = openTest(t, c.o)
	return c
}

// put appends one batch of "key=value" records; "key" alone is a tombstone.
func (c *cleanTest) put(records ...string) Appended {
	return c.putAs(protocol.PlainBatch(0), records...)
}

func (c *cleanTest) putAs(o protocol.BatchOptions, records ...string) Appended {
	c.t.Helper()
	var b protocol.BatchBuilder
	b.Reset(o)
	for _, r := range records {
		key, value, ok := strings.Cut(r, "=")
		v := []byte(value)
		if !ok {
			v = nil
		}
		b.Append([]byte(key), v, nil, c.nowMs)
	}
	batch, err := b.Build(nil)
	require.NoError(c.t, err)
	return mustAppend(c.t, c.l, batch)
}

func (c *cleanTest) txn(id int64, epoch int16, sequence int32) protocol.BatchOptions {
	return protocol.BatchOptions{Transactional: true, ProducerID: id, ProducerEpoch: epoch, BaseSequence: sequence}
}

func (c *cleanTest) marker(id int64, epoch int16, commit bool) {
	c.t.Helper()
	var b protocol.BatchBuilder
	batch, err := b.AppendEndTxnMarker(nil, protocol.EndTxnMarker{ProducerID: id, ProducerEpoch: epoch, Commit: commit}, c.nowMs)
	require.NoError(c.t, err)
	a, err := c.l.Append(batch, AppendOptions{Internal: true})
	require.NoError(c.t, err)
	<-a.Flush.Done()
}

func (c *cleanTest) seal() {
	c.t.Helper()
	require.NoError(c.t, c.l.Seal())
}

func (c *cleanTest) clean() Cleaned {
	c.t.Helper()
	done, err := c.l.Clean(time.UnixMilli(c.nowMs))
	require.NoError(c.t, err)
	require.NoError(c.t, c.l.CheckInvariants())
	return done
}

// dump draws the log: a batch is [base-last: records], a control batch (base).
func (c *cleanTest) dump() string {
	c.t.Helper()
	var out strings.Builder
	for _, b := range storedTruth(c.t, c.l).batches {
		if b.h.Control() {
			fmt.Fprintf(&out, "(%d)", b.h.BaseOffset)
			continue
		}
		fmt.Fprintf(&out, "[%d-%d:", b.h.BaseOffset, b.h.LastOffset())
		records, err := protocol.DecompressRecords(nil, &b.h, b.bytes, 1<<20)
		require.NoError(c.t, err)
		for it := protocol.IterateRecords(&b.h, records); b.h.NumRecords > 0 && it.Next(); {
			r := it.Record()
			fmt.Fprintf(&out, " %d:%s=%s", r.Offset, r.Key, r.Value)
		}
		out.WriteString("]")
	}
	return out.String()
}

func TestCleanKeepsTheLastOfEachKey(t *testing.T) {
	c := newCleanTest(t, nil)
	c.put("a=1", "b=1")
	c.put("a=2")
	c.put("c=1", "a=3", "c=2")
	c.seal()
	c.put("b=2")
	c.seal()
	c.put("a=4") // active, so it is not looked at
	require.Equal(t, Cleaned{UpTo: 7, BytesBefore: 307, BytesAfter: 149}, c.clean())
	require.Equal(t, "[3-5: 4:a=3 5:c=2][6-6: 6:b=2][7-7: 7:a=4]", c.dump())
	require.Equal(t, Cleaned{}, c.clean(), "nothing is dirty")
	require.Len(t, c.l.Segments(), 2, "small segments become one")

	c.seal()
	require.Equal(t, int64(8), c.clean().UpTo)
	require.Equal(t, "[3-5: 5:c=2][6-6: 6:b=2][7-7: 7:a=4]", c.dump())

	require.NoError(t, c.l.Close())
	c.l = openTest(t, c.o)
	require.Equal(t, Recovery{End: 8}, c.l.Recovery())
	require.Equal(t, "[3-5: 5:c=2][6-6: 6:b=2][7-7: 7:a=4]", c.dump())
}

func TestCleanKeepsTheEndOfASegment(t *testing.T) {
	c := newCleanTest(t, nil)
	c.put("a=1")
	c.put("b=1")
	c.seal()
	c.put("a=2", "b=2")
	c.seal()
	c.l.mu.config.SegmentBytes = 1 // so that the two are not joined
	c.clean()
	require.Equal(t, "[1-1:][2-3: 2:a=2 3:b=2]", c.dump(), "an empty batch tells where it ends")
	r, err := c.l.Read(nil, 0, ReadOptions{MaxBytes: 1000, UpTo: 4})
	require.NoError(t, err)
	require.Equal(t, int64(4), r.Next)
}

func TestCleanTombstones(t *testing.T) {
	c := newCleanTest(t, nil)
	c.put("a=1", "b=1")
	c.put("a") // offset 2
	c.seal()
	c.clean()
	require.Equal(t, "[0-1: 1:b=1][2-2: 2:a=]", c.dump(), "it stays after its first cleaning")
	h := storedTruth(t, c.l).batches[1].h
	horizon, ok := h.DeleteHorizon()
	require.True(t, ok)
	require.Equal(t, c.nowMs+1000, horizon)
	require.Equal(t, int64(1_000_000), h.MaxTimestamp)
	require.Equal(t, int64(1_000_000), storedTruth(t, c.l).records()[1].rec.TimestampMs, "times read as before")

	c.nowMs += 999
	c.put("c=1")
	c.seal()
	c.clean()
	require.Equal(t, "[0-1: 1:b=1][2-2: 2:a=][3-3: 3:c=1]", c.dump(), "and for delete.retention.ms from then")
	c.nowMs++
	c.put("d=1")
	c.seal()
	c.clean()
	require.Equal(t, "[0-1: 1:b=1][3-3: 3:c=1][4-4: 4:d=1]", c.dump())
}

func TestCleanTransactions(t *testing.T) {
	c := newCleanTest(t, nil)
	c.put("a=1")                      // 0
	c.putAs(c.txn(1, 0, 0), "a=2")    // 1, aborted
	c.putAs(c.txn(2, 0, 0), "b=1")    // 2, committed
	c.marker(1, 0, false)             // 3
	c.marker(2, 0, true)              // 4
	c.putAs(c.txn(1, 0, 1), "c=1")    // 5
	c.marker(1, 0, true)              // 6
	c.putAs(c.txn(2, 0, 1), "c=2")    // 7
	c.marker(2, 0, true)              // 8
	c.putAs(c.txn(3, 0, 0), "b=open") // 9, open: not cleaned, nor what follows
	c.seal()
	require.Equal(t, Cleaned{}, c.clean(), "the segment is not stable")
	c.marker(3, 0, true) // 10
	c.seal()
	c.clean()
	require.Equal(t, "[0-0: 0:a=1](3)(4)[5-5:](6)[7-7: 7:c=2](8)[9-9: 9:b=open](10)", c.dump(),
		"aborted records go, the last batch of a producer stays, and markers for now")
	aborted, err := c.l.AbortedTxns(0, 11)
	require.NoError(t, err)
	require.Equal(t, []AbortedTxn{{ProducerID: 1, FirstOffset: 1}}, aborted)

	for range 2 { // the first finds markers without records, the second that their time is over
		c.nowMs += 1000
		c.put("z=1")
		c.seal()
		c.clean()
	}
	require.Equal(t, "[0-0: 0:a=1][5-5:](6)[7-7: 7:c=2](8)[9-9: 9:b=open](10)[12-12: 12:z=1]", c.dump())
	aborted, err = c.l.AbortedTxns(0, 12)
	require.NoError(t, err)
	require.Empty(t, aborted)
	require.Equal(t, int32(1), c.l.Producers()[0].LastSequence)
}

func TestCleanLimits(t *testing.T) {
	upTo := int64(0)
	c := newCleanTest(t, func(o *Options) {
		o.CleanUpTo = func() int64 { return upTo }
		o.Config.MinCompactionLagMs = 500
	})
	c.put("a=1")
	c.put("a=2")
	c.seal()
	c.put("a=3")
	c.seal()
	c.nowMs += 500
	require.Equal(t, Cleaned{}, c.clean(), "a view has not seen it")
	upTo = 2
	require.Equal(t, int64(2), c.clean().UpTo)
	require.Equal(t, "[1-1: 1:a=2][2-2: 2:a=3]", c.dump())
	upTo = 100
	c.put("a=4")
	c.seal()
	require.Equal(t, int64(3), c.clean().UpTo, "the last is too young")
	require.Equal(t, "[2-2: 2:a=3][3-3: 3:a=4]", c.dump())
}

func TestCleanWhenDue(t *testing.T) {
	c := newCleanTest(t, func(o *Options) { o.Config.MinCleanableRatio = 0.5 })
	for i := range 4 {
		c.put(fmt.Sprintf("key-%d=1", i))
	}
	c.seal()
	require.NotZero(t, c.clean().UpTo, "all is dirty")
	c.put("key-0=2")
	c.seal()
	require.Equal(t, Cleaned{}, c.clean(), "a fifth is dirty")
	c.l.mu.config.MaxCompactionLagMs = 100
	c.nowMs += 101
	require.NotZero(t, c.clean().UpTo, "but it is old enough")
	config := c.l.Config()
	config.Compact = false
	c.l.SetConfig(config)
	c.put("key-0=3")
	c.seal()
	require.Equal(t, Cleaned{}, c.clean(), "the topic is not compacted")
}

// TestCleanInParts: with more keys than memory a pass goes as far as it can.
func TestCleanInParts(t *testing.T) {
	c := newCleanTest(t, func(o *Options) { o.CleanerMemory = 1 })
	want := map[string]bool{}
	for round := range 3 {
		for i := range 100 {
			var records []string
			for j := range 10 {
				records = append(records, fmt.Sprintf("key-%d=%d", i*10+j, round))
			}
			c.put(records...)
		}
	}
	for i := range 1000 {
		want[fmt.Sprintf("key-%d=2", i)] = true
	}
	c.seal()
	passes := 0
	for upTo := int64(0); upTo < 3000; passes++ {
		done := c.clean()
		require.Greater(t, done.UpTo, upTo, "each pass gets on")
		upTo = done.UpTo
	}
	require.Greater(t, passes, 10)
	got := map[string]bool{}
	for _, r := range storedTruth(t, c.l).records() {
		got[fmt.Sprintf("%s=%s", r.rec.Key, r.rec.Value)] = true
	}
	for r := range want {
		require.True(t, got[r], "%s is missing", r)
	}
}

// TestCleanOpaqueBatch: a batch that cannot be decoded stays as it is.
func TestCleanOpaqueBatch(t *testing.T) {
	c := newCleanTest(t, nil)
	batch := plainBatch(t, 3, "value", c.nowMs)
	batch[22] |= byte(protocol.CodecGzip) // which it is not
	protocol.RenewCRC(batch)
	mustAppend(t, c.l, batch)
	c.put("k0=2")
	c.seal()
	c.put("k0=3")
	c.seal()
	c.clean()
	all := storedTruth(t, c.l).batches
	require.Len(t, all, 2)
	require.Equal(t, batch, all[0].bytes)
}

// TestCleanDamagedBatch: no checksum is renewed over damage; the pass stops.
func TestCleanDamagedBatch(t *testing.T) {
	c := newCleanTest(t, nil)
	c.put("a=1")
	c.put("a=2")
	c.seal()
	c.put("a=3")
	c.seal()
	flipByte(t, c.o.FS, c.l.disk.path(segmentName(0, logExt)), 70)
	_, err := c.l.Clean(time.UnixMilli(c.nowMs))
	require.ErrorIs(t, err, protocol.ErrCorruptBatch)
	require.NoError(t, c.l.Err())
	require.Len(t, c.l.Segments(), 2)
}

// TestCleanWhileReading: reads in flight see the old segments or the new one, and both
// are right.
func TestCleanWhileReading(t *testing.T) {
	c := newCleanTest(t, func(o *Options) { o.Config.SegmentBytes = 2000 })
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				b := c.l.Bounds()
				r, err := c.l.Read(nil, b.Start, ReadOptions{MaxBytes: 1 << 20, UpTo: b.HighWatermark})
				if err != nil {
					t.Error(err)
					return
				}
				checkStored(t, r.Data)
			}
		})
	}
	for i := range 200 {
		c.nowMs += 10
		c.put(fmt.Sprintf("key-%d=%d", i%7, i), fmt.Sprintf("key-%d=%d", i%5, i))
		if i%10 == 9 {
			c.seal()
			c.clean()
			require.NoError(t, c.l.ApplyRetention(time.UnixMilli(c.nowMs)))
		}
	}
	close(stop)
	wg.Wait()
	require.Less(t, len(storedTruth(t, c.l).records()), 20)
}

// checkStored checks that data is whole batches with good checksums.
func checkStored(t *testing.T, data []byte) {
	for len(data) > 0 {
		h, err := protocol.ParseBatchHeader(data)
		if err != nil || h.Size() > len(data) || protocol.VerifyCRC(&h, data[:h.Size()]) != nil {
			t.Errorf("a read returned a batch that is not whole: %v", err)
			return
		}
		data = data[h.Size():]
	}
}

func TestOffsetMap(t *testing.T) {
	m := newOffsetMap(24*4096, [2]uint64{1, 2})
	n := 0
	for ; m.put(fmt.Appendf(nil, "key-%d", n), int64(n)); n++ {
	}
	require.Equal(t, 3072, n, "three in four slots are used")
	require.False(t, m.put([]byte("another"), 1))
	require.True(t, m.put([]byte("key-7"), 9), "a known key has its place")
	require.Equal(t, int64(9), m.get([]byte("key-7")))
	require.Equal(t, int64(8), m.get([]byte("key-8")))
	require.Equal(t, int64(-1), m.get([]byte("another")))
	require.Zero(t, testing.AllocsPerRun(100, func() { m.get([]byte("key-8")) }))
}
