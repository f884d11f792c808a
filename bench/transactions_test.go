package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/protocol"
)

// BenchmarkTransaction runs transactions of one record each through a Transactor, with and
// without the acknowledgement of a record that was read; its unit is a transaction. Those
// with and without take turns, so that they meet the same noise: ack-cost is by how many
// percent the acknowledgement makes a transaction slower, ack-cpu by how many percent it
// takes more processor time of client and broker, which other work on the machine disturbs
// less.
func BenchmarkTransaction(b *testing.B) {
	for _, fsync := range []string{"on", "off"} {
		for _, producers := range []int{1, 16} {
			b.Run(fmt.Sprintf("fsync=%s/producers=%d", fsync, producers), func(b *testing.B) {
				t := embedded(b, func(c *broker.Config) { c.NoFsync = fsync == "off" })
				benchTransactions(b, t, producers)
			})
		}
	}
}

// turnTransactions is how many transactions are run in one turn with acknowledgements, and
// in one without.
const turnTransactions = 200

// transacting opens a Transactor and a Reader, and reads b.N records: all before the clock
// starts, so that reading costs nothing then.
func transacting(b *testing.B, t *target, producers int) (tr *client.Transactor, r *client.Reader, read []*kgo.Record) {
	ctx := context.Background()
	in := offsets(b, t, (b.N/offsetsAtATime+1)*offsetsAtATime)
	tr, err := client.OpenTransactor(ctx, client.SeedBrokers(t.addr), client.TransactionsAtATime(producers))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, tr.Close(ctx)) })
	r, err = client.OpenReader(ctx, client.SeedBrokers(t.addr), client.Group(newGroup()), client.Partitions(in, 0))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, r.Close(ctx)) })
	for len(read) < b.N {
		more, err := r.Poll(ctx)
		require.NoError(b, err)
		read = append(read, more...)
	}
	return tr, r, read
}

func benchTransactions(b *testing.B, t *target, producers int) {
	tr, r, read := transacting(b, t, producers)
	out := t.topic(b, 1)
	var took [2]time.Duration
	var busy [2]int64
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; left -= turnTransactions {
		n := min(left, turnTransactions)
		for i, acks := range [][]*kgo.Record{make([]*kgo.Record, n), read[left-n : left]} {
			start := cpu(b)
			took[i] += turn(b, tr, r, out, producers, acks)
			busy[i] += int64(cpu(b) - start)
		}
	}
	b.ReportMetric(float64(b.N)/took[0].Seconds(), "txns/s")
	b.ReportMetric(float64(b.N)/took[1].Seconds(), "acking-txns/s")
	b.ReportMetric(100*(float64(took[1])/float64(took[0])-1), "ack-cost-%")
	b.ReportMetric(100*(float64(busy[1])/float64(busy[0])-1), "ack-cpu-%")
	b.ReportMetric(float64(busy[0]+busy[1])/float64(2*b.N), "cpu-ns/txn")
}

// turn runs a transaction for each element of acks, which it acknowledges unless it is nil.
func turn(b *testing.B, tr *client.Transactor, r *client.Reader, out string, producers int, acks []*kgo.Record) time.Duration {
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range producers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(acks)); i = next.Add(1) - 1 {
				err := tr.Do(context.Background(), func(tx *client.Txn) error {
					if acks[i] != nil {
						if err := tx.Ack(r, acks[i]); err != nil {
							return err
						}
					}
					return tx.Produce(&kgo.Record{Topic: out, Value: make([]byte, valueBytes)})
				})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

// BenchmarkTransactionOfSlice is what a user gains who makes one unit of a slice of records:
// each record is acknowledged and has one output; its unit is a record.
func BenchmarkTransactionOfSlice(b *testing.B) {
	for _, producers := range []int{1, 16} {
		for _, size := range []int{1, 10, 100} {
			b.Run(fmt.Sprintf("producers=%d/records=%d", producers, size), func(b *testing.B) {
				benchSlices(b, embedded(b, func(*broker.Config) {}), producers, size)
			})
		}
	}
}

func benchSlices(b *testing.B, t *target, producers, size int) {
	ctx := context.Background()
	tr, r, read := transacting(b, t, producers)
	out := t.topic(b, 1)
	slicesOf := make(chan []*kgo.Record, b.N)
	for unit := range slices.Chunk(read[:b.N], size) {
		slicesOf <- unit
	}
	close(slicesOf)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range producers {
		wg.Go(func() {
			for unit := range slicesOf {
				err := tr.Do(ctx, func(tx *client.Txn) error {
					for range unit {
						if err := tx.Produce(&kgo.Record{Topic: out, Value: make([]byte, valueBytes)}); err != nil {
							return err
						}
					}
					return tx.Ack(r, unit...)
				})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// The transactions that BenchmarkReadCommitted finds.
const (
	abortedTxns   = 1000 // and as many that are committed
	recordsInATxn = 1000
)

// BenchmarkReadCommitted reads a partition of a million committed records with a million
// aborted ones of 1,000 transactions in between; its unit is a pass over all of it. Passes
// of both isolation levels take turns; cost is by how many percent the slower one is slower,
// in the median of the pairs.
func BenchmarkReadCommitted(b *testing.B) {
	t := embedded(b, inMemory)
	topic := t.topic(b, 1)
	conn := t.dial(b)
	p, err := conn.InitProducer("bench", 60_000)
	require.NoError(b, err)
	for n := range 2 * abortedTxns {
		require.NoError(b, p.ProduceBatch(conn, topic, 0, func(build *protocol.BatchBuilder) {
			for i := range recordsInATxn {
				build.Append(keyOf(nil, n*recordsInATxn+i), make([]byte, valueBytes), nil, 1_700_000_000_000)
			}
		}))
		require.NoError(b, p.End(conn, n%2 == 0))
	}
	end, err := conn.EndOffset(topic, 0)
	require.NoError(b, err)
	pass := func(isolation int8) time.Duration {
		f := newFetcher(b, t, topic, nil)
		f.request.IsolationLevel = isolation
		start := time.Now()
		f.readTo(int(end))
		return time.Since(start)
	}
	pass(0)
	var costs []float64
	b.ResetTimer()
	for b.Loop() {
		uncommitted, committed := pass(0), pass(1)
		costs = append(costs, 100*(float64(committed)/float64(uncommitted)-1))
	}
	b.ReportMetric(median(costs), "cost-%")
}

// median is that of an odd number of values, or the one above.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
