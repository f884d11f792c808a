package individualcommit

import (
	"bytes"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var anyID = rapid.Custom(func(t *rapid.T) ID {
	id := ID{
		Group:     rapid.StringN(0, 20, 40).Draw(t, "group"),
		Partition: rapid.Int32Range(0, math.MaxInt32).Draw(t, "partition"),
	}
	copy(id.Topic[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "topic"))
	return id
})

func TestKeyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := Key{
			OwnerEpoch: rapid.Int32Range(0, math.MaxInt32).Draw(t, "epoch"),
			ID:         anyID.Draw(t, "id"),
			Kind:       rapid.SampledFrom([]KeyKind{KindSnapshot, KindDelta, KindPending, KindCounts, KindOutcome}).Draw(t, "kind"),
		}
		switch k.Kind {
		case KindDelta:
			k.Position = rapid.Int32Range(0, RingSize-1).Draw(t, "position")
		case KindPending:
			k.ProducerID, k.Counter = rapid.Int64().Draw(t, "producer"), rapid.Int32().Draw(t, "counter")
		case KindCounts:
			k.Block = rapid.Int64Range(0, math.MaxInt64).Draw(t, "block")
		case KindOutcome:
			k.ProducerID = rapid.Int64().Draw(t, "producer")
		}
		b := k.AppendTo(nil)
		got, err := ParseKey(b)
		require.NoError(t, err)
		require.Equal(t, k, got)
		for n := range b {
			_, err := ParseKey(b[:n])
			require.ErrorIs(t, err, ErrCorrupt)
		}
	})
}

// TestKeyOrder: the order of the bytes is one that the records can be replayed in.
func TestKeyOrder(t *testing.T) {
	id := ID{Group: "g", Partition: 300}
	keys := []Key{{ID: id, Kind: KindSnapshot}}
	for _, position := range []int32{0, 1, 255, 256, RingSize - 1} {
		keys = append(keys, Key{ID: id, Kind: KindDelta, Position: position})
	}
	keys = append(keys, Key{ID: id, Kind: KindPending, ProducerID: 7}, Key{ID: id, Kind: KindCounts, Block: 1},
		Key{ID: id, Kind: KindCounts, Block: 1 << 40}, Key{ID: id, Kind: KindOutcome, ProducerID: 7}, Key{OwnerEpoch: 1, ID: ID{Group: "a"}, Kind: KindSnapshot})
	require.True(t, slices.IsSortedFunc(keys, func(a, b Key) int { return bytes.Compare(a.AppendTo(nil), b.AppendTo(nil)) }))
}

// TestRecordBytes fixes the format: these bytes are in people's logs.
func TestRecordBytes(t *testing.T) {
	s := NewState(3)
	id := ID{Group: "g1", Topic: [16]byte{0xaa, 15: 0xbb}, Partition: 2}
	metadata := "m"
	var w Records
	e := s.Found(&w, id, NewLedger(5, 0, 20), Delta{Commit: []Run{{Start: 7, End: 9}, {Start: 10, End: 11}}}, nil, 1000)
	d, err := e.Ledger.Decide(Request{Offset: 6, Reopen: []Run{{Start: 8, End: 9}}}, 20)
	require.NoError(t, err)
	s.Log(&w, e, d, &metadata, 2000)
	s.Stage(&w, e, Producer{ID: 77, Epoch: 1}, StageRequest{Offset: NoOffset, Commit: []Run{{Start: 12, End: 13}}})
	s.LogCounts(&w, e, 5, []byte("c5"))
	s.LogCounts(&w, e, 5, nil)
	s.decide(&w, e, 77, true)
	s.decide(&w, e, 78, true)
	id16 := "aa0000000000000000000000000000bb"
	want := []string{
		"0000 00000003 0002 6731 " + id16 + " 00000002 00",
		"0000 00000003 01 00000000000003e8 05 00 01 01 02 0000000000000005 00 01 00 01",
		"0000 00000003 0002 6731 " + id16 + " 00000002 01 00000000",
		"0000 00000003 01 00000000000007d0 00 01 14 06 02 6d 00 01 0000000000000007 40 00 40 00",
		"0000 00000003 0002 6731 " + id16 + " 00000002 02 000000000000004d 00000000",
		"0000 00000003 0001 00 02 00 01 000000000000000b 40 00 40 00",
		"0000 00000003 0002 6731 " + id16 + " 00000002 03 0000000000000005",
		"0000 00000003 6335",
		"0000 00000003 0002 6731 " + id16 + " 00000002 03 0000000000000005",
		"",
		"0000 00000003 0002 6731 " + id16 + " 00000002 04 000000000000004d",
		"0000 00000003 00",
		"0000 00000003 0002 6731 " + id16 + " 00000002 04 000000000000004e",
		"0000 00000003 01",
	}
	var got []string
	for _, r := range w.All() {
		got = append(got, hex.EncodeToString(r.Key), hex.EncodeToString(r.Value))
	}
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], " ", "")
	}
	require.Equal(t, want, got)
}

