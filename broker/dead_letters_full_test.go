package broker_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lacunamq/lacuna/broker"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TestDeadLettersWaitForSpace rejects more records than a partition has locks while there is
// no space for their dead letters. Others go on, and when there is space all are written.
func TestDeadLettersWaitForSpace(t *testing.T) {
	const locks, rejected = 100, 250
	disk := newFullDisk()
	b := start(t, func(c *broker.Config) { c.FS = disk; quietly(c) })
	cl := client(t, b)
	adm := kadm.NewClient(cl)
	createTopic(t, adm, 1, "orders")
	letterTopic(t, adm, 1, "dlq.orders")
	setGroup(t, cl, "g", "share.auto.offset.reset", "earliest", "errors.deadletterqueue.topic.name", "dlq.orders",
		"share.partition.max.record.locks", fmt.Sprint(locks))
	disk.fill(folderOf(t, adm, "dlq.orders"))
	produceTogether(t, b, "orders", 0, slices.Repeat([]string{"poison"}, rejected)...)
	w := work(t, b, "g", "orders")
	handle(t, w, rejected, rejecting("poison"))
	produceTo(t, b, "orders", 0, "a", "b")
	handle(t, w, 2, rejecting())
	require.Zero(t, startOffset(t, adm, "g", "orders", 0))
	disk.free()
	offsets := make(map[string]bool)
	for _, r := range readAll(t, b, "dlq.orders", rejected) {
		offsets[letter(r)] = true
	}
	require.Len(t, offsets, rejected, "each once")
	eventually(t, "all is archived", func() bool { return startOffset(t, adm, "g", "orders", 0) == rejected+2 })
}

// TestAFullDiskHoldsUpOnlyWhatIsToBeLogged refuses to take a rejection while there is no
// space at all, and deals the record once more; when there is space it gets its letter.
func TestAFullDiskHoldsUpOnlyWhatIsToBeLogged(t *testing.T) {
	disk := newFullDisk()
	b := start(t, func(c *broker.Config) { c.FS = disk; quietly(c) })
	shareTopic(t, b)
	cl := client(t, b)
	adm := kadm.NewClient(cl)
	letterTopic(t, adm, 1, "dlq.jobs")
	setGroup(t, cl, "g", "errors.deadletterqueue.topic.name", "dlq.jobs")
	w := joinShare(t, b, "g", "one", "jobs")
	require.Equal(t, "0-0", w.fetch(1))
	disk.fill("data/topics")
	for range 3 {
		resp, err := w.request(1, ack(0, 0, 3)).RequestWith(t.Context(), w.cl)
		require.NoError(t, err)
		p := resp.Topics[0].Partitions[0]
		require.Equal(t, kerr.KafkaStorageError, kerr.ErrorForCode(p.AcknowledgeErrorCode))
		require.Len(t, p.AcquiredRecords, 1, "it is dealt again")
		require.Zero(t, p.AcquiredRecords[0].FirstOffset)
	}
	disk.free()
	require.Equal(t, "1-1", w.fetch(1, ack(0, 0, 3)))
	require.Contains(t, letter(readAll(t, b, "dlq.jobs", 1)[0]), "offset=0 ")
	eventually(t, "it is archived", func() bool { return startOffset(t, adm, "g", "jobs", 0) == 1 })
}
