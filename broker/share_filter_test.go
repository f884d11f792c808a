package broker_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// only is a filter of keys.
func only(keys ...string) *protocol.KeyFilter {
	f := new(protocol.KeyFilter)
	for _, key := range keys {
		f.Keys = append(f.Keys, []byte(key))
	}
	return f
}

// filtered is the worker's next fetch, with a filter.
func (w *shareWorker) filtered(f *protocol.KeyFilter, records int32, acks ...kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch) *kmsg.ShareFetchRequest {
	req := w.request(records, acks...)
	req.UnknownTags.Set(protocol.ExtensionTag, f.AppendTo(nil))
	return req
}

// applied checks that an answer says that the filter was heeded, and gives the offsets.
func (w *shareWorker) applied(resp *kmsg.ShareFetchResponse, err error) string {
	w.t.Helper()
	runs := w.acquired(resp, err)
	echoed := false
	resp.UnknownTags.Each(func(tag uint32, content []byte) {
		_, err := protocol.ParseFilterApplied(content)
		require.NoError(w.t, err)
		echoed = echoed || tag == protocol.ExtensionTag
	})
	require.True(w.t, echoed, "FilterApplied")
	return runs
}

func (w *shareWorker) fetchOnly(f *protocol.KeyFilter, records int32, acks ...kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch) string {
	w.t.Helper()
	return w.applied(w.filtered(f, records, acks...).RequestWith(w.t.Context(), w.cl))
}

var deliveryModes = []string{"round-robin", "key-ordered"}

// TestShareFetchesTakeOnlyWhatMatches deals to filters, by keys and by slots, and leaves the
// rest to others.
func TestShareFetchesTakeOnlyWhatMatches(t *testing.T) {
	for _, mode := range deliveryModes {
		t.Run(mode, func(t *testing.T) {
			b := start(t, withAdmin)
			cl := client(t, b)
			createTopic(t, kadm.NewClient(cl), 1, "orders")
			setGroup(t, cl, "g", "share.auto.offset.reset", "earliest", "share.delivery.mode", mode)
			produceKeys(t, cl, "orders", "ann", "bob", "ann", "cid", "bob", "ann")
			require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("no key")}).FirstErr())
			a, other := joinShare(t, b, "g", "a", "orders"), joinShare(t, b, "g", "other", "orders")

			require.Equal(t, "1-1", a.fetchOnly(only("bob"), 1))
			require.Equal(t, "4-4", a.fetchOnly(only("bob", "nobody"), 10, ack(1, 1, 1)))
			slot := keyfilter.Slot([]byte("cid"), 3)
			require.Equal(t, "3-3", a.fetchOnly(&protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: slot, Hi: slot}}}, 10))
			slot = keyfilter.Slot(nil, 6)
			require.Equal(t, "6-6", a.fetchOnly(&protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: slot, Hi: slot}}}, 10))
			require.Equal(t, "0-0 2-2 5-5", other.fetch(10), "what is left")
		})
	}
}

// TestAFilterBelongsToOneRequest holds that a session does not keep it.
func TestAFilterBelongsToOneRequest(t *testing.T) {
	b := start(t, nil)
	cl := client(t, b)
	createTopic(t, kadm.NewClient(cl), 1, "orders")
	setGroup(t, cl, "g", "share.auto.offset.reset", "earliest")
	produceKeys(t, cl, "orders", "ann", "bob", "cid")
	a := joinShare(t, b, "g", "a", "orders")
	require.Equal(t, "1-1", a.fetchOnly(only("bob"), 10))
	resp, err := a.request(10).RequestWith(t.Context(), a.cl)
	require.Equal(t, "0-0 2-2", a.acquired(resp, err))
	require.Zero(t, resp.UnknownTags.Len(), "none asked, none answered")
}

