package cooperative

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A record that is done while others before it are not stays in the list of its key for a
// while; when it is reopened meanwhile, it is dealt in its place.
func TestARecordIsReopenedThatIsStillInTheListOfItsKey(t *testing.T) {
	m := stocked(t, testConfig(KeyOrdered), "k", "k", "k", "k")
	m.d.leaving = leaving{steps: 0, part: 1}
	require.NoError(t, m.acquire("a", Want{MaxRecords: 4}))
	require.NoError(t, m.acknowledge("a", []Ack{{Run{Start: 2, End: 3}, Accept}}))
	require.EqualValues(t, 1, m.d.keys.at(0).left)
	require.NoError(t, m.reopen(Run{Start: 2, End: 3}))
	require.Zero(t, m.d.keys.at(0).left)
	require.NoError(t, m.acknowledge("a", []Ack{{Run{Start: 0, End: 1}, Release}}))
	var out Changes
	got := m.d.Acquire(nil, "b", Want{MaxRecords: 4}, m.now, &out)
	require.Equal(t, []Delivery{{Run{Start: 0, End: 1}, 2}, {Run{Start: 1, End: 4}, 1}}, got)
}

// A record that waits for its dead letter is no more of its key, though its link may still be.
func TestADeadLetterIsWrittenOfARecordThatIsStillInTheListOfItsKey(t *testing.T) {
	c := testConfig(KeyRange)
	c.Limits.DeadLetters = true
	c.Assignment = join(c.Assignment, "a")
	m := stocked(t, c, "k", "k", "k", "k")
	m.d.leaving = leaving{part: 1}
	require.NoError(t, m.acquire("a", Want{MaxRecords: 4}))
	require.NoError(t, m.acknowledge("a", []Ack{{Run{Start: 2, End: 3}, Reject}}))
	require.EqualValues(t, 1, m.d.keys.at(0).left)
	require.NoError(t, m.deadLettered([]int64{2}))
	require.NoError(t, m.acknowledge("a", []Ack{{Run{Start: 0, End: 2}, Accept}, {Run{Start: 3, End: 4}, Accept}}))
}

// What left a key never takes more than an eighth of what is there, in whatever order its
// records are done.
func TestRecordsThatLeftTheirKeyAreFew(t *testing.T) {
	x := newBench(benchConfig(KeyOrdered), func(int64) Key { return Key{Hash: 1} })
	x.batch = 5_000
	require.Equal(t, 5_000, x.acquire("m"))
	for offset := int64(4_999); offset > 0; offset-- {
		x.got = []Delivery{{Run: Run{Start: offset, End: offset + 1}}}
		x.acknowledge("m", Accept)
		k := x.d.keys.at(0)
		require.LessOrEqual(t, 8*uint32(k.left), k.taken)
	}
	require.NoError(t, x.d.CheckInvariants())
}

// Blocks of links have nothing in common, and a slab of which all are given back is used for
// blocks of another size.
func TestBlocksOfLinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newLinkStore()
		taken := map[block]int{} // how many links are of use
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n := rapid.IntRange(1, wordBits).Draw(t, "links")
				b := s.take(n)
				if _, twice := taken[b]; twice || s.room(b) < n {
					t.Fatalf("block %d for %d links has room for %d, is taken: %v", b, n, s.room(b), twice)
				}
				taken[b] = n
				for i := range n {
					*s.at(b, i) = link{key: uint32(b), next: ref(i)}
				}
			},
			"give": func(t *rapid.T) {
				for b := range taken {
					s.give(b)
					delete(taken, b)
					return
				}
			},
			"": func(t *rapid.T) {
				for b, n := range taken {
					for i, l := range s.of(b)[:n] {
						if l != (link{key: uint32(b), next: ref(i)}) {
							t.Fatalf("link %d of block %d is %v", i, b, l)
						}
					}
				}
			},
		})
	})
	s := newLinkStore()
	for n := 1; n <= wordBits; n++ {
		b := s.take(n)
		s.give(b)
	}
	require.Len(t, s.slabs, 1)
}
