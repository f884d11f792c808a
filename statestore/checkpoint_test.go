package statestore

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// plain is a store on disk that keeps no offsets: what it is given with Commit is dropped.
type plain struct{ Store }

func (p plain) Commit(...Offset) error { return p.Store.Commit() }
func (p plain) Sync() error            { return p.Store.(Syncer).Sync() }

func plainOpener(options ...Option) Opener {
	open := Pebble(options...)
	return func(fs vfs.FS, dir string) (Store, error) {
		s, err := open(fs, dir)
		if err != nil {
			return nil, err
		}
		return plain{s}, nil
	}
}

func keep(t *testing.T, open Opener, fs vfs.FS) OffsetStore {
	t.Helper()
	s, err := open(fs, "task/store")
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	kept, err := Keep(s, fs, "task/store")
	require.NoError(t, err)
	return kept
}

func nameless(topic string, partition int32) Source {
	return Source{Topic: topic, Partition: partition, Slots: allSlots}
}

func TestCheckpointOfKafkaStreams(t *testing.T) {
	got, err := ParseCheckpoint([]byte("0\n3\napp-counts-changelog 0 41\nin   7 0\nother 1 -4\n"))
	require.NoError(t, err)
	require.Equal(t, []Offset{
		{nameless("app-counts-changelog", 0), 42}, // the file has the last offset applied, we the next
		{nameless("in", 7), 1},
	}, got)
}

