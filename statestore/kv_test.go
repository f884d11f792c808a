package statestore

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// part is some slots of one partition.
func part(topic string, partition int32, lo, hi uint16) Source {
	return Source{Topic: topic, TopicID: [16]byte{1}, Partition: partition, Slots: protocol.SlotRange{Lo: lo, Hi: hi}}
}

func openers(options ...Option) map[string]Opener {
	return map[string]Opener{"pebble": Pebble(options...), "memory": InMemory(options...)}
}

func openStore(t *testing.T, open Opener, fs vfs.FS) OffsetStore {
	t.Helper()
	s, err := open(fs, "task/store")
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s.(OffsetStore)
}

// contents lists what a loop shows.
func contents(t require.TestingT, s Store, from, to []byte) map[string]string {
	all := map[string]string{}
	last := []byte(nil)
	for e, err := range s.Range(from, to) {
		require.NoError(t, err)
		require.True(t, len(all) == 0 || bytes.Compare(last, e.Key) < 0, "keys come in order")
		last = append(last[:0], e.Key...)
		all[string(e.Key)] = string(e.Value)
	}
	return all
}

// model is a store as two maps and a map of slots.
type model struct {
	store          Store
	committed, now map[string]string
	offsets        map[uint16]int64 // of slots 0 to slotsMax
	uncommitted    int
}

const (
	modelWindow = 600
	slotsMax    = 15
)

func (m *model) put(t *rapid.T) {
	key, value := drawKey(t), rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "value")
	err := m.store.Put(key, value)
	if !m.fits(t, err, len(key)+len(value)) {
		return
	}
	m.now[string(key)] = string(value)
	clear(key) // the store has copies
	clear(value)
}

func (m *model) delete(t *rapid.T) {
	key := drawKey(t)
	if m.fits(t, m.store.Delete(key), len(key)) {
		delete(m.now, string(key))
	}
}

func (m *model) fits(t *rapid.T, err error, size int) bool {
	if m.uncommitted+size+entryOverhead > modelWindow {
		require.ErrorIs(t, err, ErrUncommittedFull)
		return false
	}
	require.NoError(t, err)
	m.uncommitted += size + entryOverhead
	return true
}

func (m *model) commit(t *rapid.T) {
	var offsets []Offset
	for range rapid.IntRange(0, 3).Draw(t, "offsets") {
		lo := rapid.Uint16Range(0, slotsMax).Draw(t, "lo")
		hi := rapid.Uint16Range(lo, slotsMax).Draw(t, "hi")
		next := rapid.Int64Range(Forgotten, 20).Draw(t, "next")
		offsets = append(offsets, Offset{part("in", 0, lo, hi), next})
		for slot := lo; slot <= hi; slot++ {
			if m.offsets[slot] = next; next == Forgotten {
				delete(m.offsets, slot)
			}
		}
	}
	require.NoError(t, m.store.Commit(offsets...))
	m.committed, m.uncommitted = maps.Clone(m.now), 0
}

func (m *model) refusedCommit(t *rapid.T) {
	bad := rapid.SampledFrom([]Offset{
		{}, {part("in", 0, 2, 1), 3}, {part("in", -1, 0, 1), 3}, {part("in", 0, 0, 1), -2},
	}).Draw(t, "bad")
	require.ErrorIs(t, m.store.Commit(Offset{part("in", 0, 0, 1), 7}, bad), ErrInvalidOffset)
}

func (m *model) rollback(t *rapid.T) {
	require.NoError(t, m.store.Rollback())
	m.now, m.uncommitted = maps.Clone(m.committed), 0
}

// loop changes the store inside a loop over it, which shows what there was before.
func (m *model) loop(t *rapid.T) {
	from, to := drawBound(t, "from"), drawBound(t, "to")
	want := map[string]string{}
	for k, v := range m.now {
		if k >= string(from) && (to == nil || k < string(to)) {
			want[k] = v
		}
	}
	actions := []func(*rapid.T){m.put, m.delete, m.commit, m.rollback, m.check, func(*rapid.T) {}}
	stopAfter := rapid.IntRange(0, 12).Draw(t, "steps")
	seen := 0
	for e, err := range m.store.Range(from, to) {
		require.NoError(t, err)
		value, ok := want[string(e.Key)]
		require.True(t, ok, "key %q", e.Key)
		require.Equal(t, value, string(e.Value))
		delete(want, string(e.Key))
		if seen++; seen > stopAfter {
			return
		}
		rapid.SampledFrom(actions).Draw(t, "inside")(t)
	}
	require.Empty(t, want)
}