// TestValuesCut cuts every kind of value short at every length, and adds a byte: an
// error each time, never a panic, and the ledger is in trouble. Counts are not looked at,
// and do not matter as much; see TestCountsThatCannotBeRead.
func TestValuesCut(t *testing.T) {
	for _, r := range slices.Delete(everyKind(), 3, 4) {
		for n := range len(r.Value) + 1 {
			value := bytes.Clone(r.Value[:n])
			if n == len(r.Value) {
				value = append(value, 0)
			}
			s := NewState(0)
			require.ErrorIs(t, s.Apply(r.Key, value), ErrCorrupt, "%d of %d bytes", n, len(r.Value))
			require.Len(t, slices.Collect(s.All()), 1)
			for e := range s.All() {
				require.ErrorIs(t, e.Trouble(), ErrCorrupt)
			}
		}
	}
}

// everyKind has a record of every kind.
func everyKind() []Record {
	s := NewState(0)
	var w Records
	e := s.Found(&w, ID{Group: "g"}, NewLedger(0, 0, 100), Delta{Commit: []Run{{Start: 7, End: 9}, {Start: 50, End: 51}}}, nil, 1)
	metadata := "some"
	d, _ := e.Ledger.Decide(Request{Offset: 2, Commit: []Run{{Start: 20, End: 30}}, Reopen: []Run{{Start: 1, End: 2}}}, 100)
	s.Log(&w, e, d, &metadata, 2)
	s.Stage(&w, e, Producer{1, 2}, StageRequest{Offset: 4, Metadata: &metadata, Commit: []Run{{Start: 60, End: 63}, {Start: 70, End: 71}}})
	s.LogCounts(&w, e, 0, []byte("counts"))
	s.decide(&w, e, 1, true)
	return w.All()
}

func TestUnknownVersionsAreLeftAlone(t *testing.T) {
	records := everyKind()
	s := NewState(0)
	key := bytes.Clone(records[0].Key)
	key[1] = 9
	require.ErrorIs(t, s.Apply(key, records[0].Value), ErrUnknownVersion)
	require.Equal(t, 1, s.Unknown())
	require.Empty(t, slices.Collect(s.All()), "nothing can be said of a record whose key is not known")

	for i, r := range records {
		value := bytes.Clone(r.Value)
		value[1] = 9
		s := NewState(0)
		for _, before := range records[:i] {
			require.NoError(t, s.Apply(before.Key, before.Value))
		}
		require.ErrorIs(t, s.Apply(r.Key, value), ErrUnknownVersion)
		require.Len(t, slices.Collect(s.All()), 1)
		for e := range s.All() {
			require.ErrorIs(t, e.Trouble(), ErrUnknownVersion)
		}
	}
}

// TestLostRecords loses each record of a ledger in turn: what is left is in trouble, or
// the same as with it.
func TestLostRecords(t *testing.T) {
	s := NewState(0)
	var w Records
	id := ID{Group: "g"}
	e := s.Found(&w, id, NewLedger(0, 0, 100), Delta{}, nil, 1)
	for i := range int64(5) {
		s.Log(&w, e, Delta{Commit: []Run{{Start: 10 * i, End: 10*i + 1}}}, nil, 2)
	}
	want := digest(s)
	for lost := range w.All() {
		replay := NewState(0)
		for i, r := range w.All() {
			if i != lost {
				require.NoError(t, replay.Apply(r.Key, r.Value))
			}
		}
		got := replay.Get(id)
		if lost == w.Len()-1 {
			require.NoError(t, got.Trouble(), "the end of a log may be missing after a crash")
			continue
		}
		require.ErrorIs(t, got.Trouble(), ErrLost, "record %d", lost)

		var again Records // founded anew, the ledger is sound, also for who replays all of it
		replay.Found(&again, id, NewLedger(3, 0, 100), Delta{}, nil, 9)
		require.NoError(t, replay.Get(id).Trouble())
		for _, r := range slices.Concat(w.All(), again.All()) {
			require.NoError(t, s.Apply(r.Key, r.Value))
		}
		require.NoError(t, s.Get(id).Trouble())
		require.EqualValues(t, 3, s.Get(id).Ledger.Stable())
	}
	require.NotEqual(t, want, digest(s))
}