func TestCheckpointRoundTrip(t *testing.T) {
	want := []Offset{{part("in", 0, 0, 99), 5}, {part("in", 0, 100, 0xffff), 0}, {nameless("b", math.MaxInt32), math.MaxInt64}}
	data := AppendCheckpoint(nil, want)
	require.Equal(t, "1\n3\nin 0 5 0 99 01000000000000000000000000000000\n", string(data[:49]))
	got, err := ParseCheckpoint(data)
	require.NoError(t, err)
	require.Equal(t, want, got)
	got, err = ParseCheckpoint(AppendCheckpoint(nil, nil))
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestDamagedCheckpoint(t *testing.T) {
	for _, data := range []string{
		"", "0", "0\n1\n", "2\n0\n", "0\n-1\n", "0\n2\na 0 1\n", "0\n1\na 0 1\nb 0 1\n", "0\n1\na 0\n", "0\n1\na x 1\n", "0\n1\na 0 -1\n",
		"0\n1\na -1 1\n", "0\n1\na 0 9223372036854775807\n", "0\n2\na 0 1\na 0 2\n", "0\n1\na 2147483648 1\n", "1\n1\na 0 1\n",
		"1\n1\na 0 1 5 4 00000000000000000000000000000000\n", "1\n1\na 0 1 0 65536 00000000000000000000000000000000\n", "1\n1\na 0 1 0 1 00\n",
		"1\n1\na 0 -1 0 1 00000000000000000000000000000000\n",
		"1\n2\na 0 1 0 5 00000000000000000000000000000000\na 0 1 5 6 00000000000000000000000000000000\n",
	} {
		_, err := ParseCheckpoint([]byte(data))
		require.ErrorIs(t, err, ErrCorrupt, "%q", data)
	}
}

func FuzzParseCheckpoint(f *testing.F) {
	f.Add([]byte("0\n2\na 0 1\nb 3 -4\n"))
	f.Add(AppendCheckpoint(nil, []Offset{{part("in", 0, 0, 99), 5}, {nameless("b", 1), 7}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ParseCheckpoint(data)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		again, err := ParseCheckpoint(AppendCheckpoint(nil, got))
		require.NoError(t, err)
		require.Equal(t, got, again)
	})
}

// What a store has of its own stays; what files know beside it is taken in once.
func TestFilesAreTakenInOnce(t *testing.T) {
	fs := vfs.NewMem()
	s := openStore(t, Pebble(), fs)
	require.NoError(t, s.Commit(Offset{part("in", 0, 0, 99), 5}))
	require.NoError(t, s.Close())
	writeFile(t, fs, "task/store/.checkpoint", []byte("0\n2\nin 0 70\nchangelog 0 9\n"))
	writeFile(t, fs, "task/store/.position", []byte("0\n2\nin 1 30\nchangelog 0 11\n"))

	s = keep(t, Pebble(), fs)
	got, err := s.Offsets()
	require.NoError(t, err)
	want := []Offset{
		{nameless("changelog", 0), 10}, // the lesser of both
		{Source{Topic: "in", Slots: part("", 0, 100, 0xffff).Slots}, 71},
		{nameless("in", 1), 31},
		{part("in", 0, 0, 99), 5},
	}
	require.Equal(t, want, got)
	for _, name := range []string{CheckpointFile, PositionFile} {
		_, err := fs.Stat("task/store/" + name)
		require.Error(t, err, "%s is gone", name)
	}
	require.NoError(t, s.Close())
	got, err = keep(t, Pebble(), fs).Offsets()
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// Files are for what is on disk, of which a store in memory has nothing.
func TestStoreInMemoryLeavesFilesAlone(t *testing.T) {
	fs := vfs.NewMem()
	require.NoError(t, fs.MkdirAll("task/store", 0o755))
	writeFile(t, fs, "task/store/.checkpoint", []byte("0\n1\nin 0 70\n"))
	got, err := keep(t, InMemory(), fs).Offsets()
	require.NoError(t, err)
	require.Empty(t, got)
	require.Equal(t, "0\n1\nin 0 70\n", string(readFile(t, fs, "task/store/.checkpoint")))
}

func TestDamagedFileIsReported(t *testing.T) {
	for _, open := range []Opener{Pebble(), plainOpener()} {
		fs := vfs.NewMem()
		require.NoError(t, fs.MkdirAll("task/store", 0o755))
		writeFile(t, fs, "task/store/.position", []byte("0\n1\n"))
		s, err := open(fs, "task/store")
		require.NoError(t, err)
		_, err = Keep(s, fs, "task/store")
		require.ErrorIs(t, err, ErrCorrupt)
		require.ErrorContains(t, err, "task/store/.position")
		require.NoError(t, s.Close())
	}
}

// hiding passes everything on and has no offsets to be asked for, as a wrapper that
// embeds a Store.
type hiding struct{ Store }

// leading says what it wraps.
type leading struct{ Store }

func (l leading) Unwrap() Store { return l.Store }

// swallowing says what it wraps but keeps the offsets of Commit from it.
type swallowing struct{ leading }

func (s swallowing) Commit(...Offset) error { return s.Store.Commit() }

func TestWrappers(t *testing.T) {
	for name, open := range openers() {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			s := openStore(t, open, fs)
			for _, w := range []Store{hiding{s}, swallowing{leading{s}}, leading{hiding{s}}} {
				_, err := Keep(w, fs, "task/store")
				require.ErrorIs(t, err, ErrOffsetsHidden, "%T", w)
			}
			kept, err := Keep(leading{leading{s}}, fs, "task/store")
			require.NoError(t, err)
			require.NoError(t, kept.Commit(Offset{part("in", 0, 0, 1), 9}))
			for _, o := range []OffsetStore{kept, s} {
				next, ok, err := o.CommittedOffset(part("in", 0, 0, 1))
				require.NoError(t, err)
				require.True(t, ok)
				require.EqualValues(t, 9, next)
			}
			require.False(t, exists(fs, "task/store/.checkpoint"), "one place for offsets")
		})
	}
}

func exists(fs vfs.FS, path string) bool {
	_, err := fs.Stat(path)
	return err == nil
}

func TestStoreWithoutOffsetsKeepsItsPlace(t *testing.T) {
	fs := vfs.NewMem()
	s := keep(t, plainOpener(), fs)
	require.NoError(t, s.Put([]byte("k"), []byte("v")))
	require.NoError(t, s.Commit(Offset{part("in", 0, 0, 99), 5}))
	require.ErrorIs(t, s.Commit(Offset{}), ErrInvalidOffset)
	require.NoError(t, s.Close())

	s = keep(t, plainOpener(), fs)
	offsets, err := s.Offsets()
	require.NoError(t, err)
	require.Equal(t, []Offset{{part("in", 0, 0, 99), 5}}, offsets)
	require.NoError(t, s.Close())

	// Opened later by a store that keeps its own, over the same data.
	own := keep(t, Pebble(), fs)
	offsets, err = own.Offsets()
	require.NoError(t, err)
	require.Equal(t, []Offset{{part("in", 0, 0, 99), 5}}, offsets)
	require.Equal(t, map[string]string{"k": "v"}, contents(t, own, nil, nil))
	require.False(t, exists(fs, "task/store/.checkpoint"))
}

func TestWipeOfAStoreWithoutOffsets(t *testing.T) {
	mem := vfs.NewCrashableMem()
	writePosition := func() {
		require.NoError(t, mem.MkdirAll("task/store", 0o755))
		writeFile(t, mem, "task/store/.position", []byte("0\n1\nin 0 4\n"))
	}
	writePosition()
	s := keep(t, plainOpener(), mem)
	require.False(t, exists(mem, "task/store/.position"))
	require.NoError(t, s.Commit(Offset{part("in", 0, 0, 99), 50}))
	require.NoError(t, s.Wipe())
	require.NoError(t, s.Close())
	after := keep(t, plainOpener(), mem.CrashClone(vfs.CrashCloneCfg{}))
	offsets, err := after.Offsets()
	require.NoError(t, err)
	require.Empty(t, offsets)
}

// A crash before any operation of the take-in: done again, the offsets are the same, and
// never are both the files gone and the store without.
func TestCrashWhileFilesAreTakenIn(t *testing.T) {
	want := []Offset{{nameless("changelog", 0), 10}, {nameless("in", 1), 31}}
	crashes := 0
	for _, percent := range []int{0, 50, 100} {
		mem := vfs.NewCrashableMem()
		s := openStore(t, Pebble(), mem)
		require.NoError(t, s.Put([]byte("k"), []byte("v")))
		require.NoError(t, s.Commit())
		require.NoError(t, s.Close())
		require.NoError(t, writeWhole(mem, "task/store/.checkpoint", []byte("0\n1\nchangelog 0 9\n")))
		require.NoError(t, writeWhole(mem, "task/store/.position", []byte("0\n1\nin 1 30\n")))
		require.NoError(t, syncDir(mem, "task/store"))
		var clones []*vfs.MemFS
		ops := &writes{before: func(n int) error {
			clones = append(clones, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(uint64(n), 1))}))
			return nil
		}}
		require.NoError(t, keep(t, Pebble(), ops.wrap(mem)).Close())
		clones = append(clones, mem.CrashClone(vfs.CrashCloneCfg{}))
		for _, fs := range clones {
			again := keep(t, Pebble(), fs)
			got, err := again.Offsets()
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Equal(t, map[string]string{"k": "v"}, contents(t, again, nil, nil))
			require.False(t, exists(fs, "task/store/.checkpoint") || exists(fs, "task/store/.position"))
			require.NoError(t, again.Close())
			crashes++
		}
	}
	require.Greater(t, crashes, 30)
}