func (m *model) check(t *rapid.T) {
	key := drawKey(t)
	got, ok, err := m.store.Get(key)
	require.NoError(t, err)
	want, wantOK := m.now[string(key)]
	require.Equal(t, wantOK, ok)
	require.Equal(t, want, string(got))
	require.Equal(t, m.uncommitted, m.store.UncommittedBytes())

	lo := rapid.Uint16Range(0, slotsMax+1).Draw(t, "lo")
	hi := rapid.Uint16Range(lo, slotsMax+1).Draw(t, "hi")
	next, covered := int64(-1), true
	for slot := lo; slot <= hi; slot++ {
		n, ok := m.offsets[slot]
		if covered = covered && ok; next < 0 || n < next {
			next = n
		}
	}
	gotNext, ok, err := m.store.(OffsetKeeper).CommittedOffset(part("in", 0, lo, hi))
	require.NoError(t, err)
	require.Equal(t, covered, ok)
	if covered {
		require.Equal(t, next, gotNext)
	}
}

func drawKey(t *rapid.T) []byte {
	return rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 0xff}), 0, 3).Draw(t, "key")
}

func drawBound(t *rapid.T, name string) []byte {
	if rapid.Bool().Draw(t, name+" open") {
		return nil
	}
	return drawKey(t)
}

func TestStoreModel(t *testing.T) {
	for name, open := range openers(UncommittedMax(modelWindow)) {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			rapid.Check(t, func(t *rapid.T) {
				require.NoError(t, Destroy(fs, "task"))
				s, err := open(fs, "task/store")
				require.NoError(t, err)
				m := &model{store: s, committed: map[string]string{}, now: map[string]string{}, offsets: map[uint16]int64{}}
				defer func() { _ = m.store.Close() }()
				t.Repeat(map[string]func(*rapid.T){
					"put": m.put, "put more": m.put, "delete": m.delete, "commit": m.commit, "rollback": m.rollback, "loop": m.loop,
					"refused commit": m.refusedCommit,
					"prefix": func(t *rapid.T) {
						prefix := drawKey(t)
						want := maps.Clone(m.now)
						maps.DeleteFunc(want, func(k, _ string) bool { return !bytes.HasPrefix([]byte(k), prefix) })
						got := map[string]string{}
						for e, err := range m.store.Prefix(prefix) {
							require.NoError(t, err)
							got[string(e.Key)] = string(e.Value)
						}
						require.Equal(t, want, got)
					},
					"wipe": func(t *rapid.T) {
						require.NoError(t, m.store.Wipe())
						m.committed, m.now, m.offsets, m.uncommitted = map[string]string{}, map[string]string{}, map[uint16]int64{}, 0
					},
					"reopen": func(t *rapid.T) {
						require.NoError(t, m.store.Close())
						s, err := open(fs, "task/store")
						require.NoError(t, err)
						m.store, m.now, m.uncommitted = s, maps.Clone(m.committed), 0
						if name == "memory" {
							m.committed, m.now, m.offsets = map[string]string{}, map[string]string{}, map[uint16]int64{}
						}
					},
					"": func(t *rapid.T) {
						m.check(t)
						require.Equal(t, m.now, contents(t, m.store, nil, nil))
					},
				})
			})
		})
	}
}

func TestOffsetsAreListedWhole(t *testing.T) {
	for name, open := range openers() {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, open, vfs.NewMem())
			require.NoError(t, s.Commit(Offset{part("in", 0, 0, 99), 5}, Offset{part("b", 7, 0, 9), 1}, Offset{part("in", 0, 100, 199), 5}))
			got, err := s.Offsets()
			require.NoError(t, err)
			require.Equal(t, []Offset{{part("b", 7, 0, 9), 1}, {part("in", 0, 0, 199), 5}}, got)
			require.NoError(t, s.Commit(Offset{part("in", 0, 50, 149), Forgotten}))
			got, err = s.Offsets()
			require.NoError(t, err)
			require.Equal(t, []Offset{{part("b", 7, 0, 9), 1}, {part("in", 0, 0, 49), 5}, {part("in", 0, 150, 199), 5}}, got)
		})
	}
}

func TestOffsetWithoutIDCountsUntilThereIsOneWith(t *testing.T) {
	for name, open := range openers() {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, open, vfs.NewMem())
			nameless := part("in", 0, 0, 0xffff)
			nameless.TopicID = [16]byte{}
			require.NoError(t, s.Commit(Offset{nameless, 40}))
			next, ok, err := s.CommittedOffset(part("in", 0, 0, 0xffff))
			require.NoError(t, err)
			require.True(t, ok)
			require.EqualValues(t, 40, next)
			require.NoError(t, s.Commit(Offset{part("in", 0, 0, 99), 60}))
			next, ok, err = s.CommittedOffset(part("in", 0, 0, 99))
			require.NoError(t, err)
			require.True(t, ok)
			require.EqualValues(t, 60, next)
			next, _, err = s.CommittedOffset(part("in", 0, 90, 110))
			require.NoError(t, err)
			require.EqualValues(t, 40, next)
			_, ok, err = s.CommittedOffset(nameless)
			require.NoError(t, err)
			require.False(t, ok, "a topic of another id may have those slots")
		})
	}
}

