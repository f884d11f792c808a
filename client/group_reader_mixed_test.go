package client_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// joinStock lets a stock consumer join, and returns what ends it in good order. It is given
// records again that others committed above the stable offset, since it does not know of that.
func (g *grouping) joinStock(name string, balancer kgo.GroupBalancer) (leave func()) {
	g.t.Helper()
	taken := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		if len(partitions["t"]) > 0 {
			g.revoked(name, wholes(partitions["t"]))
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(g.s.addr()), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.Balancers(balancer),
		kgo.HeartbeatInterval(20*time.Millisecond), kgo.FetchMaxWait(50*time.Millisecond), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, added map[string][]int32) {
			_, generation := cl.GroupMetadata()
			g.mu.Lock()
			ranges := slices.Concat(g.held[name], wholes(added["t"]))
			g.mu.Unlock()
			g.assigned(name, generation, ranges)
		}), kgo.OnPartitionsRevoked(taken), kgo.OnPartitionsLost(taken))
	require.NoError(g.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			records := cl.PollRecords(ctx, 7).Records()
			if g.beginStock(name, records) {
				g.endStock(records, cl.CommitRecords(context.Background(), records...))
			}
			cl.AllowRebalance()
		}
	})
	leave = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		cl.CloseAllowingRebalance()
	})
	g.t.Cleanup(leave)
	return leave
}

func wholes(partitions []int32) (ranges []client.AssignedSlots) {
	for _, p := range partitions {
		ranges = append(ranges, client.AssignedSlots{TopicPartition: client.TopicPartition{Topic: "t", Partition: p}, Slots: allSlots})
	}
	return ranges
}

func (g *grouping) beginStock(name string, records []*kgo.Record) bool {
	g.mu.Lock()
	for _, r := range records {
		delete(g.committed, at{r.Partition, r.Offset})
	}
	g.mu.Unlock()
	return len(records) > 0 && g.begin(name, records)
}

// endStock counts what was committed. What was not, as may be when the group rebalances,
// comes again.
func (g *grouping) endStock(records []*kgo.Record, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	upTo := map[int32]int64{}
	for _, r := range records {
		delete(g.inHand, at{r.Partition, r.Offset})
		g.committed[at{r.Partition, r.Offset}] = err == nil
		upTo[r.Partition] = r.Offset + 1
	}
	for partition, offset := range upTo {
		g.mayReopen(partition, offset)
	}
	g.moved.Broadcast()
}

// mayReopen is for a stock consumer's commit of an offset. If the stable offset is past that
// already, because others have committed what follows, the consumer has gone back as far as
// the broker can tell, and all from there on is open again until the consumer gets to it, or
// whoever holds the partition next.
func (g *grouping) mayReopen(partition int32, offset int64) {
	if next := (at{partition, offset}); !g.committed[next] && !g.unsure[next] {
		return // so the stable offset is not past it
	}
	for what, done := range g.committed {
		if done && what.partition == partition && what.offset >= offset {
			delete(g.committed, what)
			g.unsure[what] = true
		}
	}
}

// full waits until every slot is held, by those members and no others.
func (g *grouping) full(partitions int, possible ...string) {
	g.t.Helper()
	g.wait("all slots to be held", func() bool {
		slots := 0
		for name, held := range g.held {
			for _, r := range held {
				slots += int(r.Slots.Hi) - int(r.Slots.Lo) + 1
			}
			if !slices.Contains(possible, name) {
				return false
			}
		}
		return slots == partitions*(1<<16)
	})
}

// A stock consumer in the group gets a whole partition, and the others share the rest. When
// it leads the group and does not split, everybody gets whole partitions. However the group
// goes from one to the other, no slot has two readers, and every record is handled.
func TestGroupReadersWithAStockConsumer(t *testing.T) {
	overBalancers(t, func(t *testing.T, balancer func() kgo.GroupBalancer) {
		t.Run("stock=splits", func(t *testing.T) { withAStockConsumer(t, balancer, client.SplitBalancer(balancer())) })
		t.Run("stock=plain", func(t *testing.T) { withAStockConsumer(t, balancer, balancer()) })
	})
}

func withAStockConsumer(t *testing.T, balancer func() kgo.GroupBalancer, stocks kgo.GroupBalancer) {
	s := newServer(t)
	g := newGrouping(t, s, balancer)
	g.create(2)
	g.produce(200, 0, 1)
	a := g.join("a")
	g.full(2, "a") // so it leads
	leave := g.joinStock("stock", stocks)
	g.full(2, "a", "stock")
	g.join("b")
	g.join("c")
	g.spread(4, 2)
	g.wait("the stock consumer's partition", func() bool {
		return len(g.held["stock"]) == 1 && g.held["stock"][0].Slots == allSlots
	})
	g.produce(100, 0, 1)
	require.NoError(t, a.Close(t.Context()))
	g.full(2, "stock", "b", "c") // led by one of them
	g.produce(100, 0, 1)
	leave()
	g.full(2, "b", "c")
	g.join("d")
	g.spread(3, 2)
	g.finish(800)
	require.Empty(t, g.failures)
}
