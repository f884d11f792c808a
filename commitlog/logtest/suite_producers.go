package logtest

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/commitlog"
)

func testDuplicates(t *testing.T, s *suite) {
	l := s.start()
	for i := range int32(8) {
		s.append(Produced(7, 0, 2*i), 2)
		s.append(Plain(), 1)
	}
	end := l.Bounds().End
	for i := int32(3); i < 8; i++ { // the last five
		a := s.append(Produced(7, 0, 2*i), 2)
		require.Equal(t, commitlog.Appended{Base: 3 * int64(i), Last: 3*int64(i) + 1, AppendTimeMs: -1, Duplicate: true, Flush: a.Flush}, a)
	}
	require.Equal(t, end, l.Bounds().End)
	s.refuse(Produced(7, 0, 4), 2, commitlog.ErrOutOfOrderSequence) // the sixth
	s.refuse(Produced(7, 0, 14), 1, commitlog.ErrOutOfOrderSequence)
}

func testSequences(t *testing.T, s *suite) {
	l := s.start()
	s.append(Produced(1, 3, 17), 2) // nothing is known of it
	s.refuse(Produced(1, 3, 18), 1, commitlog.ErrOutOfOrderSequence)
	s.refuse(Produced(1, 3, 20), 1, commitlog.ErrOutOfOrderSequence)
	s.append(Produced(1, 3, 19), 1)
	s.refuse(Produced(1, 4, 20), 1, commitlog.ErrOutOfOrderSequence) // a new epoch begins at 0
	s.append(Produced(1, 4, 0), 3)
	s.append(Produced(2, 0, 0), 1)
	require.Equal(t, []commitlog.ProducerInfo{
		{ID: 1, Epoch: 4, LastSequence: 2, LastTimestampMs: Now, CoordinatorEpoch: -1, TxnFirstOffset: -1},
		{ID: 2, Epoch: 0, LastSequence: 0, LastTimestampMs: Now, CoordinatorEpoch: -1, TxnFirstOffset: -1},
	}, l.Producers())
}

func testSequenceWrap(t *testing.T, s *suite) {
	l := s.start()
	s.append(Produced(1, 0, math.MaxInt32-2), 2)
	a := s.append(Produced(1, 0, math.MaxInt32), 3) // MaxInt32, 0, 1
	require.Equal(t, int32(1), l.Producers()[0].LastSequence)
	dup := s.append(Produced(1, 0, math.MaxInt32), 3)
	require.True(t, dup.Duplicate)
	require.Equal(t, a.Base, dup.Base)
	s.append(Produced(1, 0, 2), 1)

	s.append(Produced(2, 0, math.MaxInt32), 1)
	s.append(Produced(2, 0, 0), 1)
}

func testFencing(t *testing.T, s *suite) {
	s.start()
	s.append(Produced(1, 5, 0), 1)
	s.refuse(Produced(1, 4, 0), 1, commitlog.ErrInvalidProducerEpoch)
	s.append(Produced(1, 6, 0), 1)
	s.refuse(Produced(1, 5, 0), 1, commitlog.ErrInvalidProducerEpoch) // no duplicate of a fenced one
}

func testTransactions(t *testing.T, s *suite) {
	l := s.start()
	s.append(Plain(), 2)        // 0, 1
	s.append(InTxn(1, 0, 0), 2) // 2, 3
	s.append(InTxn(2, 0, 0), 1) // 4
	s.append(Plain(), 1)        // 5
	require.Equal(t, int64(2), l.Bounds().LSO)
	s.refuse(Produced(1, 0, 2), 1, commitlog.ErrInvalidTxnState)
	require.Equal(t, int64(6), s.marker(1, 0, true, 0).Base)
	require.Equal(t, int64(4), l.Bounds().LSO)
	s.append(InTxn(1, 0, 2), 1) // 7
	s.marker(2, 0, false, 0)    // 8
	require.Equal(t, int64(7), l.Bounds().LSO)
	s.marker(1, 0, false, 0) // 9
	require.Equal(t, int64(10), l.Bounds().LSO)

	for _, c := range []struct {
		from, to int64
		want     []commitlog.AbortedTxn
	}{
		{0, 10, []commitlog.AbortedTxn{{ProducerID: 2, FirstOffset: 4}, {ProducerID: 1, FirstOffset: 7}}},
		{5, 7, []commitlog.AbortedTxn{{ProducerID: 2, FirstOffset: 4}}},
		{8, 10, []commitlog.AbortedTxn{{ProducerID: 2, FirstOffset: 4}, {ProducerID: 1, FirstOffset: 7}}},
		{9, 10, []commitlog.AbortedTxn{{ProducerID: 1, FirstOffset: 7}}},
		{0, 4, nil},
	} {
		got, err := l.AbortedTxns(c.from, c.to)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "from %d to %d", c.from, c.to)
	}
}

func testMarkers(t *testing.T, s *suite) {
	l := s.start()
	s.append(InTxn(1, 2, 0), 1)
	s.marker(1, 2, true, 5)
	refuse := func(epoch int16, coordinator int32, version int16, want error) {
		_, err := l.Append(Marker(t, 1, epoch, true, coordinator, Now), commitlog.AppendOptions{Internal: true, TransactionVersion: version})
		require.ErrorIs(t, err, want)
	}
	refuse(1, 5, 0, commitlog.ErrInvalidProducerEpoch)
	refuse(2, 4, 0, commitlog.ErrCoordinatorFenced)
	s.append(InTxn(1, 2, 1), 1)
	refuse(2, 5, 2, commitlog.ErrInvalidProducerEpoch) // version 2 raises the epoch for each marker
	s.marker(1, 3, false, 5)
	s.append(InTxn(1, 3, 0), 1) // a marker's epoch begins a new sequence
	require.Equal(t, l.Bounds().End-1, l.Bounds().LSO)
	s.marker(9, 0, true, 0) // of a producer without records
	require.Equal(t, int64(-1), l.Producers()[1].TxnFirstOffset)

	// A coordinator's own records have no sequence, only an epoch.
	o := InTxn(9, 0, -1)
	Append(t, l, Batch(t, o, 1, Now), commitlog.AppendOptions{Internal: true})
	Append(t, l, Batch(t, o, 1, Now), commitlog.AppendOptions{Internal: true})
}
