package commitlog

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/protocol"
)

func TestEpochHistory(t *testing.T) {
	h := epochHistory{{2, 0}, {3, 10}, {7, 20}}
	for _, c := range []struct {
		epoch, found int32
		end          int64
	}{
		{-1, -1, -1}, {0, 0, 0}, {1, 1, 0}, {2, 2, 10}, {3, 3, 20}, {4, 3, 20}, {6, 3, 20}, {7, 7, 35}, {8, -1, -1},
	} {
		found, end := h.endOf(c.epoch, 35)
		require.Equal(t, c.found, found, "epoch %d", c.epoch)
		require.Equal(t, c.end, end, "epoch %d", c.epoch)
	}
	require.Equal(t, []int32{2, 2, 3, 7, 7}, []int32{h.at(0), h.at(9), h.at(10), h.at(20), h.at(1000)})
	require.Equal(t, epochHistory{{2, 0}, {3, 10}, {8, 20}}, h.with(8, 20), "an epoch without records leaves no trace")
	require.Equal(t, epochHistory{{2, 0}, {3, 10}, {7, 20}, {8, 21}}, h.with(8, 21))
	require.Equal(t, epochHistory{{2, 0}, {9, 5}}, h.with(9, 5))
	require.Equal(t, epochHistory{{3, 10}, {7, 20}}, h.from(19))
	require.Equal(t, epochHistory{{7, 20}}, h.from(20))
	require.Equal(t, h, h.from(0))
	later := h.from(15)
	require.True(t, later.allows(5, 2), "older than what is known")
	require.False(t, later.allows(5, 4))
	require.False(t, later.allows(12, 2))
	require.True(t, epochHistory(nil).allows(12, 2))
}

func testState() logState {
	return logState{
		start: 1200, cleaned: 900, holes: 1000, suspectBase: 1000, suspectBytes: 65536,
		epochs: epochHistory{{0, 0}, {1, 1100}},
	}
}

func TestStateFile(t *testing.T) {
	s := testState()
	text := string(s.appendTo(nil))
	require.Equal(t, `lacuna partition log, version 1
start 1200
cleaned 900
holes 1000
suspect 1000 65536
epoch 0 0
epoch 1 1100
crc32c 56510f73
`, text)
	got, err := parseLogState([]byte(text))
	require.NoError(t, err)
	require.Equal(t, s, got)
}

func TestSequenceArithmetic(t *testing.T) {
	const top = 1<<31 - 1
	require.Equal(t, int32(0), sequenceAfter(top, 1))
	require.Equal(t, int32(4), sequenceAfter(top-5, 10))
	require.Equal(t, int32(top-5), sequenceBefore(4, 10))
	require.Equal(t, int32(-1), sequenceAfter(-1, 10))
	require.Equal(t, int32(-1), sequenceBefore(-1, 10))
}

func testIndexFile() []byte {
	ps := newProducers()
	h := protocol.BatchHeader{BaseOffset: 110, LastOffsetDelta: 2, ProducerID: 7, ProducerEpoch: 3, BaseSequence: 5, MaxTimestamp: 99}
	ps.applyData(&h, 1000)
	return appendIndexFile(nil,
		indexHeader{sealed: true, base: 100, dataBytes: 5000, next: 150, stats: segmentStats{firstTimestamp: 1, maxTimestamp: 9, lastEpoch: 2, compacted: true}},
		[]indexEntry{{0, 0, -1}, {10, 700, 5}, {40, 4000, 9}},
		[]abortedTxn{{producerID: 7, first: 104, last: 120, stable: 121}},
		ps.appendTo(nil))
}

func TestIndexFile(t *testing.T) {
	x, err := parseIndexFile(testIndexFile(), 100)
	require.NoError(t, err)
	require.True(t, x.header.sealed)
	require.Equal(t, []indexEntry{{0, 0, -1}, {10, 700, 5}, {40, 4000, 9}}, x.index.entries.view())
	require.Equal(t, []abortedTxn{{producerID: 7, first: 104, last: 120, stable: 121}}, x.index.aborted.view())
	ps, err := parseProducers(x.producers)
	require.NoError(t, err)
	require.Equal(t, int32(7), ps.byID[7].lastSequence())
	require.Equal(t, indexEntry{10, 700, 5}, x.index.floor(39))
	require.Equal(t, indexEntry{0, 0, -1}, x.index.floor(9))
	require.Equal(t, indexEntry{10, 700, 5}, x.index.floorTime(6), "before it all is at most 5")
	require.Equal(t, indexEntry{0, 0, -1}, x.index.floorTime(5))
	_, err = parseIndexFile(testIndexFile(), 101)
	require.ErrorIs(t, err, errCorruptFile, "of another segment")
}

