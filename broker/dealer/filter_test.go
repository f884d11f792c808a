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

// only is a query for the records of some keys.
func only(t testing.TB, member string, most int, keys ...string) *Query {
	var asked protocol.KeyFilter
	for _, key := range keys {
		asked.Keys = append(asked.Keys, []byte(key))
	}
	f, err := NewFilter(asked.AppendTo(nil))
	require.NoError(t, err)
	q := query(member, most)
	q.Filter = f
	return q
}

// Once the slots of a log are known, batches in which nothing matches are neither read nor
// decompressed, whoever searches it.
func TestFiltersUseTheSlotIndex(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.groups.join("a", "b")
		for range 100 {
			r.produce(repeated("many", 50)...)
		}
		r.produce("many", "few", "many")
		for range 100 {
			r.produce(repeated("many", 50)...)
		}
		r.produce("one")
		require.Equal(t, []int64{10_003}, r.begin(only(t, "a", 1, "one")).offsets(), "which goes through all of it")
		before := r.filters.Stats()
		require.Equal(t, []int64{5001}, r.begin(only(t, "b", 10, "few")).offsets())
		synctest.Wait()
		after := r.filters.Stats()
		require.EqualValues(t, 1, after.BatchesDecoded-before.BatchesDecoded)
		require.Less(t, after.SegmentReadBytes-before.SegmentReadBytes, int64(1000))
	})
}

// What transactions aborted is found by nobody under read_committed, whether batches were
// passed over in between or not.
func TestFiltersLeaveOutWhatWasAborted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.change(func(s *Settings) { s.ReadCommitted = true })
		r.groups.join("a", "b")
		transaction := func(producer int64, commits bool, batches ...[]string) {
			o := protocol.PlainBatch(0)
			o.Transactional, o.ProducerID, o.ProducerEpoch, o.BaseSequence = true, producer, 0, 0
			for _, keys := range batches {
				r.produceAs(o, keys...)
				o.BaseSequence += int32(len(keys))
			}
			r.endTransaction(producer, commits)
		}
		transaction(1, false, []string{"x"}, []string{"y"}) // 0, 1, marker at 2
		transaction(1, true, []string{"y"}, []string{"x"})  // 3, 4, marker at 5
		transaction(2, false, []string{"x"})                // 6, marker at 7
		transaction(1, false, []string{"x"})                // 8, marker at 9
		transaction(1, true, []string{"x"}, []string{"y"})  // 10, 11, marker at 12
		require.Equal(t, []int64{4, 10}, r.begin(only(t, "a", 9, "x")).offsets())
		require.Equal(t, []int64{3, 11}, r.begin(only(t, "b", 9, "y")).offsets(), "by the index that there is now")
	})
}

// A batch of which some cannot be read is found as others read it: their keys are the same.
func TestFiltersFindDamagedBatchesAsOthersDo(t *testing.T) {
	for _, mode := range []share.Mode{share.RoundRobin, share.KeyOrdered} {
		bubble(t, func(t *testing.T, r *rig) {
			r.groups.mode(mode)
			r.groups.join("a", "b")
			var b protocol.BatchBuilder
			b.Reset(protocol.PlainBatch(0))
			for i := range 6 {
				b.Append(fmt.Append(nil, "k", i%2), []byte("value"), nil, 1)
			}
			batch, err := b.Build(nil)
			require.NoError(t, err)
			batch[len(batch)-14] = 0x7f // the length of the last record
			binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli)))
			r.append(batch)
			require.Equal(t, []int64{0}, r.fetch("a", 1))
			got := r.begin(only(t, "b", 10, "k1")).offsets()
			require.Equal(t, []int64{1, 3, 5}, got, "the last could not be read")
			r.mustAck("a", cooperative.Accept, 0, 1)
			require.Equal(t, []int64{2, 4}, r.fetch("a", 10))
		})
	}
}

// Workers with filters that leave nothing out get everything once, in the order of its keys,
// beside others without.
func TestFilteredAndUnfilteredWorkersGetEverythingOnce(t *testing.T) {
	for _, mode := range []share.Mode{share.RoundRobin, share.KeyOrdered} {
		bubble(t, func(t *testing.T, r *rig) {
			r.groups.mode(mode)
			r.groups.join("a", "b", "c")
			var keys []string
			for i := range 1000 {
				keys = append(keys, fmt.Sprint("k", i*i%17))
			}
			for batch := range slices.Chunk(keys, 30) {
				r.produce(batch...)
			}
			slots := func(lo, hi uint16) *Filter {
				asked := protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: lo, Hi: hi}}}
				f, err := NewFilter(asked.AppendTo(nil))
				require.NoError(t, err)
				return f
			}
			filters := map[string]*Filter{"a": slots(0, 30_000), "b": slots(30_001, 65_535), "c": nil}
			got := make(map[int64]int)
			last := make(map[string]int64)
			for len(got) < len(keys) {
				for _, member := range []string{"a", "b", "c"} {
					q := query(member, 20)
					q.Filter, q.MaxWait = filters[member], 1
					f := r.begin(q)
					for _, offset := range f.offsets() {
						got[offset]++
						key := keys[offset]
						if mode == share.KeyOrdered {
							require.GreaterOrEqual(t, offset, last[key])
							last[key] = offset
						}
						if q.Filter != nil {
							require.True(t, q.Filter.slots.Match([]byte(key), offset))
						}
						r.mustAck(member, cooperative.Accept, offset, offset+1)
					}
				}
			}
			for offset, n := range got {
				require.Equal(t, 1, n, "offset %d", offset)
			}
		})
	}
}