// TestStaleOwnersAreVoid: what a former owner of the partition writes after another has
// taken over changes nothing, also where the new owner has not written yet.
func TestStaleOwnersAreVoid(t *testing.T) {
	old := NewState(0)
	var w, stale Records
	ids := []ID{{Group: "g"}, {Group: "h"}}
	for _, id := range ids {
		old.Found(&w, id, NewLedger(0, 0, 100), Delta{}, nil, 1)
	}
	taken := NewState(1)
	for _, r := range w.All() {
		require.NoError(t, taken.Apply(r.Key, r.Value))
	}
	taken.Log(&w, taken.Get(ids[0]), Delta{Commit: []Run{{Start: 5, End: 6}}}, nil, 2)
	for _, id := range ids {
		old.Log(&stale, old.Get(id), Delta{Commit: []Run{{Start: 50, End: 60}}}, nil, 2)
		old.Found(&stale, id, NewLedger(90, 0, 100), Delta{}, nil, 3)
	}
	replay := NewState(2)
	for _, r := range slices.Concat(w.All(), stale.All()) {
		require.NoError(t, replay.Apply(r.Key, r.Value))
	}
	require.Equal(t, digest(taken), digest(replay))
}

// TestPendingThatWasCutOff: the record of what a transaction still holds after a clamp
// replaces the one before, also when the delta of the clamp is gone.
func TestPendingThatWasCutOff(t *testing.T) {
	s := NewState(0)
	s.ring = 2
	var w Records
	e := s.Found(&w, ID{Group: "g"}, NewLedger(0, 0, 100), Delta{}, nil, 1)
	s.Stage(&w, e, Producer{7, 0}, StageRequest{Offset: NoOffset, Commit: []Run{{Start: 10, End: 20}, {Start: 30, End: 40}}})
	clamp := w.Len()
	s.Clamp(&w, e, 15)
	for x := range int64(3) {
		s.Log(&w, e, Delta{Commit: []Run{{Start: 2 * x, End: 2*x + 1}}}, nil, 2)
	}
	replay := NewState(0)
	for i, r := range w.All() {
		if i != clamp {
			require.NoError(t, replay.Apply(r.Key, r.Value))
		}
	}
	require.Equal(t, digest(s), digest(replay))
	require.Equal(t, []Run{{Start: 10, End: 15}}, slices.Collect(replay.Get(e.ID).Ledger.Pending(0)))
}

func FuzzApply(f *testing.F) {
	for _, r := range everyKind() {
		f.Add(r.Key, r.Value)
		f.Add(r.Key, []byte(nil))
	}
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		s := NewState(0)
		for _, r := range everyKind() {
			require.NoError(t, s.Apply(r.Key, r.Value))
		}
		_ = s.Apply(key, value)
		_ = s.Apply(key, value)
		for e := range s.All() {
			require.NoError(t, e.Ledger.CheckInvariants())
			require.Equal(t, unreadOf(e), e.unread)
		}
		require.Equal(t, memoryOf(s), s.MemoryBytes())
	})
}

func FuzzParseKey(f *testing.F) {
	for _, r := range everyKind() {
		f.Add(r.Key)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if k, err := ParseKey(b); err == nil {
			require.Equal(t, b, k.AppendTo(nil))
		}
	})
}

// TestLogSize holds the budget of the internal log for what compaction leaves of a
// ledger's life: the snapshot, the deltas since, and the deltas of the round before that
// were not written over.
func TestLogSize(t *testing.T) {
	for _, in := range []int64{2, 100, 1000} {
		runs := slices.Collect(randomGaps(in, 40_000).Runs(0))
		for _, batch := range []int{20, 200} {
			perGap := worstLogSize(runs, batch)
			t.Logf("1 in %d, %d runs a commit: at worst %.3f bytes per gap", in, batch, perGap)
			limit := 1.5
			if in > 100 {
				limit = 3
			}
			require.Less(t, perGap, limit, "1 in %d, %d runs a commit", in, batch)
		}
	}
}