func TestClosedStoreSaysSo(t *testing.T) {
	for name, open := range openers() {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, open, vfs.NewMem())
			for i := range 3 {
				require.NoError(t, s.Put([]byte{byte(i)}, nil))
			}
			var errs []error
			for _, err := range s.Range(nil, nil) {
				errs = append(errs, err)
				require.NoError(t, s.Close())
			}
			require.Len(t, errs, 2)
			require.ErrorIs(t, errs[1], ErrClosed)
			_, _, err := s.Get(nil)
			require.ErrorIs(t, err, ErrClosed)
			require.ErrorIs(t, s.Put(nil, nil), ErrClosed)
			require.ErrorIs(t, s.Commit(), ErrClosed)
			require.ErrorIs(t, s.Rollback(), ErrClosed)
			require.ErrorIs(t, s.Wipe(), ErrClosed)
			_, err = s.Offsets()
			require.ErrorIs(t, err, ErrClosed)
			require.NoError(t, s.Close())
		})
	}
}

func TestSlicesOfGetStay(t *testing.T) {
	for name, open := range openers() {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, open, vfs.NewMem())
			var got [][]byte
			for i := range 3000 {
				key := fmt.Appendf(nil, "%d", i)
				require.NoError(t, s.Put(key, slices.Repeat(key, 1+i%700)))
				value, ok, err := s.Get(key)
				require.NoError(t, err)
				require.True(t, ok)
				got = append(got, value)
			}
			require.NoError(t, s.Close())
			for i, value := range got {
				require.True(t, bytes.Equal(slices.Repeat(fmt.Appendf(nil, "%d", i), 1+i%700), value), "value %d", i)
			}
		})
	}
}

func TestWindowLargerThanMemtables(t *testing.T) {
	fs := vfs.NewMem()
	open := Pebble()
	s := openStore(t, open, fs)
	value := bytes.Repeat([]byte("v"), 1000)
	for round := range int64(3) {
		for i := range 5000 {
			require.NoError(t, s.Put(fmt.Appendf(nil, "%d-%d", round, i), value))
		}
		for range s.Range(nil, nil) { // a loop that reads the window while it is committed
			require.NoError(t, s.Commit(Offset{part("in", 0, 0, 1), round}))
			break
		}
	}
	require.NoError(t, s.Close())
	s = openStore(t, open, fs)
	require.Len(t, contents(t, s, nil, nil), 15000)
}

// Keys whose hashes are the same are told apart, by Pebble.
func TestChangesOfOneHash(t *testing.T) {
	s := openStore(t, Pebble(), vfs.NewMem()).(*pebbleStore)
	require.NoError(t, s.Put([]byte("a"), []byte("1")))
	require.NoError(t, s.Put([]byte("b"), []byte("2")))
	// As if b had the hash of a: both ways of finding the wrong key there.
	hashA, hashB := maphash.Bytes(s.recent.seed, []byte("\x02a")), maphash.Bytes(s.recent.seed, []byte("\x02b"))
	s.recent.changes[hashA] = s.recent.changes[hashB]
	get := func(key string) string {
		value, ok, err := s.Get([]byte(key))
		require.NoError(t, err)
		require.True(t, ok)
		return string(value)
	}
	require.Equal(t, "1", get("a"))
	require.NoError(t, s.Put([]byte("a"), []byte("3")))
	require.True(t, s.recent.changes[hashA].shared)
	require.Equal(t, "3", get("a"))
	require.NoError(t, s.Put([]byte("a"), []byte("4")))
	require.True(t, s.recent.changes[hashA].shared, "until the window ends")
	require.Equal(t, "4", get("a"))
	require.NoError(t, s.Commit())
	require.Equal(t, "4", get("a"))
	require.Equal(t, "2", get("b"))
}

func TestDamagedTableIsReported(t *testing.T) {
	fs := vfs.NewMem()
	s := openStore(t, Pebble(), fs)
	for i := range 20000 {
		require.NoError(t, s.Put(fmt.Append(nil, i), make([]byte, 200)))
	}
	require.NoError(t, s.Commit()) // larger than a memtable, so written to a table when the store opens again
	require.NoError(t, s.Close())
	s = openStore(t, Pebble(), fs)
	require.NoError(t, s.Close())
	names, err := fs.List("task/store")
	require.NoError(t, err)
	damaged := 0
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			data := readFile(t, fs, "task/store/"+name)
			for i := len(data) / 4; i < len(data)/2; i++ { // offsets, at the front, are read on opening
				data[i] ^= 0x5a
			}
			writeFile(t, fs, "task/store/"+name, data)
			damaged++
		}
	}
	require.Positive(t, damaged)
	s = openStore(t, Pebble(), fs)
	var last error
	for _, err := range s.Range(nil, nil) {
		last = err
	}
	require.ErrorIs(t, last, ErrCorrupt)
	_, _, err = s.Get([]byte("15"))
	require.ErrorIs(t, err, ErrCorrupt)
	_ = s.Close() // it is damaged, and may say so again
}
