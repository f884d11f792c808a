package coordinator

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/statestore"
	"github.com/stretchr/testify/require"
)

// TestTransactionCrashes holds that a crash at any moment leaves transactions whole: what
// was answered as committed is there, what was staged waits for its marker, what was
// aborted or overtaken is never seen; and that the log alone, compacted as it is, says the
// same as the view with the rest of the log.
func TestTransactionCrashes(t *testing.T) {
	seeds := 12
	if os.Getenv("LACUNA_LONG") != "" {
		seeds = 1000
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { crashInTransactions(t, uint64(seed)) })
	}
}

// wrong is added to offsets that must never be seen: they are aborted, or overtaken before
// they are committed.
const wrong = 1 << 20

// client commits rising offsets for one group, in transactions of its own and outside.
type client struct {
	group string
	rng   *rand.Rand
	progress
}

// progress is what a client knows. It is copied at the crash.
type progress struct {
	producer group.Producer
	asked    int64 // the highest offset that may be committed
	answered int64 // the highest that was answered as committed, -1 for none
	// Of the transaction under way:
	staged   int64 // what it was asked to commit, 0 for none
	known    bool  // that was answered
	overtake bool  // a plain commit came after it
	decided  bool  // the marker was asked for
	commit   bool  // its outcome
}

func crashInTransactions(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	fs := vfs.NewCrashableMem()
	clients := make([]*client, crashGroups)
	for i := range clients {
		clients[i] = &client{
			group: fmt.Sprintf("g%d", i), rng: rand.New(rand.NewPCG(seed, uint64(10+i))),
			progress: progress{producer: group.Producer{ID: int64(i)}, answered: -1},
		}
	}
	for life := range 3 {
		n := startNode(t, fs, life > 0)
		n.requireLogAgrees(t, clients)
		for _, c := range clients {
			c.recover(t, n)
		}
		fs = n.crashInTransactions(t, rng, clients)
	}
}

func (c *client) found(t *testing.T, k *Coordinator) Found {
	found, err := k.Committed(context.Background(), c.group, []PartitionOf{{TopicPartition: group.TopicPartition{Topic: "t"}}})
	require.NoError(t, err)
	return found[0]
}

// requireLogAgrees reads the log into another coordinator that has no view.
func (n *node) requireLogAgrees(t *testing.T, clients []*client) {
	db, err := statestore.Open(vfs.NewMem(), "state", statestore.Options{})
	require.NoError(t, err)
	defer db.Close()
	alone := Open(Options{Partitions: 1, Open: func(int32) (journal.Partition, error) {
		return journal.Partition{Log: n.log, View: db.View("offsets-0"), Source: "offsets-0"}, nil
	}})
	for _, c := range clients {
		require.Equal(t, c.found(t, alone), c.found(t, n.c), c.group)
	}
	require.NoError(t, alone.Close(context.Background()))
}

// recover checks what the crash left of the client's commits, and ends its transaction as
// the transaction coordinator does: as was decided, or by an abort.
func (c *client) recover(t *testing.T, n *node) {
	before := c.found(t, n.c)
	c.requirePlausible(t, before)
	if c.known && !c.decided {
		require.True(t, before.Pending, "%s lost what it had staged", c.group)
	}
	if c.staged != 0 {
		require.NoError(t, c.mark(n, c.decided && c.commit))
	}
	after := c.found(t, n.c)
	c.requirePlausible(t, after)
	require.False(t, after.Pending)
	if c.known && c.decided && c.commit && !c.overtake {
		require.GreaterOrEqual(t, after.Offset, c.staged, "%s lost a committed transaction", c.group)
	}
	c.answered = -1
	if after.OK {
		c.answered = after.Offset
	}
	c.asked = max(c.answered, 0)
	c.endTransaction()
}

func (c *client) requirePlausible(t *testing.T, found Found) {
	offset := int64(-1)
	if found.OK {
		offset = found.Offset
	}
	require.GreaterOrEqual(t, offset, c.answered, "%s lost an answered commit", c.group)
	require.LessOrEqual(t, offset, c.asked, "%s has committed what it must not", c.group)
}

// mark writes the marker of the transaction under way.
func (c *client) mark(n *node, commit bool) error {
	return n.c.EndTransaction(context.Background(), 0, protocol.EndTxnMarker{
		ProducerID: c.producer.ID, ProducerEpoch: c.producer.Epoch + 1, Commit: commit,
	}, 2)
}

func (c *client) endTransaction() {
	c.producer.Epoch++
	c.staged, c.known, c.overtake, c.decided, c.commit = 0, false, false, false, false
}

// step does one thing. note is called to change what the client knows.
func (c *client) step(n *node, note func(func())) error {
	ctx := context.Background()
	offset := c.asked + 1
	plain := func() error {
		note(func() { c.asked, c.overtake = offset, c.staged != 0 })
		_, err := n.c.Commit(ctx, commitOf(c.group, 0, offset))
		note(func() { c.answered = offset })
		return err
	}
	kind := c.rng.IntN(4)
	if kind == 0 {
		return plain()
	}
	commits := kind == 1
	staged := offset
	if !commits {
		staged += wrong
	}
	note(func() { c.staged = staged })
	if _, err := n.c.CommitInTransaction(ctx, txnCommitOf(c.producer, c.group, 0, staged)); err != nil {
		return err
	}
	note(func() { c.known = true })
	overtaken := kind == 2
	if overtaken {
		if err := plain(); err != nil {
			return err
		}
	}
	note(func() {
		c.decided, c.commit = true, commits || overtaken
		if commits {
			c.asked = offset
		}
	})
	err := c.mark(n, c.commit)
	note(func() {
		if commits {
			c.answered = offset
		}
		c.endTransaction()
	})
	return err
}

// crashInTransactions lets all clients go on until the file system crashes. It returns
// what is left of it, and sets the clients back to what they knew then.
func (n *node) crashInTransactions(t *testing.T, rng *rand.Rand, clients []*client) *vfs.MemFS {
	var load sync.WaitGroup
	var mu sync.Mutex
	changed := sync.NewCond(&mu)
	moment, crashed := rng.IntN(600), false
	over := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return crashed
	}
	for i, c := range clients {
		steps := math.MaxInt
		if i > 0 && rng.IntN(2) == 0 {
			steps = rng.IntN(10) // so that compaction comes to its last transaction
		}
		note := func(change func()) {
			mu.Lock()
			defer mu.Unlock()
			change()
			moment--
			changed.Signal()
		}
		load.Go(func() {
			for range steps {
				if over() {
					return
				}
				if err := c.step(n, note); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	load.Go(func() {
		for !over() {
			n.upkeep(t)
		}
	})
	mu.Lock()
	for moment > 0 {
		changed.Wait()
	}
	left := n.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
	known := make([]progress, len(clients))
	for i, c := range clients {
		known[i] = c.progress
	}
	crashed = true
	mu.Unlock()
	load.Wait()
	for i, c := range clients {
		c.progress = known[i]
	}
	require.NoError(t, n.c.Close(context.Background()))
	require.NoError(t, n.log.Close())
	require.NoError(t, n.db.Close())
	return left
}
