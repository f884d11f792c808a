package client_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/client"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// startBroker starts a broker in memory and returns its address.
func startBroker(tb testing.TB) string {
	tb.Helper()
	b, err := broker.Start(context.Background(), broker.Config{
		Listen: []string{"127.0.0.1:0"}, DataDir: "data", FS: vfs.NewMem(),
		Settings: map[string]string{"offsets.topic.num.partitions": "2"},
	})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, b.Stop(context.Background())) })
	return b.Addr()
}

// produce writes n records of 100 bytes with keys key-0 to key-9999 to partition 0 of topic t.
func produce(tb testing.TB, addr string, n int) {
	tb.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic("t"))
	require.NoError(tb, err)
	defer cl.Close()
	value := make([]byte, 90)
	for i := range n {
		cl.Produce(tb.Context(), &kgo.Record{Key: fmt.Appendf(nil, "key-%d", i%10_000), Value: value}, func(_ *kgo.Record, err error) {
			require.NoError(tb, err)
		})
	}
	require.NoError(tb, cl.Flush(tb.Context()))
}

// BenchmarkReaderPoll reads everything, or the records of a sixteenth of the slots, of
// 200,000. Its unit is a record read.
func BenchmarkReaderPoll(b *testing.B) {
	addr := startBroker(b)
	const records = 200_000
	produce(b, addr, records)
	for name, opts := range map[string][]client.ReaderOpt{
		"slots=all":  nil,
		"slots=1/16": {client.Slots(client.SlotRange{Lo: 0, Hi: 4095})},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; n < b.N; {
				r, err := client.OpenReader(b.Context(), append(opts, client.SeedBrokers(addr), client.Topics("t"))...)
				require.NoError(b, err)
				for n < b.N && r.Status()[0].Position < records {
					got, err := r.Poll(b.Context())
					require.NoError(b, err)
					n += len(got)
				}
				require.NoError(b, r.Close(b.Context()))
			}
		})
	}
}
