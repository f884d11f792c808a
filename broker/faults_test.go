package broker_test

import (
	"context"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/lacunamq/lacuna/broker"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// failing is a file system on which some of what changes the disk fails.
type failing struct {
	vfs.FS
	at atomic.Pointer[func(errorfs.Op) bool]
}

func newFailing(disk vfs.FS) *failing {
	f := &failing{}
	f.FS = errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		at := f.at.Load()
		if at == nil || op.Kind.ReadOrWrite() != errorfs.OpIsWrite || !(*at)(op) {
			return nil
		}
		return &fs.PathError{Op: "write", Path: op.Path, Err: syscall.EIO}
	}))
	return f
}

// failAt lets operations fail from now on for which at holds.
func (f *failing) failAt(at func(errorfs.Op) bool) { f.at.Store(&at) }

// failSync lets the next sync of a file or directory fail.
func (f *failing) failSync(path string) {
	var failed atomic.Bool
	f.failAt(func(op errorfs.Op) bool {
		return op.Kind == errorfs.OpFileSync && op.Path == path && failed.CompareAndSwap(false, true)
	})
}

// start starts a broker on it, which may not stop well.
func (f *failing) start(t *testing.T) *broker.Broker {
	t.Helper()
	b, err := f.tryStart(t)
	require.NoError(t, err)
	return b
}

func (f *failing) tryStart(t *testing.T) (*broker.Broker, error) {
	b, err := broker.Start(t.Context(), broker.Config{
		Listen: []string{"127.0.0.1:0"}, DataDir: "data", FS: f,
		Settings: map[string]string{"offsets.topic.num.partitions": "1"},
	})
	if err == nil {
		t.Cleanup(func() { _ = b.Stop(context.Background()) })
	}
	return b, err
}

// beginProduce sends one record to a partition, with acks=all.
func (w *wire) beginProduce(topic string, partition int32) {
	w.t.Helper()
	req := produceRequest(topic, -1, batch(w.t, "x"))
	req.Topics[0].Partitions[0].Partition = partition
	w.send(w.frame(req, 9))
}

// produce is beginProduce to partition 0, and waits for the answer.
func (w *wire) produce(topic string) error {
	w.t.Helper()
	w.beginProduce(topic, 0)
	resp := kmsg.ProduceResponse{Version: 9}
	w.receive(&resp)
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// requireEnd checks where partition 0 of a topic ends after the machine has crashed.
func requireEnd(t *testing.T, disk *vfs.MemFS, topic string, end int64) {
	t.Helper()
	b := newFailing(disk.CrashClone(vfs.CrashCloneCfg{})).start(t)
	ends, err := kadm.NewClient(client(t, b)).ListEndOffsets(t.Context(), topic)
	require.NoError(t, err)
	at, ok := ends.Lookup(topic, 0)
	require.True(t, ok)
	require.NoError(t, at.Err)
	require.Equal(t, end, at.Offset)
}

// TestTheDirectoryOfATopicIsSyncedBeforeAnAnswer holds for what comes after a sync of it
// that failed, which tells the client to come again.
func TestTheDirectoryOfATopicIsSyncedBeforeAnAnswer(t *testing.T) {
	for _, dir := range []string{"data/topics", "data"} {
		t.Run(dir, func(t *testing.T) {
			disk := vfs.NewCrashableMem()
			f := newFailing(disk)
			w := dial(t, f.start(t))
			makeTopic(t, w, "new")
			f.failSync(dir)
			require.ErrorIs(t, w.produce("new"), kerr.KafkaStorageError)
			require.NoError(t, w.produce("new"))
			requireEnd(t, disk, "new", 1)
		})
	}
}

// TestAPartitionWaitsForTheDirectoryThatAnotherMakes holds that the directory of a topic
// is durable before anything in it counts as durable, whoever made it.
func TestAPartitionWaitsForTheDirectoryThatAnotherMakes(t *testing.T) {
	f := newFailing(vfs.NewMem())
	b := f.start(t)
	create(t, client(t, b), "new")
	begun, release := make(chan struct{}), make(chan struct{})
	var held atomic.Bool
	f.failAt(func(op errorfs.Op) bool {
		if op.Kind == errorfs.OpFileSync && op.Path == "data/topics" && held.CompareAndSwap(false, true) {
			close(begun)
			<-release
		}
		return false
	})
	defer close(release)
	first, second := dial(t, b), dial(t, b)
	first.beginProduce("new", 1)
	<-begun
	second.beginProduce("new", 0)
	require.NoError(t, second.conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	_, err := second.in.Peek(1)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it is answered before the directory is durable")
}

// TestTheDataDirectoryIsSyncedAfterAFailedStart holds that what a start before has left
// without syncing it is not taken for durable.
func TestTheDataDirectoryIsSyncedAfterAFailedStart(t *testing.T) {
	disk := vfs.NewCrashableMem()
	f := newFailing(disk)
	f.failSync(".")
	_, err := f.tryStart(t)
	require.ErrorIs(t, err, syscall.EIO)
	w := dial(t, f.start(t))
	makeTopic(t, w, "new")
	require.NoError(t, w.produce("new"))
	requireEnd(t, disk, "new", 1)
}
