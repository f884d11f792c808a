package bench

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/tests/wire"
)

// inFlight is how many requests a producer has under way, as Kafka's own does.
const inFlight = 5

// producer sends batches, raw requests with acks=all, over a connection of its own.
type producer struct {
	conn     *wire.Conn
	requests []*kmsg.ProduceRequest // one for each partition, taken in turn
	answer   kmsg.ProduceResponse
	turn     int
	sent     int // and not answered
}

func newProducer(conn *wire.Conn, topic string, partitions int32, batch []byte) *producer {
	p := &producer{conn: conn}
	for i := range partitions {
		p.requests = append(p.requests, wire.ProduceRequest(topic, i, -1, batch))
	}
	return p
}

func (p *producer) send() error {
	p.turn++
	p.sent++
	return p.conn.Send(p.requests[p.turn%len(p.requests)])
}

func (p *producer) receive() error {
	p.sent--
	p.answer.SetVersion(p.requests[0].GetVersion())
	if err := p.conn.Receive(&p.answer); err != nil {
		return err
	}
	_, err := wire.ProducedAt(&p.answer)
	return err
}

// produce sends batches as long as there are some left, and waits for the answers.
func (p *producer) produce(left *atomic.Int64) error {
	for {
		more := p.sent < inFlight && left.Add(-1) >= 0
		switch {
		case more:
			if err := p.send(); err != nil {
				return err
			}
		case p.sent == 0:
			return nil
		default:
			if err := p.receive(); err != nil {
				return err
			}
		}
	}
}

// producers write to one topic together.
type producers []*producer

// newProducers connects n producers that last as long as tb. They begin at different
// partitions.
func newProducers(tb testing.TB, t *target, n int, partitions int32, batch []byte) producers {
	topic := t.topic(tb, partitions)
	ps := make(producers, n)
	for i := range ps {
		ps[i] = newProducer(t.dial(tb), topic, partitions, batch)
		ps[i].turn = i
	}
	return ps
}

// produce sends n batches in all.
func (ps producers) produce(tb testing.TB, n int) {
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for _, p := range ps {
		wg.Go(func() {
			if err := p.produce(&left); err != nil {
				tb.Error(err)
			}
		})
	}
	wg.Wait()
}

// fill makes a topic of one partition with the batches, in order.
func fill(tb testing.TB, t *target, stored [][]byte) (topic string) {
	tb.Helper()
	topic = t.topic(tb, 1)
	p := newProducer(t.dial(tb), topic, 1, nil)
	for _, batch := range stored {
		p.requests[0].Topics[0].Partitions[0].Records = batch
		require.NoError(tb, p.send())
		if p.sent == inFlight {
			require.NoError(tb, p.receive())
		}
	}
	for p.sent > 0 {
		require.NoError(tb, p.receive())
	}
	return topic
}