// The checkpoint of a store without offsets is never ahead of its data.
func TestCrashBetweenDataAndCheckpoint(t *testing.T) {
	for _, percent := range []int{0, 50, 100} {
		t.Run(fmt.Sprintf("percent=%d", percent), func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			type crash struct {
				fs        *vfs.MemFS
				committed int64
			}
			var crashes []crash
			committed := int64(-1)
			ops := &writes{before: func(n int) error {
				c := crash{committed: committed}
				c.fs = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(uint64(n), 1))})
				crashes = append(crashes, c)
				return nil
			}}
			s := keep(t, plainOpener(), ops.wrap(mem))
			for i := range int64(10) {
				require.NoError(t, s.Put([]byte("next"), fmt.Append(nil, i)))
				require.NoError(t, s.Commit(Offset{part("in", 0, 0, 99), i}))
				ops.mu.Lock()
				committed = i
				ops.mu.Unlock()
			}
			require.NoError(t, s.Close())
			for _, c := range crashes {
				after := keep(t, plainOpener(), c.fs)
				next, ok, err := after.CommittedOffset(part("in", 0, 0, 99))
				require.NoError(t, err)
				require.GreaterOrEqual(t, next, max(c.committed, 0))
				if value, found, err := after.Get([]byte("next")); ok {
					require.NoError(t, err)
					require.True(t, found)
					require.GreaterOrEqual(t, string(value), fmt.Sprint(next))
				}
				require.NoError(t, after.Close())
			}
		})
	}
}
