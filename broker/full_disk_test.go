package broker_test

import (
	"encoding/base64"
	"io/fs"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/lacunamq/lacuna/broker"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// fullDisk is a disk on which there is no space for what lies in a folder, while it has one and
// until the broker's reserve is given up.
type fullDisk struct {
	vfs.FS
	folder atomic.Pointer[string]
}

func newFullDisk() *fullDisk {
	d := &fullDisk{}
	d.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpRemove && op.Path == "data/reserve" {
			d.free()
		}
		folder := d.folder.Load()
		if folder == nil || op.Kind != errorfs.OpFileWrite && op.Kind != errorfs.OpFileWriteAt || !strings.HasPrefix(op.Path, *folder) {
			return nil
		}
		return &fs.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
	}))
	return d
}

func (d *fullDisk) fill(folder string) { d.folder.Store(&folder) }

func (d *fullDisk) free() { d.folder.Store(nil) }

// folderOf is where the partitions of a topic are.
func folderOf(t *testing.T, adm *kadm.Client, topic string) string {
	t.Helper()
	topics, err := adm.ListTopics(t.Context(), topic)
	require.NoError(t, err)
	id := topics[topic].ID
	return "data/topics/" + base64.RawURLEncoding.EncodeToString(id[:])
}

// TestDeletingATopicNeedsNoSpace: it is what people do when the disk is full.
func TestDeletingATopicNeedsNoSpace(t *testing.T) {
	disk := newFullDisk()
	core, told := observer.New(zap.ErrorLevel)
	b := start(t, func(c *broker.Config) { c.FS, c.Logger = disk, zap.New(core) })
	cl := client(t, b)
	adm := kadm.NewClient(cl)
	createTopic(t, adm, 1, "large")
	require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: "large", Value: []byte("x")}).FirstErr())
	folder := folderOf(t, adm, "large")
	disk.fill(folder)
	_, err := adm.DeleteTopics(t.Context(), "large")
	require.NoError(t, err)
	_, err = disk.Stat(folder)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Empty(t, told.All())
}

// TestDeletingRecordsNeedsNoSpace: what a broker has to write for it has a place in its reserve.
func TestDeletingRecordsNeedsNoSpace(t *testing.T) {
	disk := newFullDisk()
	b := start(t, func(c *broker.Config) { c.FS = disk })
	cl := client(t, b)
	adm := kadm.NewClient(cl)
	createTopic(t, adm, 1, "large")
	require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: "large", Value: []byte("x")}).FirstErr())
	disk.fill(folderOf(t, adm, "large"))
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "large", At: 1})
	deleted, err := adm.DeleteRecords(t.Context(), offsets)
	require.NoError(t, err)
	require.NoError(t, deleted.Error())
	require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: "large", Value: []byte("x")}).FirstErr())
}
