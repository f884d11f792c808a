package dealer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/protocol"
)

// produceSized appends one batch with records of these sizes.
func (r *rig) produceSized(codec protocol.Codec, bytes ...int) {
	r.t.Helper()
	var b protocol.BatchBuilder
	o := protocol.PlainBatch(0)
	o.Codec = codec
	b.Reset(o)
	for _, n := range bytes {
		b.Append(nil, []byte(strings.Repeat("v", n)), nil, 1)
	}
	batch, err := b.Build(nil)
	require.NoError(r.t, err)
	r.append(batch)
}

// A fetch stays below its limit of bytes whatever the sizes of records and batches are, and
// whatever of them it gets; only its first batch may be larger. What has no room comes with
// a later fetch, for the first time.
func TestMaxBytes(t *testing.T) {
	for seed := range uint64(20) {
		bubble(t, func(t *testing.T, r *rig) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			n := int64(0)
			for range 1 + rnd.IntN(30) {
				sizes := make([]int, 1+rnd.IntN(20))
				for i := range sizes {
					sizes[i] = []int{10, 100, 5000}[rnd.IntN(3)]
				}
				r.produceSized([]protocol.Codec{protocol.CodecNone, protocol.CodecLz4}[rnd.IntN(2)], sizes...)
				n += int64(len(sizes))
			}
			r.groups.join("a", "b")
			var kept []int64 // what b has, between that which a gets
			for done := 0; done < int(n)-len(kept); {
				if rnd.IntN(4) == 0 && done+len(kept)+10 < int(n) {
					kept = append(kept, r.fetch("b", 1+rnd.IntN(5))...)
				}
				q := query("a", 1+rnd.IntN(100))
				q.MaxBytes = 1 + rnd.IntN(20_000)
				q.WholeBatches = rnd.IntN(2) == 0
				f := r.begin(q)
				f.offsets()
				data := f.records()
				if len(data) > q.MaxBytes {
					h, err := protocol.ParseBatchHeader(data)
					require.NoError(t, err)
					require.Equal(t, h.Size(), len(data), "more than one batch, limit %d", q.MaxBytes)
				}
				done += f.acceptFirst(offsetsOf(t, data))
			}
			slices.Sort(kept)
			for _, offset := range kept {
				r.mustAck("b", cooperative.Accept, offset, offset+1)
			}
			require.Equal(t, n, r.stable())
		})
	}
}

// acceptFirst accepts what a fetch got, all of it for the first time and among the records
// that were sent, and gives how many that are.
func (f *pending) acceptFirst(sent []int64) (n int) {
	f.r.t.Helper()
	for _, g := range f.dealt[0].Deliveries {
		require.EqualValues(f.r.t, 1, g.Count)
		for offset := g.Start; offset < g.End; offset++ {
			require.Contains(f.r.t, sent, offset)
			n++
		}
		f.r.mustAck(f.q.Member, cooperative.Accept, g.Start, g.End)
	}
	require.Positive(f.r.t, n, "one comes in any case")
	return n
}
