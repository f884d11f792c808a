package broker_test

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestALedgerIsDeletedBeforeItsOffset holds that OffsetDelete takes the committed offset
// of a partition last: until the ledger is gone, it would write the offset anew.
func TestALedgerIsDeletedBeforeItsOffset(t *testing.T) {
	fs := newFailing(vfs.NewMem())
	b := fs.start(t)
	l := ledgerOf(t, b, "kept", 5)
	cl := client(t, b)
	admin := kadm.NewClient(cl)
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "kept", At: 2, LeaderEpoch: -1})
	require.NoError(t, admin.CommitAllOffsets(t.Context(), "g", offsets))
	_, err := l.commit(-1, runs(protocol.Run{Start: 3, End: 4}))
	require.NoError(t, err)

	internal, err := admin.ListTopicsWithInternal(t.Context())
	require.NoError(t, err)
	id := metadata.TopicID(internal["__individual_commit_offsets"].ID)
	below := "data/topics/" + id.String()
	fs.failAt(func(op errorfs.Op) bool { return strings.HasPrefix(op.Path, below) })
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = "g"
	req.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "kept", Partitions: make([]kmsg.OffsetDeleteRequestTopicPartition, 1)}}
	l.send(l.frame(req, 0))
	var resp kmsg.OffsetDeleteResponse
	l.receive(&resp)
	require.Equal(t, kerr.NotCoordinator.Code, resp.ErrorCode, "the ledger cannot be deleted")
	require.NotNil(t, lastCommit(t, b, "g", "kept"), "so the offset is not, either")
}

// lastCommit is what __consumer_offsets last says about a group's offset in partition 0
// of a topic; nil: it is deleted.
func lastCommit(t *testing.T, b *broker.Broker, group, topic string) (value []byte) {
	t.Helper()
	log := client(t, b, kgo.ConsumeTopics("__consumer_offsets"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ends, err := kadm.NewClient(log).ListEndOffsets(t.Context(), "__consumer_offsets")
	require.NoError(t, err)
	end, _ := ends.Lookup("__consumer_offsets", 0)
	for next := int64(0); next < end.Offset; {
		fetches := log.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			var key kmsg.OffsetCommitKey
			if key.ReadFrom(r.Key) == nil && key.Group == group && key.Topic == topic {
				value = r.Value
			}
		})
	}
	return value
}
