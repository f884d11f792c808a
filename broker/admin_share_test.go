package broker_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// shareWorker is a member of a share group that sends what a test says, and nothing else.
type shareWorker struct {
	t             *testing.T
	cl            *kgo.Client
	group, member string
	topic         [16]byte
	epoch         int32
}

// joinShare lets a worker of a topic join a group.
func joinShare(t *testing.T, b *broker.Broker, group, member, topic string) *shareWorker {
	t.Helper()
	cl := client(t, b)
	_, err := beat(t, cl, group, member, 0, topic)
	require.NoError(t, err)
	topics, err := kadm.NewClient(cl).ListTopics(t.Context(), topic)
	require.NoError(t, err)
	return &shareWorker{t: t, cl: cl, group: group, member: member, topic: topics[topic].ID}
}

// request is the worker's next fetch of partition 0, which waits for long.
func (w *shareWorker) request(records int32, acks ...kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch) *kmsg.ShareFetchRequest {
	req := kmsg.NewPtrShareFetchRequest()
	req.Version = 2
	req.GroupID, req.MemberID = &w.group, &w.member
	req.ShareSessionEpoch = w.epoch
	req.MaxRecords, req.BatchSize, req.MaxBytes, req.MaxWaitMillis, req.ShareAcquireMode = records, records, 1<<20, 60_000, 1
	p := kmsg.NewShareFetchRequestTopicPartition()
	p.AcknowledgementBatches = acks
	req.Topics = []kmsg.ShareFetchRequestTopic{{TopicID: w.topic, Partitions: []kmsg.ShareFetchRequestTopicPartition{p}}}
	w.epoch++
	return req
}

// fetch acquires records and gives their offsets as runs, "0-2 5".
func (w *shareWorker) fetch(records int32, acks ...kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch) string {
	w.t.Helper()
	return w.acquired(w.request(records, acks...).RequestWith(w.t.Context(), w.cl))
}

func (w *shareWorker) acquired(resp *kmsg.ShareFetchResponse, err error) (runs string) {
	w.t.Helper()
	require.NoError(w.t, err)
	require.NoError(w.t, kerr.ErrorForCode(resp.ErrorCode))
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			require.NoError(w.t, kerr.ErrorForCode(p.ErrorCode))
			require.NoError(w.t, kerr.ErrorForCode(p.AcknowledgeErrorCode))
			for _, a := range p.AcquiredRecords {
				runs += fmt.Sprintf(" %d-%d", a.FirstOffset, a.LastOffset)
			}
		}
	}
	if runs == "" {
		return ""
	}
	return runs[1:]
}

func ack(first, last int64, kind int8) kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch {
	return kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch{FirstOffset: first, LastOffset: last, AcknowledgeTypes: []int8{kind}}
}

// askAdmin asks the admin listener and reads its answer into v.
func askAdmin(t *testing.T, b *broker.Broker, path string, status int, v any) {
	t.Helper()
	resp, err := http.Get("http://" + b.AdminAddr() + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, status, resp.StatusCode)
	require.NoError(t, json.NewDecoder(resp.Body).Decode(v))
}

func explained(t *testing.T, b *broker.Broker, group, topic string, offset int64) (e broker.OffsetExplanation) {
	t.Helper()
	askAdmin(t, b, fmt.Sprintf("/share-groups/%s/explain?topic=%s&offset=%d", group, topic, offset), http.StatusOK, &e)
	return e
}

func withAdmin(c *broker.Config) { c.Admin = "127.0.0.1:0" }

// produceKeys produces a record for each key, in order.
func produceKeys(t *testing.T, cl *kgo.Client, topic string, keys ...string) {
	t.Helper()
	for _, key := range keys {
		require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte("v")}).FirstErr())
	}
}

