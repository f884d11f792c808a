package dealer

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/broker/share"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/protocol"
)

// repeated is n times a key.
func repeated(key string, n int) []string { return slices.Repeat([]string{key}, n) }

// The records of a hot key that are not kept in memory, but read again, may be deleted
// meanwhile.
func TestLogStartPassesWhatIsReadAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.change(func(s *Settings) { s.Limits.WaitingMaxBytes = 64 })
		r.groups.mode(share.KeyOrdered)
		r.groups.join("a")
		for range 40 {
			r.produce(repeated("hot", 50)...)
		}
		require.Equal(t, []int64{0}, r.fetch("a", 1))
		_, err := r.log().DeleteRecords(1500)
		require.NoError(t, err)
		synctest.Wait()
		for x := int64(1500); x < 2000; {
			got := r.fetch("a", 100)
			require.Equal(t, x, got[0])
			x = got[len(got)-1] + 1
			r.mustAck("a", cooperative.Accept, got[0], x)
		}
		synctest.Wait()
		require.EqualValues(t, 2000, r.stable())
	})
}

// All of one key, much more than is kept: it all comes, in order.
func TestOneKey(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.change(func(s *Settings) { s.Limits.WaitingMaxBytes = 64 })
		r.groups.mode(share.KeyOrdered)
		r.groups.join("a", "b")
		for range 20 {
			r.produce(repeated("hot", 500)...)
		}
		next := int64(0)
		for turn := 0; next < 10_000; turn++ {
			member := []string{"a", "b"}[turn%2]
			got := r.fetch(member, 500)
			require.Equal(t, between(next, next+int64(len(got))), got)
			r.mustAck(member, cooperative.Accept, next, next+int64(len(got)))
			next += int64(len(got))
		}
	})
}

// A batch that cannot be decompressed is dealt whole, once, and holds nothing up.
func TestBatchThatCannotBeRead(t *testing.T) {
	for _, mode := range []share.Mode{share.RoundRobin, share.KeyOrdered, share.KeyRange} {
		t.Run(mode.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.groups.settings.KeyRangeInitial = 1
				r.groups.mode(mode)
				r.groups.join("a")
				r.produce("k")
				var b protocol.BatchBuilder
				o := protocol.PlainBatch(0)
				o.Codec = protocol.CodecLz4 // zstd's coders are pooled and have channels, which must not leave a bubble
				b.Reset(o)
				for i := range 3 {
					b.Append(fmt.Append(nil, i), []byte("value"), nil, 1)
				}
				batch, err := b.Build(nil)
				require.NoError(t, err)
				clear(batch[61:])
				binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli)))
				r.append(batch)
				r.produce("k")
				f := r.begin(query("a", 10))
				require.Equal(t, upTo(5), f.offsets())
				data := f.records()
				require.Contains(t, string(data), string(batch[21:]), "as it is")
				r.mustAck("a", cooperative.Accept, 0, 5)
				synctest.Wait()
				require.EqualValues(t, 5, r.stable())
			})
		})
	}
}

// In the strict mode a fetch gets what it asked for of a large batch; else the batch.
func TestWholeBatches(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.produceN(500)
		r.produceN(500)
		r.groups.join("a")
		require.Equal(t, []int64{0}, r.fetch("a", 1))
		q := query("a", 2)
		q.WholeBatches = true
		require.Equal(t, between(1, 500), r.begin(q).offsets())
		require.Equal(t, between(500, 503), r.fetch("a", 3))
	})
}

// The limit of acquired records is of their number, not of how far they lie apart.
func TestLockLimitCountsRecords(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.change(func(s *Settings) { s.Limits.Acquired = 10 })
		for range 20 {
			r.produceN(500)
		}
		r.groups.join("a", "b")
		require.Equal(t, []int64{0}, r.fetch("a", 1)) // which a keeps
		for next := int64(1); next < 10_000; {
			got := r.fetch("b", 100)
			require.Equal(t, between(next, min(next+9, 10_000)), got)
			next = got[len(got)-1] + 1
			r.mustAck("b", cooperative.Accept, got[0], next)
		}
		require.EqualValues(t, 0, r.stable())
	})
}

// What was dealt and deleted before it was sent is left out.
func TestDeletedBeforeItIsSent(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.produceN(3)
		r.produceN(3)
		r.groups.join("a")
		f := r.begin(query("a", 6))
		require.Equal(t, upTo(6), f.offsets())
		_, err := r.log().DeleteRecords(3)
		require.NoError(t, err)
		require.Equal(t, []int64{3, 4, 5}, offsetsOf(t, f.records()))
	})
}
