package broker_test

import (
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker"
	"github.com/stretchr/testify/require"
)

func startIn(t *testing.T, disk vfs.FS, dir string) error {
	t.Helper()
	b, err := broker.Start(t.Context(), broker.Config{Listen: []string{"127.0.0.1:0"}, FS: disk, DataDir: dir})
	if err == nil {
		t.Cleanup(func() { stop(t, b) })
	}
	return err
}

func TestTheDefaultDataDirectory(t *testing.T) {
	for name, disk := range map[string]vfs.FS{"in memory": vfs.NewMem(), "on disk": nil} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			require.NoError(t, startIn(t, disk, ""))
		})
	}
}

func TestADataDirectoryHasOneBroker(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, disk := range map[string]vfs.FS{"in memory": vfs.NewMem(), "on disk": vfs.Default} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, startIn(t, disk, "data"))
			for _, same := range []string{"data", "./data", "data/", "other/../data"} {
				require.ErrorIs(t, startIn(t, disk, same), broker.ErrDataDirInUse, same)
			}
		})
	}
}

// lockless is a file system that locks nothing.
type lockless struct {
	vfs.FS
	err error
}

func (l lockless) Lock(string) (io.Closer, error) { return nil, l.err }

func TestOnlyAConflictMeansThatADataDirectoryIsInUse(t *testing.T) {
	for err, inUse := range map[error]bool{
		syscall.EAGAIN: true,
		syscall.EACCES: true, // POSIX lets fcntl answer either
		syscall.ENOLCK: false,
		syscall.ENOSYS: false,
		&os.PathError{Op: "open", Path: "data/lock", Err: syscall.EACCES}: false,
		&os.PathError{Op: "open", Path: "data/lock", Err: fs.ErrNotExist}: false,
		&os.PathError{Op: "open", Path: "data/lock", Err: syscall.EMFILE}: false,
	} {
		got := startIn(t, lockless{vfs.NewMem(), err}, "data")
		require.ErrorIs(t, got, err)
		if inUse {
			require.ErrorIs(t, got, broker.ErrDataDirInUse, "%v", err)
		} else {
			require.NotErrorIs(t, got, broker.ErrDataDirInUse, "%v", err)
		}
	}
}

// TestAStartThatFindsItsPortTakenLeavesTheDataClean: the next start recovers nothing.
func TestAStartThatFindsItsPortTakenLeavesTheDataClean(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	disk, busy := vfs.NewMem(), taken.Addr().String()
	for what, cfg := range map[string]broker.Config{
		"listener": {Listen: []string{"127.0.0.1:0", busy}},
		"admin":    {Listen: []string{"127.0.0.1:0"}, Admin: busy},
	} {
		t.Run(what, func(t *testing.T) {
			cfg.FS, cfg.DataDir = disk, "data-"+what
			_, err := broker.Start(t.Context(), cfg)
			require.ErrorIs(t, err, syscall.EADDRINUSE)
			_, err = disk.Stat("data-" + what + "/clean-stop")
			require.NoError(t, err)
			require.NoError(t, startIn(t, disk, "data-"+what))
		})
	}
}
