package txncoordinator

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/broker/journal/journaltest"
	"github.com/lacunamq/lacuna/broker/transaction"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a coordinator over logs and a store in memory, with markers that the test sees,
// holds up and fails.
type rig struct {
	*journaltest.Topic
	t       testing.TB
	markers *markers
	config  transaction.Config
	c       *Coordinator
	ids     atomic.Int64
}

const rigPartitions = 4

func newRig(t testing.TB) *rig {
	r := &rig{Topic: journaltest.New("transactions"), t: t, markers: &markers{}, config: transaction.DefaultConfig()}
	r.start()
	t.Cleanup(r.stop)
	return r
}

func (r *rig) start() {
	require.NoError(r.t, r.Start())
	var err error
	r.c, err = Open(context.Background(), Options{
		Partitions: rigPartitions, Open: r.Open, Written: r.Written, Markers: r.markers, Config: r.config,
		PartitionFor:  func(id string, n int32) int32 { return int32(len(id)) % n },
		NewProducerID: func(context.Context) (int64, error) { return r.ids.Add(1), nil },
	})
	require.NoError(r.t, err)
}

func (r *rig) stop() {
	if r.c == nil {
		return
	}
	require.NoError(r.t, r.c.Close(context.Background()))
	require.NoError(r.t, r.CloseLogs())
	require.NoError(r.t, r.DB.Close())
	r.c = nil
}

func (r *rig) restart() {
	r.stop()
	r.start()
}

// init gives an id its producer.
func (r *rig) init(id string) transaction.Producer {
	p, err := r.c.InitProducerID(context.Background(), &transaction.InitRequest{
		TransactionalID: id, TimeoutMs: 60_000, Expected: transaction.None,
	})
	require.NoError(r.t, err)
	return p
}

func adding(id string, p transaction.Producer, tps ...transaction.TopicPartition) *transaction.AddRequest {
	return &transaction.AddRequest{TransactionalID: id, Producer: p, Version: 2, Partitions: tps}
}

// write begins and ends an append in a transaction.
func (r *rig) write(id string, p transaction.Producer, tps ...transaction.TopicPartition) {
	w, err := r.c.BeginWrite(context.Background(), adding(id, p, tps...), true)
	require.NoError(r.t, err)
	w.Done()
}

func (r *rig) end(id string, p transaction.Producer, commit bool) (transaction.Producer, error) {
	return r.c.End(context.Background(), &transaction.EndRequest{TransactionalID: id, Producer: p, Version: 2, Commit: commit})
}

func (r *rig) status(id string) transaction.Status {
	d, found, err := r.c.Describe(context.Background(), id)
	require.NoError(r.t, err)
	require.True(r.t, found)
	return d.Status
}

// markers are Markers that keep what was written.
type markers struct {
	mu      sync.Mutex
	written []written
	hold    chan struct{} // markers become durable when it is closed; nil: at once
	err     error         // what waiting for them ends with
}

type written struct {
	transaction.TopicPartition
	protocol.EndTxnMarker
}

// Begin is part of Markers.
func (m *markers) Begin(tp transaction.TopicPartition, marker protocol.EndTxnMarker, _ int16) func(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.written = append(m.written, written{tp, marker})
	hold, err := m.hold, m.err
	return func(ctx context.Context) error {
		if hold != nil {
			select {
			case <-hold:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return err
	}
}

func (m *markers) set(hold chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold, m.err = hold, err
}

// take gives what was written since the last time.
func (m *markers) take() []written {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer func() { m.written = nil }()
	return m.written
}

// later runs f on its own and says how it ended.
func later[T any](f func() (T, error)) <-chan outcome[T] {
	c := make(chan outcome[T], 1)
	go func() {
		v, err := f()
		c <- outcome[T]{v, err}
	}()
	return c
}

type outcome[T any] struct {
	value T
	err   error
}

func requireWaits[T any](t testing.TB, c <-chan outcome[T]) {
	t.Helper()
	select {
	case o := <-c:
		t.Fatalf("answered before its time: %+v", o)
	default:
	}
}

var (
	tp0 = transaction.TopicPartition{Topic: "t", Partition: 0}
	tp1 = transaction.TopicPartition{Topic: "t", Partition: 1}
)

// long is more than any timeout here.
const long = time.Hour
