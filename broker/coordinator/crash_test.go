package coordinator

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/statestore"
	"github.com/stretchr/testify/require"
)

// TestCrashes holds that a commit which was answered is there after a crash at any
// moment, with views written, segments rolled and the log compacted meanwhile, and that
// nothing is there which nobody asked for.
func TestCrashes(t *testing.T) {
	seeds := 25
	if os.Getenv("LACUNA_LONG") != "" {
		seeds = 1000
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { crash(t, uint64(seed)) })
	}
}

const crashGroups = 6

// bounds of what a group may have committed.
type bounds struct{ answered, asked [crashGroups]int64 }

func crash(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	fs := vfs.NewCrashableMem()
	var b bounds
	for g := range crashGroups {
		b.answered[g], b.asked[g] = -1, -1
	}
	for life := range 3 {
		n := startNode(t, fs, life > 0)
		for g := range crashGroups {
			got := n.committed(t, g)
			require.GreaterOrEqual(t, got, b.answered[g], "group %d after crash %d lost an answered commit", g, life)
			require.LessOrEqual(t, got, b.asked[g], "group %d after crash %d has a commit of nobody", g, life)
			b.answered[g], b.asked[g] = got, got
		}
		fs = n.crashUnderLoad(t, rng, &b)
	}
}

// node is a coordinator on a file system that may crash.
type node struct {
	db  *statestore.DB
	log *commitlog.Log
	c   *Coordinator
	fs  *vfs.MemFS
}

func startNode(t *testing.T, fs *vfs.MemFS, unclean bool) *node {
	n := &node{fs: fs}
	var err error
	n.db, _, err = statestore.OpenOrReset(fs, "state", statestore.Options{})
	require.NoError(t, err)
	config := commitlog.DefaultConfig()
	config.Delete, config.Compact, config.SegmentBytes, config.MinCleanableRatio = false, true, 4<<10, 0
	config.DeleteRetentionMs = 0 // markers go with the next pass
	view := n.db.View("offsets-0")
	n.log, err = commitlog.Open(commitlog.Options{
		FS: fs, Dir: "offsets-0", Name: "offsets-0", Fsync: true, Config: config, Unclean: unclean,
		CleanUpTo: func() int64 { at, _ := view.Durable("offsets-0"); return at },
	})
	require.NoError(t, err)
	n.c = Open(Options{Partitions: 1, Open: func(int32) (journal.Partition, error) {
		return journal.Partition{Log: n.log, View: view, Source: "offsets-0"}, nil
	}})
	return n
}

func (n *node) committed(t *testing.T, g int) int64 {
	found, err := n.c.Committed(context.Background(), fmt.Sprintf("g%d", g), []PartitionOf{{TopicPartition: commitOf("", 0, 0).Offsets[0].TopicPartition}})
	require.NoError(t, err)
	if !found[0].OK {
		return -1
	}
	return found[0].Offset
}

// crashUnderLoad lets each group commit rising offsets until the file system crashes. It
// returns what is left of it, and in b what had been asked and answered by then.
func (n *node) crashUnderLoad(t *testing.T, rng *rand.Rand, b *bounds) *vfs.MemFS {
	ctx := context.Background()
	var load sync.WaitGroup
	var mu sync.Mutex
	answers := sync.NewCond(&mu)
	moment, crashed := rng.IntN(400), false
	for g := range crashGroups {
		load.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			for !crashed {
				b.asked[g]++
				offset := b.asked[g]
				mu.Unlock()
				_, err := n.c.Commit(ctx, commitOf(fmt.Sprintf("g%d", g), 0, offset))
				mu.Lock()
				if err != nil {
					t.Error(err)
					return
				}
				if !crashed {
					b.answered[g] = offset
					moment--
					answers.Signal()
				}
			}
		})
	}
	load.Go(func() {
		for range 5 {
			n.upkeep(t)
		}
	})
	mu.Lock()
	for moment > 0 {
		answers.Wait()
	}
	left := n.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
	found := *b
	crashed = true
	mu.Unlock()
	load.Wait()
	*b = found
	require.NoError(t, n.c.Close(ctx))
	require.NoError(t, n.log.Close())
	require.NoError(t, n.db.Close())
	return left
}

// upkeep writes the view and compacts the log, as the broker does now and then.
func (n *node) upkeep(t *testing.T) {
	ctx := context.Background()
	if err := n.c.Checkpoint(ctx); err != nil {
		t.Error(err)
	}
	if err := n.db.Sync(ctx); err != nil {
		t.Error(err)
	}
	if _, err := n.log.Clean(time.Now()); err != nil {
		t.Error(err)
	}
}
