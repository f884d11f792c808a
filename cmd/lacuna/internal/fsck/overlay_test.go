package fsck

import (
	"io"
	"io/fs"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

func write(t *testing.T, files vfs.FS, name, content string) {
	t.Helper()
	f, err := files.Create(name, vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = f.Write([]byte(content))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func read(t *testing.T, files vfs.FS, name string) string {
	t.Helper()
	f, err := files.Open(name)
	require.NoError(t, err)
	defer f.Close()
	content, err := io.ReadAll(f)
	require.NoError(t, err)
	return string(content)
}

func names(t *testing.T, files vfs.FS, dir string) []string {
	t.Helper()
	list, err := files.List(dir)
	require.NoError(t, err)
	slices.Sort(list)
	return list
}

// newBase is a directory d with files a and b.
func newBase(t *testing.T) *vfs.MemFS {
	base := vfs.NewMem()
	require.NoError(t, base.MkdirAll("/d", 0o755))
	write(t, base, "/d/a", "old a")
	write(t, base, "/d/b", "old b")
	return base
}

func TestOverlayShowsWhatIsBelowUntilItIsChanged(t *testing.T) {
	base := newBase(t)
	o := newOverlay(base)
	require.Equal(t, "old a", read(t, o, "/d/a"))
	write(t, o, "/d/a", "new a")
	write(t, o, "/d/c", "new c")
	require.Equal(t, "new a", read(t, o, "/d/a"))
	require.NoError(t, o.Remove("/d/b"))
	require.ErrorIs(t, o.Remove("/d/b"), fs.ErrNotExist)
	_, err := o.Open("/d/b")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, []string{"a", "c"}, names(t, o, "/d"))

	require.Equal(t, []string{"a", "b"}, names(t, base, "/d"))
	require.Equal(t, "old a", read(t, base, "/d/a"))
}

func TestOverlayRenames(t *testing.T) {
	base := newBase(t)
	o := newOverlay(base)
	require.NoError(t, o.Rename("/d/a", "/d/b")) // one of the base over another
	require.Equal(t, "old a", read(t, o, "/d/b"))
	require.Equal(t, []string{"b"}, names(t, o, "/d"))
	write(t, o, "/d/tmp", "new")
	require.NoError(t, o.Rename("/d/tmp", "/d/b")) // one of ours over that
	require.Equal(t, "new", read(t, o, "/d/b"))
	require.Equal(t, []string{"b"}, names(t, o, "/d"))
	require.ErrorIs(t, o.Rename("/d/a", "/d/c"), fs.ErrNotExist)
	require.Equal(t, []string{"a", "b"}, names(t, base, "/d"))
	require.Equal(t, "old b", read(t, base, "/d/b"))
}

func TestOverlayNeverWritesIntoTheBase(t *testing.T) {
	base := newBase(t)
	o := newOverlay(base)
	f, err := o.OpenReadWrite("/d/a", vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = f.Write([]byte("x"))
	require.ErrorIs(t, err, errReadOnly)
	_, err = f.WriteAt([]byte("x"), 0)
	require.ErrorIs(t, err, errReadOnly)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
	require.ErrorIs(t, o.RemoveAll("/d"), errReadOnly)
	require.Equal(t, "old a", read(t, base, "/d/a"))

	made, err := o.OpenReadWrite("/d/e/new", vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = made.Write([]byte("here"))
	require.NoError(t, err)
	require.NoError(t, made.Close())
	require.Equal(t, "here", read(t, o, "/d/e/new"))
	require.Equal(t, []string{"a", "b"}, names(t, base, "/d"))
}
