package broker_test

import (
	"testing"
	"time"

	"github.com/lacunamq/lacuna/broker"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestAFullBrokerIsNotAskedAllTheTime holds that a fetch which there is no room for, be it
// for a session or in the ledgers, is refused when its time is over: Kafka's Java consumer
// makes no pause between two fetches. What it is refused with does not end that consumer.
func TestAFullBrokerIsNotAskedAllTheTime(t *testing.T) {
	b := start(t, func(c *broker.Config) {
		c.Settings = map[string]string{"group.share.max.share.sessions": "1", "individual.commit.max.memory.bytes": "1048576"}
	})
	cl := client(t, b)
	createTopic(t, kadm.NewClient(cl), 1, "orders")
	setGroup(t, cl, "g", "share.auto.offset.reset", "earliest")
	require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders"}).FirstErr())
	one, other := joinShare(t, b, "g", "one", "orders"), joinShare(t, b, "g", "other", "orders")

	const wait = 50 * time.Millisecond
	req := one.request(1 << 20)
	req.MaxBytes = 1 << 30
	req.MaxWaitMillis = int32(wait.Milliseconds())
	asked := time.Now()
	resp, err := req.RequestWith(t.Context(), one.cl)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(asked), wait)
	require.NoError(t, kerr.ErrorForCode(resp.ErrorCode))
	p := resp.Topics[0].Partitions[0]
	require.ErrorIs(t, kerr.ErrorForCode(p.ErrorCode), kerr.UnknownServerError)
	require.Contains(t, *p.ErrorMessage, "individual.commit.max.memory.bytes")
	require.Equal(t, "0-0", one.fetch(1), "a smaller one has room")

	req = other.request(1)
	req.MaxWaitMillis = int32(wait.Milliseconds())
	asked = time.Now()
	resp, err = req.RequestWith(t.Context(), other.cl)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(asked), wait)
	require.ErrorIs(t, kerr.ErrorForCode(resp.ErrorCode), kerr.ShareSessionLimitReached)
}