// worstLogSize commits runs, so many at a time, and gives the most bytes per gap that a
// cleaner would have left in the second half of that.
func worstLogSize(runs []Run, batch int) float64 {
	const recordOverhead = 10 // lengths, offset and timestamp of a record in its batch
	s := NewState(0)
	sizes, total, worst := map[string]int{}, 0, 0.0
	var w Records
	e := s.Found(&w, ID{Group: "a-group", Topic: [16]byte{1}}, NewLedger(0, 0, 0), Delta{}, nil, 1)
	for commit := range slices.Chunk(runs, batch) {
		s.Log(&w, e, Delta{Commit: commit}, nil, 1)
		for _, r := range w.All() {
			size := len(r.Key) + len(r.Value) + recordOverhead
			total += size - sizes[string(r.Key)]
			sizes[string(r.Key)] = size
		}
		w.Reset()
		if gaps := e.Ledger.GapCount(); gaps > int64(len(runs)/2) {
			worst = max(worst, float64(total)/float64(gaps))
		}
	}
	return worst
}

// TestCountsThatCannotBeRead are left out, and nothing else suffers; those of a later
// version keep the ledger from being changed.
func TestCountsThatCannotBeRead(t *testing.T) {
	records := everyKind()
	key, value := records[3].Key, records[3].Value
	for n := range len(value) {
		if n > 6 { // version and owner epoch are there, and counts
			break
		}
		s := NewState(0)
		require.NoError(t, s.Apply(records[0].Key, records[0].Value))
		require.NoError(t, s.Apply(key, value))
		require.ErrorIs(t, s.Apply(key, value[:n]), ErrCorrupt, "%d bytes", n)
		e := s.Get(ID{Group: "g"})
		require.NoError(t, e.Trouble())
		for number, counts := range e.Counts() {
			t.Errorf("block %d has %q", number, counts)
		}
		require.True(t, e.HasCounts(), "the record is still to be buried")
		var w Records
		s.LogCounts(&w, e, 0, nil)
		require.Equal(t, []Record{{Key: key}}, w.All())
		require.False(t, e.HasCounts())
	}

	later := bytes.Clone(value)
	later[1] = 9
	s := NewState(0)
	require.ErrorIs(t, s.Apply(key, later), ErrUnknownVersion)
	require.NoError(t, s.Apply(records[0].Key, records[0].Value))
	e := s.Get(ID{Group: "g"})
	require.ErrorIs(t, e.Trouble(), ErrUnknownVersion, "a snapshot that comes later does not help")
	var w Records
	s.BuryOrphans(&w)
	require.Zero(t, w.Len())
	require.NoError(t, s.Apply(key, value))
	require.NoError(t, e.Trouble())
	require.Equal(t, memoryOf(s), s.MemoryBytes())
}

// TestCountsOfFormerOwners: a record under the key of the owner before is buried when it
// is replaced, so that it does not come back when its successor is buried itself.
func TestCountsOfFormerOwners(t *testing.T) {
	s := NewState(0)
	var w Records
	e := s.Found(&w, ID{Group: "g"}, NewLedger(0, 0, 100), Delta{}, nil, 1)
	s.LogCounts(&w, e, 0, []byte("a"))
	s.LogCounts(&w, e, 1, []byte("b"))
	s.ownerEpoch = 1
	s.LogCounts(&w, e, 0, []byte("a"))
	s.LogCounts(&w, e, 0, nil)
	s.LogCounts(&w, e, 1, nil)
	kept := map[string]bool{}
	for _, r := range slices.Backward(w.All()) {
		if k, err := ParseKey(r.Key); err == nil && k.Kind == KindCounts && !kept[string(r.Key)] {
			kept[string(r.Key)] = true
			require.Nil(t, r.Value, "%+v", k)
		}
	}
	require.Len(t, kept, 3)

	// Nor does a tombstone of the former owner take what the new one wrote.
	s.LogCounts(&w, e, 0, []byte("new"))
	former := Key{ID: e.ID, Kind: KindCounts}
	require.NoError(t, s.Apply(former.AppendTo(nil), nil))
	require.True(t, e.HasCounts())
}