// FuzzStateFile: a state that is accepted is written back as it was.
func FuzzStateFile(f *testing.F) {
	s := testState()
	f.Add(s.appendTo(nil))
	s = newLogState()
	f.Add(s.appendTo(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseLogState(data)
		if err != nil {
			require.ErrorIs(t, err, errCorruptFile)
			return
		}
		again, err := parseLogState(s.appendTo(nil))
		require.NoError(t, err)
		require.Equal(t, s, again)
	})
}

// FuzzIndexFile: a damaged index is refused, not believed, and allocates no more than
// its size.
func FuzzIndexFile(f *testing.F) {
	f.Add(testIndexFile(), false)
	f.Fuzz(func(t *testing.T, data []byte, renew bool) {
		if renew && len(data) >= indexHeaderLen { // so that what is behind the sums is reached
			data = bytes.Clone(data)
			data = append(appendSum(data[:indexHeaderLen-sectionTrailer:indexHeaderLen-sectionTrailer], 0), data[indexHeaderLen:]...)
		}
		x, err := parseIndexFile(data, 100)
		if err != nil {
			require.ErrorIs(t, err, errCorruptFile)
			return
		}
		for offset := range int64(60) {
			e := x.index.floor(offset)
			require.LessOrEqual(t, int64(e.offset), offset)
		}
	})
}

// FuzzSnapshot: a producer snapshot that is accepted is written back as it was.
func FuzzSnapshot(f *testing.F) {
	x, err := parseIndexFile(testIndexFile(), 100)
	require.NoError(f, err)
	f.Add(x.producers)
	f.Fuzz(func(t *testing.T, data []byte) {
		ps, err := parseProducers(data)
		if err != nil {
			require.ErrorIs(t, err, errCorruptFile)
			return
		}
		again, err := parseProducers(ps.appendTo(nil))
		require.NoError(t, err)
		require.Equal(t, ps.byID, again.byID)
	})
}

// FuzzSegment: recovery of any bytes as a segment keeps exactly a prefix of good batches.
func FuzzSegment(f *testing.F) {
	var good []byte
	for i := range 3 {
		batch := plainBatch(f, 2, "value", 1000)
		protocol.SetBaseOffset(batch, int64(2*i))
		good = append(good, batch...)
	}
	f.Add(good, 0, byte(0))
	gap := bytes.Clone(good)
	protocol.SetBaseOffset(gap[2*len(gap)/3:], 9) // offsets are missing
	f.Add(gap, 0, byte(0))
	f.Add(good, 100, byte(1))
	f.Add(good[:len(good)-1], 0, byte(0))
	f.Add(append(bytes.Clone(good), make([]byte, 4096)...), 0, byte(0))
	f.Fuzz(func(t *testing.T, data []byte, at int, flip byte) {
		data = bytes.Clone(data)
		if at >= 0 && at < len(data) {
			data[at] ^= flip
		}
		fs := vfs.NewMem()
		o := testOptions(fs)
		o.Unclean = true
		require.NoError(t, fs.MkdirAll(o.Dir, 0o755))
		d := disk{fs: fs, dir: o.Dir}
		require.NoError(t, d.replace(segmentName(0, logExt), data))
		state := newLogState()
		require.NoError(t, d.writeState(&state))
		l, err := Open(o)
		require.NoError(t, err)
		require.NoError(t, l.CheckInvariants())
		all := readAll(t, l)
		require.True(t, bytes.HasPrefix(data, all))
		if b := l.Bounds(); b.End > 0 {
			require.Zero(t, b.Start)
		}
		if len(all) < len(data) {
			require.NotEmpty(t, l.Recovery().Dropped, "what is left out is reported")
			h, err := protocol.ParseBatchHeader(data[len(all):])
			whole := err == nil && h.Size() <= len(data)-len(all) && protocol.VerifyCRC(&h, data[len(all):][:h.Size()]) == nil
			require.False(t, whole && h.BaseOffset == l.Bounds().End && h.LeaderEpoch == 0, "a good batch was dropped")
		}
		a := mustAppend(t, l, plainBatch(t, 1, "goes on", 1000))
		require.NoError(t, l.Close())
		o.Unclean = false
		l, err = Open(o)
		require.NoError(t, err)
		require.Equal(t, a.Last+1, l.Bounds().End)
		require.NoError(t, l.CheckInvariants())
		require.NoError(t, l.Close())
	})
}

func TestErrorsNameTheLog(t *testing.T) {
	l := openTest(t, testOptions(vfs.NewMem()))
	_, err := l.Read(nil, 5, ReadOptions{})
	require.ErrorContains(t, err, "orders-0")
	_, err = l.Append([]byte("short"), AppendOptions{})
	require.ErrorContains(t, err, "orders-0")
	require.False(t, errors.Is(err, ErrReadOnly))
}