// waiting sends a fetch that waits, and gives what it will have got.
func (w *shareWorker) waiting(f *protocol.KeyFilter) <-chan string {
	got := make(chan string, 1)
	req := w.filtered(f, 10)
	go func() {
		resp, err := req.RequestWith(w.t.Context(), w.cl)
		runs := ""
		if err != nil {
			runs = err.Error()
		} else {
			for _, topic := range resp.Topics {
				for _, p := range topic.Partitions {
					for _, a := range p.AcquiredRecords {
						runs += fmt.Sprintf("%d-%d ", a.FirstOffset, a.LastOffset)
					}
				}
			}
		}
		got <- runs
	}()
	return got
}

// untilFetched waits until the partition of a group has been fetched from.
func untilFetched(t *testing.T, b *broker.Broker, group string) {
	t.Helper()
	eventually(t, "the partition is fetched from", func() bool {
		var s broker.ShareGroupStatus
		askAdmin(t, b, "/share-groups/"+group, http.StatusOK, &s)
		return len(s.Partitions) == 1
	})
}

// TestAFilteredFetchWaitsForWhatMatches wakes a fetch, which would wait for a minute, by
// what matches only: a record that is produced, one that is released, one whose key becomes
// free, and one far behind others that nobody takes.
func TestAFilteredFetchWaitsForWhatMatches(t *testing.T) {
	for _, mode := range deliveryModes {
		t.Run(mode, func(t *testing.T) {
			b := start(t, withAdmin)
			cl := client(t, b)
			createTopic(t, kadm.NewClient(cl), 1, "orders")
			setGroup(t, cl, "g", "share.auto.offset.reset", "earliest", "share.delivery.mode", mode)
			produceKeys(t, cl, "orders", "ann", "ann")
			a := joinShare(t, b, "g", "a", "orders")
			got := a.waiting(only("bob"))
			untilFetched(t, b, "g")
			produceKeys(t, cl, "orders", "cid")
			select {
			case runs := <-got:
				t.Fatalf("woken by what does not match, with %q", runs)
			default:
			}
			produceKeys(t, cl, "orders", "bob")
			require.Equal(t, "3-3 ", <-got, "produced")

			other := joinShare(t, b, "g", "other", "orders")
			got = other.waiting(only("bob"))
			require.Empty(t, a.acknowledge(ack(3, 3, 2)))
			require.Equal(t, "3-3 ", <-got, "released")

			var far []*kgo.Record
			for range 20_000 {
				far = append(far, &kgo.Record{Topic: "orders", Key: []byte("ann"), Value: []byte("v")})
			}
			far = append(far, &kgo.Record{Topic: "orders", Key: []byte("eve"), Value: []byte("v")})
			require.NoError(t, cl.ProduceSync(t.Context(), far...).FirstErr())
			require.Equal(t, "20004-20004", a.fetchOnly(only("eve"), 10), "far behind others that nobody takes")

			if mode == "key-ordered" {
				produceKeys(t, cl, "orders", "bob")
				got = a.waiting(only("bob"))
				require.Empty(t, other.acknowledge(ack(3, 3, 1)))
				require.Equal(t, "20005-20005 ", <-got, "its key became free")
			}
			whole := joinShare(t, b, "g", "whole", "orders")
			require.Equal(t, "0-2", whole.fetch(3), "what was passed over")
		})
	}
}

// acknowledge acknowledges in a request of its own.
func (w *shareWorker) acknowledge(first kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch) string {
	w.t.Helper()
	req := w.request(0, first)
	req.MaxWaitMillis = 0
	return w.acquired(req.RequestWith(w.t.Context(), w.cl))
}

