package tests

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// calm is a client that minds its own business while others attack the broker: it
// appends to a topic of its own and reads back what it appended. It has one connection
// and never tries anything twice.
type calm struct {
	conn  *wire.Conn
	topic string
	next  int64

	stop chan struct{}
	wg   sync.WaitGroup
	// What it found, to be read when it has stopped.
	err      error
	rounds   int
	slowest  time.Duration
	heapPeak uint64
}

// startCalm starts a calm client of a broker, and returns when its first round is done.
func startCalm(t *testing.T, addr, topic string) *calm {
	t.Helper()
	c := &calm{conn: dial(t, addr), topic: topic, stop: make(chan struct{})}
	_, err := c.conn.MakeTopic(topic)
	require.NoError(t, err)
	// What tests before this one have left is neither garbage to be seen in heapPeak nor a
	// reason for the collector to wait. What pools hold is gone after the second time.
	runtime.GC()
	runtime.GC()
	require.NoError(t, c.round())
	c.wg.Go(c.run)
	t.Cleanup(c.end)
	return c
}

func (c *calm) run() {
	for c.err == nil {
		select {
		case <-c.stop:
			return
		default:
		}
		c.err = c.round()
	}
}

// round appends a batch and reads it back.
func (c *calm) round() error {
	began := time.Now()
	batch := c.batch()
	resp, err := c.conn.Do(wire.ProduceRequest(c.topic, 0, -1, batch))
	if err != nil {
		return err
	}
	base, err := wire.ProducedAt(resp)
	if err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	if base != c.next {
		return fmt.Errorf("produced at offset %d, expected %d", base, c.next)
	}
	if resp, err = c.conn.Do(wire.FetchRequest(c.topic, 0, base, 1<<20, wire.Patience)); err != nil {
		return err
	}
	p, err := wire.Fetched(resp)
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	protocol.SetBaseOffset(batch, base)
	protocol.SetLeaderEpoch(batch, 0)
	if !bytes.Equal(batch, p.RecordBatches) {
		return fmt.Errorf("fetched from offset %d: %d bytes that are not the %d produced", base, len(p.RecordBatches), len(batch))
	}
	c.next += calmRecords
	c.rounds++
	c.slowest = max(c.slowest, time.Since(began))
	c.heapPeak = max(c.heapPeak, heapBytes())
	return nil
}

const calmRecords = 10

func (c *calm) batch() []byte {
	var b protocol.BatchBuilder
	b.Reset(protocol.PlainBatch(0))
	for i := range int64(calmRecords) {
		b.Append(fmt.Appendf(nil, "key-%d", i), fmt.Appendf(nil, "%s-%0100d", c.topic, c.next+i), nil, 1)
	}
	batch, err := b.Build(nil)
	if err != nil {
		panic(err) // records without a fault
	}
	return batch
}

// heapBytes is what the objects on the heap of this process take, garbage included.
func heapBytes() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func (c *calm) end() {
	select {
	case <-c.stop:
	default:
		close(c.stop)
	}
	c.wg.Wait()
}

// undisturbed ends the client after a last round and checks that each of its calls
// succeeded.
func (c *calm) undisturbed(t *testing.T) {
	t.Helper()
	c.end()
	require.NoError(t, c.err, "the calm client was disturbed in round %d", c.rounds)
	require.NoError(t, c.round(), "the calm client, after the attack")
	t.Logf("the calm client: %d rounds, the slowest took %v", c.rounds, c.slowest)
}
