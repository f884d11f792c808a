package group

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestViewBytes holds the bytes that a view keeps of a transaction, since one version of
// the program writes them and another may read them.
func TestViewBytes(t *testing.T) {
	s := NewState(DefaultConfig())
	r := pendingRecord(Producer{ID: 0x0102, Epoch: 3}, "g", TopicPartition{"t", 1}, &Committed{Offset: 5, LeaderEpoch: -1, ExpireMs: -1})
	s.Apply(&r)
	plain := offsetRecord("g", TopicPartition{"t", 1}, &Committed{Offset: 4, ExpireMs: -1})
	const key = "ffff 0000000000000102 0001 0001 67 0001 74 00000001"
	const rest = "0003 0000000000000001 0004 0000000000000005 ffffffff 01 0000000000000000 00"
	changes := func() map[string]string {
		found := make(map[string]string)
		s.ViewChanges(func(key, value []byte) {
			require.NotContains(t, found, string(key))
			found[string(key)] = string(value)
		})
		return found
	}
	require.Equal(t, map[string]string{string(unhex(t, key)): string(unhex(t, "00"+rest))}, changes())
	require.Empty(t, changes())
	s.Apply(&plain)
	require.Equal(t, map[string]string{string(unhex(t, key)): string(unhex(t, "01"+rest))}, changes())
	s.EndTransaction(0x0102, true)
	require.Equal(t, map[string]string{string(unhex(t, key)): ""}, changes())
}

func FuzzLoadView(f *testing.F) {
	s := NewState(DefaultConfig())
	for id := range int64(2) {
		r := pendingRecord(Producer{ID: id, Epoch: 3}, "g", TopicPartition{"t", 1}, &Committed{Offset: 5, Metadata: "m", ExpireMs: -1})
		s.Apply(&r)
	}
	s.ViewChanges(func(key, value []byte) { f.Add(key, value) })
	f.Add([]byte{0xff, 0xff}, []byte{})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		s := NewState(DefaultConfig())
		if err := s.LoadView(key, value); err != nil {
			require.ErrorIs(t, err, ErrBadRecord)
			require.Zero(t, s.Len())
			return
		}
		require.NoError(t, s.CheckInvariants())
		s.Loaded(time.UnixMilli(0), &Output{})
		require.ErrorIs(t, s.LoadView(key, value), ErrBadRecord, "twice")
		for _, transaction := range s.pending.byProducer {
			for _, p := range transaction {
				s.pending.changed[p.key()] = struct{}{}
			}
		}
		again := NewState(DefaultConfig())
		s.ViewChanges(func(key, value []byte) { require.NoError(t, again.LoadView(key, value)) })
		require.Equal(t, s.pending.byProducer, again.pending.byProducer)
	})
}