func TestTheAdminListenerShowsWhoHasWhichRecord(t *testing.T) {
	b := start(t, withAdmin)
	cl := client(t, b)
	createTopic(t, kadm.NewClient(cl), 1, "orders")
	setGroup(t, cl, "g", "share.auto.offset.reset", "earliest", "share.delivery.mode", "key-ordered",
		"share.retry.backoff.ms", "60000", "errors.deadletterqueue.topic.name", "dlq.missing")
	produceKeys(t, cl, "orders", "ann", "bob", "ann", "cid", "dan")
	a := joinShare(t, b, "g", "a", "orders")
	require.Equal(t, "open", explained(t, b, "g", "orders", 0).State, "nobody fetches it")
	require.Equal(t, "0-1", a.fetch(2))
	s := broker.ShareGroupStatus{}
	askAdmin(t, b, "/share-groups/g", http.StatusOK, &s)
	require.Equal(t, "key-ordered", s.Mode)
	require.Len(t, s.Members, 1)
	require.Equal(t, 2, s.Members[0].Acquired)
	require.Len(t, s.Partitions, 1)
	require.Equal(t, 2, s.Partitions[0].Acquired)
	require.EqualValues(t, 0, s.Partitions[0].Oldest.Offset)
	held := s.Partitions[0].Held
	require.Len(t, held, 1)
	require.Equal(t, "a", held[0].Member)
	require.EqualValues(t, []int64{0, 1}, []int64{held[0].First, held[0].Last})
	require.Equal(t, 1, held[0].Delivery)
	require.InDelta(t, 30_000, held[0].ExpiresInMs+held[0].AgeMs, 2, "the lock duration")

	e := explained(t, b, "g", "orders", 1)
	require.Equal(t, "acquired", e.State)
	require.Equal(t, "a", e.Member)
	require.Equal(t, "bob", *e.Key)
	require.Equal(t, keyfilter.Slot([]byte("bob"), 1), *e.Slot)
	e = explained(t, b, "g", "orders", 2)
	require.Equal(t, "available", e.State)
	require.Equal(t, "a", e.Blocker, "it has the record of ann before")
	require.Equal(t, "available", explained(t, b, "g", "orders", 3).State)
	require.Empty(t, explained(t, b, "g", "orders", 3).Blocker)

	// One is accepted, one released with a backoff, one rejected, whose letter cannot be written.
	require.Equal(t, "2-3", a.fetch(2, ack(0, 0, 1), ack(1, 1, 2)))
	require.Equal(t, "4-4", a.fetch(2, ack(3, 3, 3)))
	require.Equal(t, "committed", explained(t, b, "g", "orders", 0).State)
	e = explained(t, b, "g", "orders", 1)
	require.Equal(t, "delayed", e.State)
	require.Equal(t, 1, e.Deliveries)
	require.InDelta(t, 60_000, e.ExpiresInMs, 10_000)
	require.Equal(t, "archiving", explained(t, b, "g", "orders", 3).State)
	require.Equal(t, "not written", explained(t, b, "g", "orders", 5).State)
	askAdmin(t, b, "/share-groups/g", http.StatusOK, &s)
	require.Equal(t, []int{2, 1, 1}, []int{s.Partitions[0].Acquired, s.Partitions[0].Delayed, s.Partitions[0].DeadLetters})

	var refused map[string]string
	askAdmin(t, b, "/share-groups/nobody", http.StatusNotFound, &refused)
	require.Contains(t, refused["error"], `no share group "nobody"`)
	askAdmin(t, b, "/share-groups/g?limit=x", http.StatusBadRequest, &refused)
	askAdmin(t, b, "/share-groups/g/explain?topic=orders", http.StatusBadRequest, &refused)
	askAdmin(t, b, "/share-groups/g/explain?topic=orders&offset=1&partition=7", http.StatusNotFound, &refused)
}

// TestTheAdminListenerListsAcquiredRecordsInPages follows held_to through many runs.
func TestTheAdminListenerListsAcquiredRecordsInPages(t *testing.T) {
	b := start(t, withAdmin)
	cl := client(t, b)
	createTopic(t, kadm.NewClient(cl), 1, "orders")
	setGroup(t, cl, "a group/of two", "share.auto.offset.reset", "earliest")
	produceKeys(t, cl, "orders", "a", "b", "c", "d", "e", "f")
	one, two := joinShare(t, b, "a group/of two", "one", "orders"), joinShare(t, b, "a group/of two", "two", "orders")
	for range 3 {
		require.NotEmpty(t, one.fetch(1))
		require.NotEmpty(t, two.fetch(1))
	}
	var members []string
	pages := 0
	for from := int64(0); ; pages++ {
		s := broker.ShareGroupStatus{}
		askAdmin(t, b, fmt.Sprintf("/share-groups/%s?topic=orders&partition=0&limit=2&from=%d", url.PathEscape("a group/of two"), from), http.StatusOK, &s)
		for _, held := range s.Partitions[0].Held {
			require.EqualValues(t, len(members), held.First)
			members = append(members, held.Member)
		}
		if s.Partitions[0].HeldTo == nil {
			break
		}
		from = *s.Partitions[0].HeldTo
	}
	require.Equal(t, 2, pages)
	require.Equal(t, []string{"one", "two", "one", "two", "one", "two"}, members)
}

// TestTheAdminListenerShowsKeyRanges lets a range move while records of it are acquired.
func TestTheAdminListenerShowsKeyRanges(t *testing.T) {
	b := start(t, withAdmin)
	cl := client(t, b)
	createTopic(t, kadm.NewClient(cl), 1, "orders")
	setGroup(t, cl, "g", "share.auto.offset.reset", "earliest", "share.delivery.mode", "key-range", "share.key.range.initial", "2")
	produceKeys(t, cl, "orders", "order-1", "order-2", "order-2") // the slots are 15279 and 36751
	a := joinShare(t, b, "g", "a", "orders")
	require.Equal(t, "0-1", a.fetch(2))
	joinShare(t, b, "g", "b", "orders")
	slots := make(map[string]string)
	eventually(t, "both have half of the slots", func() bool {
		var s broker.ShareGroupStatus
		askAdmin(t, b, "/share-groups/g", http.StatusOK, &s)
		for _, m := range s.Members {
			slots[m.ID] = fmt.Sprint(m.Slots)
		}
		return len(s.Members) == 2 && len(s.Members[0].Slots) == 1 && len(s.Members[1].Slots) == 1
	})
	require.ElementsMatch(t, []string{"[{orders 0 0 32767}]", "[{orders 0 32768 65535}]"}, []string{slots["a"], slots["b"]})
	e := explained(t, b, "g", "orders", 2)
	require.Equal(t, slots[e.SlotHolder], "[{orders 0 32768 65535}]")
	require.Contains(t, e.Why, "earlier records of its key, which member a has")
	require.Eventually(t, func() bool { return explained(t, b, "g", "orders", 1).State == "acquired" }, time.Second, time.Millisecond)
}
