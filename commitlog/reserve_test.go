package commitlog

import (
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// roomyDisk is a small disk that gets back the space of files that are removed.
type roomyDisk struct{ *smallDisk }

func (d roomyDisk) Remove(name string) error {
	info, err := d.Stat(name)
	if err != nil {
		return err
	}
	if err := d.smallDisk.Remove(name); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left += info.Size()
	return nil
}

// fillDisk is a log of three segments of 300 KB on a disk without space, with a reserve.
func fillDisk(t *testing.T) (*Log, roomyDisk, Options) {
	disk := roomyDisk{&smallDisk{FS: vfs.NewCrashableMem(), left: 8 << 20}}
	o := testOptions(disk)
	o.Reserve = NewReserve(disk, "reserve")
	require.NoError(t, o.Reserve.Keep())
	l := openTest(t, o)
	for i := range 3 {
		if i > 0 {
			require.NoError(t, l.Seal())
		}
		mustAppend(t, l, plainBatch(t, 1, strings.Repeat("x", 300_000+i), 1))
	}
	disk.free(0)
	_, err := l.Append(plainBatch(t, 1, "no room", 1), AppendOptions{})
	require.ErrorIs(t, err, ErrNoSpace)
	return l, disk, o
}

// TestDeletingMakesRoomOnAFullDisk: what says that records are gone is written into the reserve,
// which is taken again from the space that they leave.
func TestDeletingMakesRoomOnAFullDisk(t *testing.T) {
	for name, remove := range map[string]func(l *Log) error{
		"delete records": func(l *Log) error {
			_, err := l.DeleteRecords(2)
			return err
		},
		"retention of some": func(l *Log) error {
			c := DefaultConfig()
			c.RetentionBytes = 200_000
			l.SetConfig(c)
			return l.ApplyRetention(time.UnixMilli(1_000_000))
		},
		"retention of all": func(l *Log) error {
			c := DefaultConfig()
			c.RetentionBytes = 0
			l.SetConfig(c)
			return l.ApplyRetention(time.UnixMilli(1_000_000))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, disk, o := fillDisk(t)
			require.NoError(t, remove(l))
			_, err := disk.Stat("reserve")
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.NoError(t, o.Reserve.Keep())
			start := l.Bounds().Start
			require.GreaterOrEqual(t, start, int64(2))
			mustAppend(t, l, plainBatch(t, 1, "room", 1))
			require.NoError(t, l.Close())
			again := openTest(t, o)
			require.Equal(t, start, again.Bounds().Start)
			require.NoError(t, again.CheckInvariants())
		})
	}
}

// TestAppendsLeaveTheReserve: it is not for what fills the disk.
func TestAppendsLeaveTheReserve(t *testing.T) {
	l, disk, _ := fillDisk(t)
	require.Error(t, l.Seal())
	_, err := disk.Stat("reserve")
	require.NoError(t, err)
}

// TestReserveOfAFullDisk: it leaves nothing behind where there is no space for it, and is
// taken when there is.
func TestReserveOfAFullDisk(t *testing.T) {
	disk := roomyDisk{&smallDisk{FS: vfs.NewMem(), left: 1000}}
	r := NewReserve(disk, "reserve")
	require.Error(t, r.Keep())
	require.False(t, r.give())
	_, err := disk.Stat("reserve")
	require.ErrorIs(t, err, fs.ErrNotExist)
	disk.free(ReserveBytes)
	require.NoError(t, r.Keep())
	require.NoError(t, r.Keep())
	next := NewReserve(disk, "reserve") // of the next start
	require.NoError(t, next.Keep())
	require.True(t, next.give())
	require.False(t, next.give())
}
