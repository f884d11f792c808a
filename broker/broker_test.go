package broker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a broker in memory, with whatever change asks for, and stops it when the
// test ends.
func start(t *testing.T, change func(*broker.Config)) *broker.Broker {
	t.Helper()
	cfg := broker.Config{
		Listen: []string{"127.0.0.1:0"}, DataDir: "data", FS: vfs.NewMem(),
		Logger: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)),
	}
	if change != nil {
		change(&cfg)
	}
	b, err := broker.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { stop(t, b) })
	return b
}

func stop(t *testing.T, b *broker.Broker) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(t, b.Stop(ctx))
}

// client connects to b.
func client(t *testing.T, b *broker.Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.Addr()), kgo.AllowAutoTopicCreation()}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

func TestProducedRecordsAreReadBack(t *testing.T) {
	b := start(t, nil)
	producer := client(t, b)
	for i := range 1000 {
		producer.Produce(t.Context(), &kgo.Record{Topic: "letters", Key: fmt.Appendf(nil, "k%d", i%7), Value: fmt.Appendf(nil, "v%d", i)}, nil)
	}
	require.NoError(t, producer.Flush(t.Context()))

	consumer := client(t, b, kgo.ConsumeTopics("letters"))
	seen := 0
	for seen < 1000 {
		fetches := consumer.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			require.Equal(t, int64(seen), r.Offset)
			require.Equal(t, fmt.Sprintf("v%d", seen), string(r.Value))
			seen++
		})
	}
	ends, err := kadm.NewClient(consumer).ListEndOffsets(t.Context(), "letters")
	require.NoError(t, err)
	end, _ := ends.Lookup("letters", 0)
	require.Equal(t, int64(1000), end.Offset)
}

func TestDataSurvivesARestart(t *testing.T) {
	fs := vfs.NewMem()
	onDisk := func(c *broker.Config) { c.FS = fs }
	b := start(t, onDisk)
	cl := client(t, b)
	require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("once")}).FirstErr())
	cl.Close()
	stop(t, b)

	b = start(t, onDisk)
	consumer := client(t, b, kgo.ConsumeTopics("t"))
	records := consumer.PollFetches(t.Context()).Records()
	require.Len(t, records, 1)
	require.Equal(t, "once", string(records[0].Value))
	require.Zero(t, records[0].LeaderEpoch, "a clean stop does not raise the epoch")
}
