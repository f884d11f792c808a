package broker_test

import (
	"context"
	"io/fs"
	"slices"
	"strings"
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

// soon is less than a record lock's time.
const soon = 10 * time.Second

// requireDealt checks that a worker gets what is there before any lock runs out, and that
// none of it was delivered before.
func (w *shareWorker) requireDealt(runs string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), soon)
	defer cancel()
	resp, err := w.request(100).RequestWith(ctx, w.cl)
	require.NoError(w.t, err, "the records are still with somebody else")
	require.Equal(w.t, runs, w.acquired(resp, nil))
	for _, a := range resp.Topics[0].Partitions[0].AcquiredRecords {
		require.EqualValues(w.t, 1, a.DeliveryCount)
	}
}

// produceTogether produces records in one batch.
func produceTogether(t *testing.T, b *broker.Broker, topic string, partition int32, values ...string) {
	t.Helper()
	w := dial(t, b)
	req := produceRequest(topic, -1, batch(t, values...))
	req.Topics[0].Partitions[0].Partition = partition
	w.send(w.frame(req, 9))
	resp := kmsg.ProduceResponse{Version: 9}
	w.receive(&resp)
	require.NoError(t, kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode))
}

// shareTopic makes a topic with three records, of which group g reads all.
func shareTopic(t *testing.T, b *broker.Broker) {
	t.Helper()
	cl := client(t, b)
	createTopic(t, kadm.NewClient(cl), 1, "jobs")
	setGroup(t, cl, "g", "share.auto.offset.reset", "earliest")
	produceTogether(t, b, "jobs", 0, "0", "1", "2")
}

// TestRecordsThatCannotBeReadAreGivenBack has the disk fail after records were acquired.
func TestRecordsThatCannotBeReadAreGivenBack(t *testing.T) {
	var fails atomic.Bool
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if fails.Load() && op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".log") {
			return &fs.PathError{Op: "read", Path: op.Path, Err: syscall.EIO}
		}
		return nil
	}))
	b := start(t, func(c *broker.Config) { c.FS = disk; quietly(c) })
	shareTopic(t, b)
	one, other := joinShare(t, b, "g", "one", "jobs"), joinShare(t, b, "g", "other", "jobs")
	require.Equal(t, "0-0", one.fetch(1))
	fails.Store(true)
	resp, err := one.request(2).RequestWith(t.Context(), one.cl)
	require.NoError(t, err)
	p := resp.Topics[0].Partitions[0]
	require.Equal(t, kerr.KafkaStorageError, kerr.ErrorForCode(p.ErrorCode))
	require.Empty(t, p.AcquiredRecords)
	fails.Store(false)
	other.requireDealt("1-2")
}

// TestAFetchOfASessionThatEndsGetsNothing has a member end its session on another connection
// than the one on which it fetches.
func TestAFetchOfASessionThatEndsGetsNothing(t *testing.T) {
	b := start(t, withAdmin)
	shareTopic(t, b)
	one := joinShare(t, b, "g", "one", "jobs")
	require.Equal(t, "0-2", one.fetch(3))
	fetching := one.request(3)
	answer := make(chan error, 1)
	go func() {
		resp, err := fetching.RequestWith(t.Context(), one.cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		answer <- err
	}()
	untilFetched(t, b, "g")
	end := kmsg.NewPtrShareAcknowledgeRequest()
	end.Version = 2
	end.GroupID, end.MemberID, end.ShareSessionEpoch = &one.group, &one.member, -1
	_, err := end.RequestWith(t.Context(), client(t, b))
	require.NoError(t, err)
	require.ErrorIs(t, <-answer, kerr.ShareSessionNotFound)
	joinShare(t, b, "g", "other", "jobs").requireDealt("0-2")
}

// TestAShareFetchKeepsToItsMaxBytes has two partitions of which a fetch gets half of each
// batch: whole, they are too large together.
func TestAShareFetchKeepsToItsMaxBytes(t *testing.T) {
	b := start(t, quietly)
	cl := client(t, b)
	createTopic(t, kadm.NewClient(cl), 2, "jobs")
	setGroup(t, cl, "g", "share.auto.offset.reset", "earliest")
	for partition := range int32(2) {
		produceTogether(t, b, "jobs", partition, slices.Repeat([]string{strings.Repeat("v", 30_000)}, 10)...)
	}
	fetch := func(member string, records int32, partitions ...int32) []kmsg.ShareFetchResponseTopicPartition {
		w := joinShare(t, b, "g", member, "jobs")
		req := w.request(records)
		req.MaxBytes = 550_000
		req.Topics[0].Partitions = nil
		for _, p := range partitions {
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, kmsg.ShareFetchRequestTopicPartition{Partition: p})
		}
		resp, err := req.RequestWith(t.Context(), w.cl)
		require.NoError(t, err)
		return resp.Topics[0].Partitions
	}
	fetch("one", 5, 0)
	fetch("another", 5, 1)
	bytes, records := 0, int64(0)
	for _, p := range fetch("third", 10, 0, 1) {
		bytes += len(p.Records)
		for _, a := range p.AcquiredRecords {
			records += a.LastOffset - a.FirstOffset + 1
		}
	}
	require.LessOrEqual(t, bytes, 550_000)
	require.EqualValues(t, 10, records)
}
