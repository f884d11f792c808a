package logtest

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
)

// Open makes an empty log with leader epoch 0.
type Open func(t testing.TB, c commitlog.Config, now func() time.Time) Log

// Now is the time of the suite, in ms.
const Now = 1_700_000_000_000

// Run runs the contract against the implementation.
func Run(t *testing.T, open Open) {
	for name, test := range map[string]func(t *testing.T, s *suite){
		"offsets":       testOffsets,
		"read limits":   testReadLimits,
		"out of range":  testOutOfRange,
		"duplicates":    testDuplicates,
		"sequences":     testSequences,
		"wrap":          testSequenceWrap,
		"fencing":       testFencing,
		"transactions":  testTransactions,
		"markers":       testMarkers,
		"delete":        testDeleteRecords,
		"timestamps":    testTimestamps,
		"append time":   testAppendTime,
		"refused":       testRefused,
		"watch":         testWatch,
		"epochs":        testEpochs,
		"closed":        testClosed,
		"across chunks": testAcrossSegments,
	} {
		t.Run(name, func(t *testing.T) {
			c := commitlog.DefaultConfig()
			c.SegmentBytes = 1000 // several segments in each test
			test(t, &suite{t: t, open: open, config: c})
		})
	}
}

// suite is one case.
type suite struct {
	t      *testing.T
	open   Open
	config commitlog.Config
	log    Log
}

func (s *suite) start() Log {
	s.log = s.open(s.t, s.config, func() time.Time { return time.UnixMilli(Now) })
	s.t.Cleanup(func() { _ = s.log.Close() })
	return s.log
}

// append appends n records and waits.
func (s *suite) append(o protocol.BatchOptions, n int) commitlog.Appended {
	s.t.Helper()
	return Append(s.t, s.log, Batch(s.t, o, n, Now), commitlog.AppendOptions{})
}

func (s *suite) refuse(o protocol.BatchOptions, n int, err error) {
	s.t.Helper()
	before := s.log.Bounds()
	_, got := s.log.Append(Batch(s.t, o, n, Now), commitlog.AppendOptions{})
	require.ErrorIs(s.t, got, err)
	require.Equal(s.t, before, s.log.Bounds(), "a refused batch leaves no trace")
}

func (s *suite) marker(id int64, epoch int16, commit bool, coordinator int32) commitlog.Appended {
	s.t.Helper()
	return Append(s.t, s.log, Marker(s.t, id, epoch, commit, coordinator, Now), commitlog.AppendOptions{Internal: true})
}

// read reads up to UpTo, or the high watermark if it is below 0.
func (s *suite) read(from int64, maxBytes int, upTo int64, minOne bool) commitlog.Read {
	s.t.Helper()
	if upTo < 0 {
		upTo = s.log.Bounds().HighWatermark
	}
	r, err := s.log.Read(nil, from, commitlog.ReadOptions{MaxBytes: maxBytes, UpTo: upTo, MinOne: minOne})
	require.NoError(s.t, err)
	return r
}

func testOffsets(t *testing.T, s *suite) {
	l := s.start()
	require.Equal(t, commitlog.Bounds{}, l.Bounds())
	require.Empty(t, s.read(0, 1000, -1, true).Data)
	for i, n := range []int{1, 3, 2} {
		a := s.append(Plain(), n)
		want := []int64{0, 1, 4}[i]
		require.Equal(t, commitlog.Appended{Base: want, Last: want + int64(n) - 1, AppendTimeMs: -1, Flush: a.Flush}, a)
	}
	require.Equal(t, commitlog.Bounds{LSO: 6, HighWatermark: 6, End: 6}, l.Bounds())
	r := s.read(0, 1<<20, -1, false)
	require.Equal(t, int64(6), r.Next)
	h, err := protocol.ParseBatchHeader(r.Data)
	require.NoError(t, err)
	require.NoError(t, protocol.VerifyCRC(&h, r.Data[:h.Size()]))
	require.Equal(t, r, s.read(0, 1<<20, -1, true))
	middle := s.read(2, 1<<20, -1, false)
	require.Equal(t, r.Data[h.Size():], middle.Data, "the batch that holds the offset comes whole")

	kept := []byte("before")
	again, err := l.Read(kept, 4, commitlog.ReadOptions{MaxBytes: 1 << 20, UpTo: 6})
	require.NoError(t, err)
	require.True(t, slices.Equal([]byte("before"), again.Data[:6]), "data is appended")
}

func testReadLimits(t *testing.T, s *suite) {
	s.start()
	one := Batch(t, Plain(), 2, Now)
	for range 5 {
		s.append(Plain(), 2)
	}
	size := len(one)
	require.Equal(t, int64(4), s.read(0, 2*size, -1, false).Next)
	require.Equal(t, int64(4), s.read(0, 3*size-1, -1, false).Next)
	require.Equal(t, int64(0), s.read(0, size-1, -1, false).Next, "too large, and nothing is due")
	require.Equal(t, int64(2), s.read(0, size-1, -1, true).Next, "the first comes all the same")
	require.Equal(t, int64(2), s.read(0, 0, -1, true).Next)
	require.Equal(t, int64(6), s.read(0, 1<<20, 6, false).Next)
	require.Equal(t, int64(4), s.read(0, 1<<20, 5, false).Next, "only batches that end at or below it")
	require.Equal(t, int64(2), s.read(2, 1<<20, 2, true).Next)
	require.Equal(t, int64(10), s.read(0, 1<<20, math.MaxInt64, false).Next)
}

func testOutOfRange(t *testing.T, s *suite) {
	l := s.start()
	s.append(Plain(), 3)
	for _, from := range []int64{-1, 4, math.MaxInt64} {
		_, err := l.Read(nil, from, commitlog.ReadOptions{MaxBytes: 100, UpTo: 3})
		require.ErrorIs(t, err, commitlog.ErrOffsetOutOfRange)
	}
	require.Empty(t, s.read(3, 100, -1, true).Data)
}

func testAcrossSegments(t *testing.T, s *suite) {
	l := s.start()
	for range 30 {
		s.append(Plain(), 2)
		require.NoError(t, l.Seal())
	}
	r := s.read(0, 1<<20, -1, false)
	require.Equal(t, int64(60), r.Next, "one read goes on in the next segment")
	require.Len(t, r.Data, 30*len(Batch(t, Plain(), 2, Now)))
}

func testWatch(t *testing.T, s *suite) {
	l := s.start()
	ch := make(chan struct{}, 1)
	cancel := l.Watch(ch)
	s.append(Plain(), 1)
	<-ch
	_, err := l.DeleteRecords(1)
	require.NoError(t, err)
	<-ch
	cancel()
	s.append(Plain(), 1)
	require.Empty(t, ch, "no signal after cancel")
	l.Watch(ch)
	require.NoError(t, l.Close())
	<-ch
}

func testEpochs(t *testing.T, s *suite) {
	l := s.start()
	s.append(Plain(), 5)
	found, end := l.EndOfEpoch(0)
	require.Equal(t, []int64{0, 5}, []int64{int64(found), end})
	found, end = l.EndOfEpoch(1)
	require.Equal(t, []int64{-1, -1}, []int64{int64(found), end})
	require.Zero(t, l.EpochAt(3))
}

func testClosed(t *testing.T, s *suite) {
	l := s.start()
	s.append(Plain(), 1)
	require.NoError(t, l.Close())
	_, err := l.Append(Batch(t, Plain(), 1, Now), commitlog.AppendOptions{})
	require.ErrorIs(t, err, commitlog.ErrClosed)
}
