package processor_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/processor"
)

// fetches are how large the answers to fetches were.
type fetches struct {
	mu             sync.Mutex
	largest, total int
}

func (f *fetches) OnBrokerRead(_ kgo.BrokerMetadata, key int16, n int, _, _ time.Duration, _ error) {
	if key != int16(kmsg.Fetch) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.largest, f.total = max(f.largest, n), f.total+n
}

// What a task holds is bounded by the bytes of its fetches, of however many partitions.
func TestAFetchIsBoundedForAllPartitionsOfATask(t *testing.T) {
	const partitions, records, size = 6, 240, 10 << 10
	r := newRig(t, partitions)
	kafka, err := kgo.NewClient(kgo.SeedBrokers(r.b.Addr()), kgo.ProducerBatchMaxBytes(2*size), kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.NoError(t, err)
	defer kafka.Close()
	for i := range records {
		kafka.Produce(t.Context(), &kgo.Record{Topic: "in", Key: fmt.Append(nil, i), Value: make([]byte, size)}, nil)
	}
	require.NoError(t, kafka.Flush(t.Context()))

	for bound, opts := range map[int][]processor.Option{512 << 10: nil, 100 << 10: {processor.FetchMaxBytes(100 << 10)}} {
		f := new(fetches)
		c := new(counting)
		a := r.open(c.topology(), append(opts, processor.StateDir(t.TempDir()), processor.KafkaOpts(kgo.WithHooks(f)))...)
		require.Eventually(t, func() bool { return reached(a) >= records }, 20*time.Second, 10*time.Millisecond)
		require.NoError(t, a.Close(t.Context()))
		f.mu.Lock()
		require.Less(t, f.largest, bound+16<<10)
		require.Greater(t, f.total, records*size)
		f.mu.Unlock()
	}
}

var _ kgo.HookBrokerRead = (*fetches)(nil)
