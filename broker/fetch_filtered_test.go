package broker_test

import (
	"fmt"
	"testing"

	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// filtered fetches from offset with a filter, at the newest version.
func (w *wire) filtered(topic [16]byte, offset int64, tag []byte) kmsg.FetchResponse {
	req := fetchRequest("", offset, 0)
	req.SessionEpoch = -1
	req.Topics[0].TopicID = topic
	req.UnknownTags.Set(protocol.ExtensionTag, tag)
	w.send(w.frame(req, 18))
	resp := kmsg.FetchResponse{Version: 18}
	w.receive(&resp)
	return resp
}

func TestAFilteredFetchSendsTheSlotsAskedFor(t *testing.T) {
	b := start(t, nil)
	w := dial(t, b)
	id := makeTopic(t, w, "keys")
	producer := client(t, b)
	want := map[string]int64{}
	asked := protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: 0, Hi: 16383}}, Keys: [][]byte{[]byte("key-7")}}
	for i := range 500 {
		key := fmt.Sprintf("key-%d", i)
		r := &kgo.Record{Topic: "keys", Key: []byte(key), Value: []byte("value")}
		require.NoError(t, producer.ProduceSync(t.Context(), r).FirstErr())
		if keyfilter.Slot(r.Key, r.Offset) <= 16383 || key == "key-7" {
			want[key] = r.Offset
		}
	}
	got := map[string]int64{}
	for at := int64(0); at < 500; {
		resp := w.filtered(id, at, asked.AppendTo(nil))
		require.Zero(t, resp.ErrorCode)
		p := resp.Topics[0].Partitions[0]
		out, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "keys", Offset: at}, &p, kgo.DefaultDecompressor(), nil)
		require.NoError(t, out.Err)
		for _, r := range out.Records {
			got[string(r.Key)] = r.Offset
		}
		var field []byte
		p.UnknownTags.Each(func(_ uint32, v []byte) { field = v })
		scanned, err := protocol.ParseScannedTo(field)
		require.NoError(t, err)
		require.Greater(t, scanned.Next, at)
		at = scanned.Next
	}
	require.Equal(t, want, got)
}

func TestABadKeyFilterIsAnInvalidRequest(t *testing.T) {
	b := start(t, nil)
	w := dial(t, b)
	id := makeTopic(t, w, "keys")
	for _, tag := range [][]byte{{}, {1, 1, 0}, {0, 1, 0}, {2, 0, 2, 0, 1, 1, 0}, {1, 2, 0, 0}} {
		resp := w.filtered(id, 0, tag)
		require.Equal(t, kerr.InvalidRequest.Code, resp.ErrorCode, "tag %x", tag)
	}
}
