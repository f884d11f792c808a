package processor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/statestore"
)

func at(seconds float64) time.Time { return time.Unix(0, int64(seconds*1e9)) }

func TestSchedulesGoOnWhereTheyWere(t *testing.T) {
	var before schedules
	nothing := func(time.Time) error { return nil }
	for _, every := range []time.Duration{2 * time.Second, 5 * time.Second, 2 * time.Second} {
		before.add(every, StreamTime, nothing, at(100), time.Time{})
	}
	before.add(time.Second, WallClock, nothing, at(100), time.Time{})
	before.begin(at(3))
	before.all[0].passed(at(100), at(9)) // of what is due at 9 only the first was punctuated

	stored := before.appendStreamTime(nil, at(9))
	streamTime, kept, err := decodeStreamTime(stored)
	require.NoError(t, err)
	require.True(t, streamTime.Equal(at(9)))
	after := schedules{kept: kept}
	for _, every := range []time.Duration{2 * time.Second, 2 * time.Second, 2 * time.Second, 5 * time.Second, 3 * time.Second} {
		after.add(every, StreamTime, nothing, at(200), streamTime)
	}
	for i, next := range []float64{10, 4, 10, 5, 12} {
		require.True(t, after.all[i].next.Equal(at(next)), "%d: %v", i, after.all[i].next)
	}

	// What was processed before passes nothing that is due already.
	after.skip(at(9), at(10))
	for i, next := range []float64{12, 4, 12, 5, 12} {
		require.True(t, after.all[i].next.Equal(at(next)), "%d: %v", i, after.all[i].next)
	}
}

func FuzzStreamTime(f *testing.F) {
	f.Add([]byte{streamTimeVersion, 2, 2, 4, 6})
	f.Fuzz(func(t *testing.T, b []byte) {
		streamTime, kept, err := decodeStreamTime(b)
		if err != nil {
			require.ErrorIs(t, err, statestore.ErrCorrupt)
			return
		}
		var s schedules
		for _, k := range kept {
			s.all = append(s.all, &schedule{every: k.every, by: StreamTime, next: k.next})
		}
		again, same, err := decodeStreamTime(s.appendStreamTime(nil, streamTime))
		require.NoError(t, err)
		require.True(t, streamTime.Equal(again))
		require.Equal(t, kept, same)
	})
}
