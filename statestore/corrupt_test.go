package statestore

import (
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

func readFile(t *testing.T, fs vfs.FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	require.NoError(t, err)
	data, err := io.ReadAll(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return data
}

func writeFile(t *testing.T, fs vfs.FS, path string, data []byte) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = f.Write(append([]byte{}, data...))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// storeFiles makes a store with several tables and returns its files and history.
func storeFiles(t *testing.T) (map[string][]byte, history) {
	t.Helper()
	fs := vfs.NewMem()
	db := open(t, fs)
	rng := rand.New(rand.NewPCG(3, 3))
	var h history
	b := db.View("v").NewBatch()
	for i := range 30 {
		h.next(rng, b)
		commit(t, b)
		if i%10 == 9 {
			require.NoError(t, db.Sync(ctx))
		}
	}
	require.NoError(t, db.Close())
	names, err := fs.List("views")
	require.NoError(t, err)
	files := map[string][]byte{}
	for _, name := range names {
		files[name] = readFile(t, fs, fs.PathJoin("views", name))
	}
	return files, h
}

func restore(t *testing.T, files map[string][]byte) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	require.NoError(t, fs.MkdirAll("views", 0o755))
	for name, data := range files {
		writeFile(t, fs, fs.PathJoin("views", name), data)
	}
	return fs
}

// requireHonest opens a damaged store: either it reports the damage, and can be
// wiped, or what it holds is a state of its history.
func requireHonest(t *testing.T, fs vfs.FS, h history) (corrupt bool) {
	t.Helper()
	db, err := Open(fs, "views", Options{})
	if err == nil {
		v := db.View("v")
		if err = v.Scan(nil, func(_, _ []byte) error { return nil }); err == nil {
			_, _, err = v.Applied("source")
		}
		if err == nil {
			h.requireConsistent(t, v, -1)
		}
		_ = db.Close() // a damaged store may complain again
	}
	if err == nil {
		return false
	}
	require.ErrorIs(t, err, ErrCorrupt)
	require.NoError(t, Destroy(fs, "views"))
	db, err = Open(fs, "views", Options{})
	require.NoError(t, err)
	empty, err := db.View("v").Empty()
	require.NoError(t, err)
	require.True(t, empty)
	require.NoError(t, db.Close())
	return true
}

func TestDamagedByte(t *testing.T) {
	files, h := storeFiles(t)
	reported := 0
	for name, data := range files {
		for at := 0; at < len(data); at += 1 + len(data)/30 {
			damaged := append([]byte{}, data...)
			damaged[at] ^= 0x5a
			fs := restore(t, files)
			writeFile(t, fs, fs.PathJoin("views", name), damaged)
			if requireHonest(t, fs, h) {
				reported++
			}
		}
	}
	require.Greater(t, reported, 20)
}

func TestMissingOrCutFile(t *testing.T) {
	files, h := storeFiles(t)
	for name, data := range files {
		fs := restore(t, files)
		require.NoError(t, fs.Remove(fs.PathJoin("views", name)))
		requireHonest(t, fs, h)
		for _, keep := range []int{0, 1, len(data) / 2, len(data) - 1} {
			if keep >= 0 && keep < len(data) {
				fs := restore(t, files)
				writeFile(t, fs, fs.PathJoin("views", name), data[:keep])
				requireHonest(t, fs, h)
			}
		}
	}
}

func TestAppliedOffsetOfTheWrongLength(t *testing.T) {
	v := open(t, vfs.NewMem()).View("v")
	b := v.NewBatch()
	require.NoError(t, b.raw.Set(v.appliedKey("s"), []byte("short"), nil))
	commit(t, b)
	_, _, err := v.Applied("s")
	require.True(t, errors.Is(err, ErrCorrupt))
}

func TestOpenOrReset(t *testing.T) {
	files, h := storeFiles(t)
	db, damage, err := OpenOrReset(restore(t, files), "views", Options{})
	require.NoError(t, err)
	require.NoError(t, damage)
	require.EqualValues(t, len(h)-1, h.requireConsistent(t, db.View("v"), -1))
	durable, ok := db.View("v").Durable("source")
	require.True(t, ok, "what was read from disk is durable")
	require.EqualValues(t, len(h)-1, durable)
	require.NoError(t, db.Close())

	for name, data := range files {
		if strings.HasSuffix(name, ".sst") {
			files[name] = append([]byte{}, data...)
			files[name][10] ^= 1
		}
	}
	db, damage, err = OpenOrReset(restore(t, files), "views", Options{})
	require.NoError(t, err)
	require.ErrorIs(t, damage, ErrCorrupt)
	empty, err := db.View("v").Empty()
	require.NoError(t, err)
	require.True(t, empty)
	b := db.View("v").NewBatch()
	b.Set([]byte("k"), nil)
	commit(t, b)
	require.NoError(t, db.Close())
}
