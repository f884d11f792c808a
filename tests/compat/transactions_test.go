package compat

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A copierKind is a program that copies what is left of partition 0 of a topic, in
// transactions that hold the offsets too. It tells how much is left, and ends when nothing
// is.
type copierKind struct {
	name    string
	command func(addr, source, sink string) []string
}

// The two flows of transactions: a client that adds its partitions and offsets first, and
// one that leaves it to the broker (KIP-890).
var copierKinds = []copierKind{
	{"librdkafka", func(addr, source, sink string) []string {
		return []string{python(), "python/transactions.py", "copy", addr, source, sink}
	}},
	{"java", func(addr, source, sink string) []string {
		return []string{kafkaScript, "run", kafkaDir(), toolsPackage + "TransactionalMessageCopier", "--broker-list", addr,
			"--input-topic", source, "--input-partition", "0", "--output-topic", sink, "--transactional-id", sink,
			"--consumer-group", sink, "--transaction-size", "25", "--enable-random-aborts"}
	}},
}

// TestCopiesOutliveKills kills a program that copies a topic transactionally, and the
// broker, again and again: the copy is the original.
func TestCopiesOutliveKills(t *testing.T) {
	t.Parallel() // beside other people's suites: it waits most of the time
	for _, kind := range copierKinds {
		t.Run("client="+kind.name, func(t *testing.T) {
			t.Parallel()
			requireTool(t, kind.command("", "", "")[0])
			b := freshBroker(t, options{settings: map[string]string{"num.partitions": "1"}})
			if b.crash == nil {
				t.Skip("the broker is somebody else's")
			}
			const records = 4000
			source, sink := "numbers", "copied"
			b.writeNumbers(t, source, records)
			b.createTopic(t, sink, 1)

			c := startCopier(t, kind, b, source, sink)
			for i, kill := range []struct{ copier, broker bool }{
				{copier: true}, {broker: true}, {copier: true, broker: true}, {broker: true},
			} {
				c.await(records * (4 - i) / 5)
				if kill.copier {
					c.cancel(errKilled)
					<-c.ended
				}
				if kill.broker {
					require.NoError(t, b.crash())
				}
				if kill.copier {
					c = startCopier(t, kind, b, source, sink)
				}
			}
			c.await(-1)

			var got, want []string
			for _, r := range b.committed(t, sink) {
				got = append(got, string(r.Value))
			}
			for i := range records {
				want = append(want, strconv.Itoa(i))
			}
			require.Equal(t, want, got)
		})
	}
}

// writeNumbers writes the numbers below an end to a new topic of one partition.
func (b broker) writeNumbers(t *testing.T, topic string, end int) {
	t.Helper()
	b.createTopic(t, topic, 1)
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.DefaultProduceTopic(topic))
	require.NoError(t, err)
	defer client.Close()
	var records []*kgo.Record
	for i := range end {
		records = append(records, kgo.StringRecord(strconv.Itoa(i)))
	}
	require.NoError(t, client.ProduceSync(t.Context(), records...).FirstErr())
}

// A runningCopier is a copier that has begun.
type runningCopier struct {
	t         *testing.T
	cancel    context.CancelCauseFunc
	remaining chan int      // of capacity 1: what it told last
	ended     chan struct{} // closed when it has ended
	err       error         // how, then
}

func startCopier(t *testing.T, kind copierKind, b broker, source, sink string) *runningCopier {
	ctx, cancel := context.WithCancelCause(context.Background())
	c := &runningCopier{t: t, cancel: cancel, remaining: make(chan int, 1), ended: make(chan struct{})}
	t.Cleanup(func() { cancel(errKilled); <-c.ended })
	command := kind.command(b.addr, source, sink)
	go func() {
		defer close(c.ended)
		c.err = run(ctx, nil, func(line []byte) error {
			var told struct{ Remaining *int }
			if err := json.Unmarshal(line, &told); err != nil {
				return fmt.Errorf("not a state: %q: %w", line, err)
			}
			if told.Remaining != nil {
				select {
				case <-c.remaining:
				default:
				}
				c.remaining <- *told.Remaining
			}
			return nil
		}, command[0], command[1:]...)
	}()
	return c
}

// await waits until no more than that is left, or it has ended.
func (c *runningCopier) await(remaining int) {
	c.t.Helper()
	deadline := time.After(3 * time.Minute)
	for {
		select {
		case left := <-c.remaining:
			if left <= remaining {
				return
			}
		case <-c.ended:
			require.NoError(c.t, c.err)
			return
		case <-deadline:
			require.Fail(c.t, "the copier does not get on")
		}
	}
}