// TestWorkersWithDisjointFiltersGetEverythingOnce has workers share a partition by slots
// while one without a filter takes what it can, in all modes, with members that leave.
func TestWorkersWithDisjointFiltersGetEverythingOnce(t *testing.T) {
	for _, mode := range append(deliveryModes, "key-range") {
		t.Run(mode, func(t *testing.T) {
			b := start(t, nil)
			cl := client(t, b)
			createTopic(t, kadm.NewClient(cl), 1, "orders")
			setGroup(t, cl, "g", "share.auto.offset.reset", "earliest", "share.delivery.mode", mode)
			var records []*kgo.Record
			for i := range 3000 {
				records = append(records, &kgo.Record{Topic: "orders", Key: fmt.Appendf(nil, "k%d", i%97), Value: []byte("v")})
			}
			require.NoError(t, cl.ProduceSync(t.Context(), records...).FirstErr())
			seen := make(map[int64]string)
			take := func(w *shareWorker, runs string, f *protocol.KeyFilter) []kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch {
				var acks []kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch
				for rest := runs; rest != ""; {
					var first, last int64
					_, err := fmt.Sscanf(rest, "%d-%d", &first, &last)
					require.NoError(t, err)
					rest = rest[min(len(rest), len(fmt.Sprintf("%d-%d ", first, last))):]
					for offset := first; offset <= last; offset++ {
						require.Empty(t, seen[offset], "offset %d", offset)
						seen[offset] = w.member
						if f != nil {
							slot := keyfilter.Slot(records[offset].Key, offset)
							require.True(t, slot >= f.Ranges[0].Lo && slot <= f.Ranges[0].Hi)
						}
					}
					acks = append(acks, ack(first, last, 1))
				}
				return acks
			}
			if mode == "key-range" { // one member holds every range
				w := joinShare(t, b, "g", "w", "orders")
				half := &protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: 0, Hi: 32767}}}
				acks := take(w, w.fetchOnly(half, 500), half)
				for len(seen) < 1000 {
					acks = take(w, w.fetchOnly(half, 500, acks...), half)
				}
				for len(seen) < 3000 {
					acks = take(w, w.fetch(500, acks...), nil)
				}
				return
			}
			low, high := joinShare(t, b, "g", "low", "orders"), joinShare(t, b, "g", "high", "orders")
			filters := map[*shareWorker]*protocol.KeyFilter{
				low:  {Ranges: []protocol.SlotRange{{Lo: 0, Hi: 32767}}},
				high: {Ranges: []protocol.SlotRange{{Lo: 32768, Hi: 65535}}},
			}
			acks := make(map[*shareWorker][]kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch)
			want := make(map[*shareWorker]int)
			for i, r := range records {
				if keyfilter.Slot(r.Key, int64(i)) <= 32767 {
					want[low]++
				} else {
					want[high]++
				}
			}
			for w, f := range filters {
				for want[w] > 0 {
					before := len(seen)
					acks[w] = take(w, w.fetchOnly(f, 400, acks[w]...), f)
					want[w] -= len(seen) - before
				}
			}
			require.Len(t, seen, 3000)
		})
	}
}

func TestBadShareFiltersAreRefused(t *testing.T) {
	b := start(t, nil)
	cl := client(t, b)
	createTopic(t, kadm.NewClient(cl), 1, "orders")
	a := joinShare(t, b, "g", "a", "orders")
	for what, field := range map[string][]byte{"empty": {}, "nothing": {1, 1, 0}, "turned around": {2, 0, 2, 0, 1, 1, 0}, "cut off": {2, 0}} {
		req := a.request(1)
		req.ShareSessionEpoch = 0
		req.UnknownTags.Set(protocol.ExtensionTag, field)
		resp, err := req.RequestWith(t.Context(), a.cl)
		require.NoError(t, err)
		require.Equal(t, kerr.InvalidRequest.Code, resp.ErrorCode, what)
	}
}

