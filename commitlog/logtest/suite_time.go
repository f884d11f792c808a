package logtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
)

func testDeleteRecords(t *testing.T, s *suite) {
	l := s.start()
	for range 20 {
		s.append(Plain(), 3)
		require.NoError(t, l.Seal())
	}
	_, err := l.DeleteRecords(61)
	require.ErrorIs(t, err, commitlog.ErrOffsetOutOfRange)
	_, err = l.DeleteRecords(-2)
	require.ErrorIs(t, err, commitlog.ErrOffsetOutOfRange)

	start, err := l.DeleteRecords(31) // within a batch
	require.NoError(t, err)
	require.Equal(t, int64(31), start)
	require.Equal(t, commitlog.Bounds{Start: 31, LSO: 60, HighWatermark: 60, End: 60}, l.Bounds())
	_, err = l.Read(nil, 30, commitlog.ReadOptions{MaxBytes: 1 << 20, UpTo: 60})
	require.ErrorIs(t, err, commitlog.ErrOffsetOutOfRange)
	h, err := protocol.ParseBatchHeader(s.read(31, 1<<20, -1, true).Data)
	require.NoError(t, err)
	require.Equal(t, int64(30), h.BaseOffset, "the batch that holds the log start")

	start, err = l.DeleteRecords(10)
	require.NoError(t, err)
	require.Equal(t, int64(31), start, "the log start never falls")
	start, err = l.DeleteRecords(-1)
	require.NoError(t, err)
	require.Equal(t, int64(60), start, "-1 is the high watermark")
	require.Equal(t, int64(60), s.append(Plain(), 1).Base)
	require.Equal(t, int64(60), s.append(Plain(), 1).LogStart)
}

func testTimestamps(t *testing.T, s *suite) {
	l := s.start()
	_, ok, err := l.OffsetForTimestamp(0)
	require.NoError(t, err)
	require.False(t, ok)
	_, ok, err = l.MaxTimestamp()
	require.NoError(t, err)
	require.False(t, ok)
	times := []int64{Now - 50, Now - 40, Now - 45, Now - 10, Now - 20, Now - 10}
	for _, ms := range times {
		Append(t, l, Batch(t, Plain(), 2, ms), commitlog.AppendOptions{})
		require.NoError(t, l.Seal())
	}
	for _, c := range []struct{ ms, offset, at int64 }{
		{0, 0, Now - 50}, {Now - 50, 0, Now - 50}, {Now - 49, 2, Now - 40}, {Now - 40, 2, Now - 40},
		{Now - 39, 6, Now - 10}, {Now - 10, 6, Now - 10}, {Now - 9, -1, 0},
	} {
		found, ok, err := l.OffsetForTimestamp(c.ms)
		require.NoError(t, err)
		require.Equal(t, c.offset >= 0, ok)
		if ok {
			require.Equal(t, commitlog.TimestampedOffset{Offset: c.offset, TimestampMs: c.at}, found)
		}
	}
	found, ok, err := l.MaxTimestamp()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, commitlog.TimestampedOffset{Offset: 6, TimestampMs: Now - 10}, found, "the first of the latest")

	_, err = l.DeleteRecords(7)
	require.NoError(t, err)
	found, _, err = l.MaxTimestamp()
	require.NoError(t, err)
	require.Equal(t, commitlog.TimestampedOffset{Offset: 7, TimestampMs: Now - 10}, found)
}

func testAppendTime(t *testing.T, s *suite) {
	s.config.LogAppendTime = true
	l := s.start()
	a := Append(t, l, Batch(t, Produced(1, 0, 0), 2, 5), commitlog.AppendOptions{})
	require.Equal(t, int64(Now), a.AppendTimeMs)
	h, err := protocol.ParseBatchHeader(s.read(0, 1000, -1, true).Data)
	require.NoError(t, err)
	require.True(t, h.LogAppendTime())
	require.Equal(t, int64(Now), h.MaxTimestamp)
	require.NoError(t, protocol.VerifyCRC(&h, s.read(0, 1000, -1, true).Data))
	a = Append(t, l, Batch(t, Produced(1, 0, 0), 2, 5), commitlog.AppendOptions{})
	require.True(t, a.Duplicate)
	require.Equal(t, int64(Now), a.AppendTimeMs, "of the first time")
	found, ok, err := l.OffsetForTimestamp(Now)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, commitlog.TimestampedOffset{Offset: 0, TimestampMs: Now}, found)
}

func testRefused(t *testing.T, s *suite) {
	s.config.MaxMessageBytes = 200
	s.config.TimestampBeforeMaxMs = 1000
	s.config.TimestampAfterMaxMs = 100
	l := s.start()
	s.refuse(Plain(), 10, commitlog.ErrTooLarge)
	for ms, want := range map[int64]error{
		Now - 1001: commitlog.ErrInvalidTimestamp, Now - 1000: nil,
		Now + 101: commitlog.ErrInvalidTimestamp, Now + 100: nil, -1: nil,
	} {
		_, err := l.Append(Batch(t, Plain(), 1, ms), commitlog.AppendOptions{})
		require.ErrorIs(t, err, want, "%d", ms)
	}
	_, err := l.Append(Marker(t, 1, 0, true, 0, Now), commitlog.AppendOptions{})
	require.ErrorIs(t, err, protocol.ErrInvalidRecord, "only the broker writes markers")
	var b protocol.BatchBuilder
	b.Reset(Plain())
	for _, ms := range []int64{Now, Now - 2000, Now} { // neither the first nor the latest
		b.Append([]byte("key"), nil, nil, ms)
	}
	batch, err := b.Build(nil)
	require.NoError(t, err)
	_, err = l.Append(batch, commitlog.AppendOptions{})
	require.ErrorIs(t, err, commitlog.ErrInvalidTimestamp)
	_, err = l.Append(Batch(t, Plain(), 1, Now)[:60], commitlog.AppendOptions{})
	require.ErrorIs(t, err, protocol.ErrCorruptBatch)
	Append(t, l, Batch(t, Plain(), 10, 1), commitlog.AppendOptions{Internal: true}) // the broker's own are not judged
}
