package cooperative

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEqualWorkersGetEqualShares: 100,000 records with uniform keys and 16 workers that
// take a millisecond for each. In KeyRange a worker's share is that of its slots.
func TestEqualWorkersGetEqualShares(t *testing.T) {
	const records, workers = 100_000, 16
	for _, m := range benchModes {
		for _, batch := range []int{20, 500} {
			t.Run(fmt.Sprintf("mode=%s/batch=%d", m.name, batch), func(t *testing.T) {
				c := benchConfig(m.mode)
				c.Assignment = testConfig(KeyRange).Assignment
				name := func(i int) string { return fmt.Sprintf("w%02d", i) }
				for i := range workers {
					c.Assignment = join(c.Assignment, name(i))
				}
				x := newBench(c, uniform(50_000))
				got := simulate(x, records, workers, batch, name)
				for i, n := range got {
					require.InDelta(t, records/workers, n, records/workers/5, "worker %d of %v", i, got)
				}
			})
		}
	}
}

// simulate lets workers take the records, produced in steps of 500, and gives how many
// each took.
func simulate(x *bench, records, workers, batch int, name func(int) string) []int {
	got := make([]int, workers)
	busyUntil := make([]int64, workers)
	held := make([][]Ack, workers)
	for total := 0; total < records; x.now++ {
		if left := int64(records) - x.d.FeedFrom(); left > 0 && (x.d.WantsRecords() || x.now%31 == 0) {
			x.feed(min(500, left))
		}
		for k := range workers {
			i := (k + int(x.now)) % workers
			if busyUntil[i] > x.now {
				continue
			}
			if held[i] != nil {
				x.told = x.d.Acknowledge(x.told[:0], name(i), held[i], x.now, &x.out)
				held[i] = nil
			}
			for _, g := range x.d.Acquire(nil, name(i), Want{MaxRecords: batch}, x.now, &x.out) {
				held[i] = append(held[i], Ack{g.Run, Accept})
				n := int(g.End - g.Start)
				got[i] += n
				total += n
				busyUntil[i] = max(busyUntil[i], x.now) + int64(n)
			}
			if held[i] == nil {
				x.d.Wait(name(i), batch)
			}
		}
		x.out.Reset()
	}
	return got
}

// TestNewRecordsAreSpread: the first of the waiting fetches does not take all, but none
// gets less than an eighth of its batch while there is that much.
func TestNewRecordsAreSpread(t *testing.T) {
	m := newModel(testConfig(RoundRobin))
	for _, w := range testMembers {
		m.d.Wait(w, 80)
		m.waiting = append(m.waiting, w)
	}
	appendNull := func(n int) {
		for range n {
			m.append(&Key{Null: true})
		}
		require.NoError(t, m.serve())
	}
	appendNull(40)
	shares := map[string]int{}
	for _, r := range m.records {
		shares[r.member]++
	}
	require.Equal(t, map[string]int{"a": 10, "b": 10, "c": 10, "d": 10}, shares)
	require.Empty(t, m.waiting)

	m.d.Wait("a", 80)
	m.d.Wait("b", 80)
	m.waiting = []string{"a", "b"}
	appendNull(12)
	require.Empty(t, m.waiting, "a gets 10, an eighth of its batch, and b what is left")
	appendNull(1)
	require.Equal(t, Available, m.d.Explain(52).State)
}
