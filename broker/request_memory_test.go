package broker

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// outlined are the requests with a shape, each with some elements of every kind: 2 topics
// of 3 partitions, and tags wherever there may be some.
func outlined() map[*shape]kmsg.Request {
	topic, instance := "a topic", "an instance"
	id := [16]byte{1}
	tagged := func() (t kmsg.Tags) {
		t.Set(10_000, []byte("some content"))
		return t
	}
	produce := kmsg.NewPtrProduceRequest()
	produce.TransactionID, produce.UnknownTags = &instance, tagged()
	fetch := kmsg.NewPtrFetchRequest()
	fetch.ClusterID, fetch.ReplicaState.ID, fetch.ReplicaState.UnknownTags, fetch.UnknownTags = &instance, 7, tagged(), tagged()
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Group, commit.MemberID, commit.InstanceID, commit.UnknownTags = "a group", "a member", &instance, tagged()
	for range 2 {
		produce.Topics = append(produce.Topics, kmsg.ProduceRequestTopic{Topic: topic, TopicID: id, UnknownTags: tagged()})
		fetch.Topics = append(fetch.Topics, kmsg.FetchRequestTopic{Topic: topic, TopicID: id, UnknownTags: tagged()})
		fetch.ForgottenTopics = append(fetch.ForgottenTopics, kmsg.FetchRequestForgottenTopic{Topic: topic, TopicID: id, Partitions: []int32{1, 2, 3}, UnknownTags: tagged()})
		commit.Topics = append(commit.Topics, kmsg.OffsetCommitRequestTopic{Topic: topic, TopicID: id, UnknownTags: tagged()})
		i := len(produce.Topics) - 1
		for range 3 {
			produce.Topics[i].Partitions = append(produce.Topics[i].Partitions, kmsg.ProduceRequestTopicPartition{Records: []byte("records"), UnknownTags: tagged()})
			p := kmsg.NewFetchRequestTopicPartition()
			p.UnknownTags, p.ReplicaDirectoryID = tagged(), id
			fetch.Topics[i].Partitions = append(fetch.Topics[i].Partitions, p)
			commit.Topics[i].Partitions = append(commit.Topics[i].Partitions, kmsg.OffsetCommitRequestTopicPartition{Metadata: &instance, UnknownTags: tagged()})
		}
	}
	return map[*shape]kmsg.Request{&produceShape: produce, &fetchShape: fetch, &offsetCommitShape: commit}
}

func TestShapesFitTheirRequests(t *testing.T) {
	for s, req := range outlined() {
		for v := int16(0); v <= req.MaxVersion(); v++ {
			req.SetVersion(v)
			body := req.AppendTo(nil)
			w := shapeWalk{rest: body, version: v, flexible: req.IsFlexible()}
			w.walk(*s)
			require.Empty(t, w.rest, "%s version %d", kmsg.NameForKey(req.Key()), v)
			want := 2 + 2*3
			if fetch, ok := req.(*kmsg.FetchRequest); ok {
				if v >= 7 {
					want += 2 + 2*3 // forgotten ones
				}
				if fetch.IsFlexible() {
					want += 2 + 2*3 + 3 // tags of the forgotten, of directory ids, of the top level
				}
			}
			if req.IsFlexible() {
				want += 1 + 2 + 2*3
			}
			require.Equal(t, want, w.count, "%s version %d", kmsg.NameForKey(req.Key()), v)
		}
	}
}

func TestShapesCountWhatIsAnnounced(t *testing.T) {
	for s, req := range outlined() {
		body := req.AppendTo(nil)
		for i := range body {
			for _, b := range []byte{0, 1, 0x7f, 0x80, 0xff} {
				damaged := append(append(append([]byte{}, body[:i]...), b), body[i+1:]...)
				elements, tagBytes := s.measure(req, damaged)
				require.LessOrEqual(t, elements, 4*len(body))
				require.LessOrEqual(t, tagBytes, len(body))
				s.measure(req, damaged[:i])
			}
		}
	}
}

func TestRequestMemory(t *testing.T) {
	ctx := t.Context()
	m := newRequestMemory(100)
	var a, b, c room
	require.ErrorContains(t, a.grow(ctx, m, 101), "queued.max.request.bytes")
	require.NoError(t, a.grow(ctx, m, 60))
	require.NoError(t, b.grow(ctx, m, 40))
	require.ErrorContains(t, a.grow(ctx, m, 41), "queued.max.request.bytes")

	// Both have come in part, and there is no room: one may go on, the other waits for it.
	require.NoError(t, a.grow(ctx, m, 20))
	require.ErrorContains(t, a.grow(ctx, m, 21), "queued.max.request.bytes", "but not for ever")
	ended, end := context.WithCancel(ctx)
	end()
	require.ErrorIs(t, b.grow(ended, m, 20), context.Canceled)
	require.ErrorIs(t, c.grow(ended, m, 1), context.Canceled)
	waiting := make(chan error)
	go func() { waiting <- b.grow(ctx, m, 20) }()
	a.release()
	require.NoError(t, <-waiting)
	require.NoError(t, b.grow(ctx, m, 0))
	b.release()

	require.NoError(t, c.grow(ctx, m, 100))
	c.release()
	require.NoError(t, c.grow(ctx, m, 100), "all was given back")
	c.release()
}