// TestFiltersFollowWhatHappensToTheLedger reopens what a filter has passed over, changes the
// mode under it, and deletes records before it.
func TestFiltersFollowWhatHappensToTheLedger(t *testing.T) {
	b := start(t, withAdmin)
	cl := client(t, b)
	adm := kadm.NewClient(cl)
	createTopic(t, adm, 1, "t")
	setGroup(t, cl, "g", "share.auto.offset.reset", "earliest")
	produceKeys(t, cl, "t", "ann", "bob", "ann", "bob")
	a := joinShare(t, b, "g", "a", "t")
	require.Equal(t, "1-1 3-3", a.fetchOnly(only("bob"), 10))
	require.Empty(t, a.acknowledge(ack(1, 1, 1)))
	got := a.waiting(only("bob"))
	reopen(t, cl, "g", 1)
	require.Equal(t, "1-1 ", <-got, "reopened")

	require.Empty(t, a.acknowledge(ack(1, 1, 1)))
	require.Empty(t, a.acknowledge(ack(3, 3, 1)))
	setGroup(t, cl, "g", "share.delivery.mode", "key-ordered")
	produceKeys(t, cl, "t", "bob", "ann", "bob")
	require.Equal(t, "4-4 6-6", a.fetchOnly(only("bob"), 10), "in another mode")

	require.Empty(t, a.acknowledge(ack(4, 4, 2)), "released")
	_, err := adm.DeleteRecords(t.Context(), kadm.Offsets{"t": {0: kadm.Offset{Topic: "t", At: 6}}})
	require.NoError(t, err)
	require.Equal(t, "6-6", a.fetchOnly(only("bob"), 10), "the log starts there, and it came back with the one before")
	require.Equal(t, "gone", explained(t, b, "g", "t", 5).State)
}

// TestAFilteredFetchThatDoesNotWaitGetsSomethingNextTime polls without patience.
func TestAFilteredFetchThatDoesNotWaitGetsSomethingNextTime(t *testing.T) {
	b := start(t, nil)
	cl := client(t, b)
	createTopic(t, kadm.NewClient(cl), 1, "t")
	setGroup(t, cl, "g", "share.auto.offset.reset", "earliest")
	produceKeys(t, cl, "t", "ann", "bob")
	a := joinShare(t, b, "g", "a", "t")
	eventually(t, "it gets what matches", func() bool {
		req := a.filtered(only("bob"), 10)
		req.MaxWaitMillis = 0
		return a.applied(req.RequestWith(t.Context(), a.cl)) == "1-1"
	})
}

// TestAnAcceptedRecordIsNotDealtToAFetchThatWaits accepts by one connection while a fetch
// with a filter waits on the other.
func TestAnAcceptedRecordIsNotDealtToAFetchThatWaits(t *testing.T) {
	for _, mode := range deliveryModes {
		t.Run(mode, func(t *testing.T) {
			b := start(t, nil)
			cl := client(t, b)
			createTopic(t, kadm.NewClient(cl), 1, "orders")
			setGroup(t, cl, "g", "share.auto.offset.reset", "earliest", "share.delivery.mode", mode)
			produceKeys(t, cl, "orders", "bob", "bob")
			a, other := joinShare(t, b, "g", "a", "orders"), joinShare(t, b, "g", "other", "orders")
			require.Equal(t, "0-1", a.fetchOnly(only("bob"), 10))
			waits := []<-chan string{a.waiting(only("bob")), other.waiting(only("bob"))}

			req := kmsg.NewPtrShareAcknowledgeRequest()
			req.Version, req.GroupID, req.MemberID = 1, &a.group, &a.member
			p := kmsg.NewShareAcknowledgeRequestTopicPartition()
			p.AcknowledgementBatches = []kmsg.ShareAcknowledgeRequestTopicPartitionAcknowledgementBatch{{FirstOffset: 0, LastOffset: 1, AcknowledgeTypes: []int8{1}}}
			req.Topics = []kmsg.ShareAcknowledgeRequestTopic{{TopicID: a.topic, Partitions: []kmsg.ShareAcknowledgeRequestTopicPartition{p}}}
			eventually(t, "the acknowledgement is taken, once the fetch before it has begun", func() bool {
				req.ShareSessionEpoch = a.epoch
				resp, err := req.RequestWith(t.Context(), cl)
				require.NoError(t, err)
				return resp.ErrorCode == 0
			})
			produceKeys(t, cl, "orders", "bob")
			select {
			case got := <-waits[0]:
				require.Equal(t, "2-2 ", got)
			case got := <-waits[1]:
				require.Equal(t, "2-2 ", got)
			}
		})
	}
}
