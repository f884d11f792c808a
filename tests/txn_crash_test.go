package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// TestTransactionCrashes lets the machine crash before each of the operations by which a
// broker changes the disk while transactions of both protocol lines run. After the
// recovery each is seen whole or not at all, in two partitions of records, in a ledger and
// in a plain committed offset; what was confirmed has happened, and nothing hangs.
func TestTransactionCrashes(t *testing.T) {
	total := newTxnCrash(t, 1<<62).run()
	t.Logf("%d operations change the disk", total)
	step := max(1, total/int64(scaled(40, 1<<20)))
	for at := int64(0); at < total; at += step {
		t.Run(fmt.Sprint("at=", at), func(t *testing.T) {
			c := newTxnCrash(t, at)
			c.run()
			c.recover()
		})
	}
}

// txnFate is how far a transaction has come for its client.
type txnFate struct {
	commit          bool // how it is to end
	asked, answered bool // its end
}

// txnCrash is a broker that runs transactions, of which a crash leaves a file system.
type txnCrash struct {
	t      *testing.T
	config broker.Config
	mem    *vfs.MemFS
	at     int64

	mu struct {
		sync.Mutex
		ops   int64
		fates []txnFate
		left  *vfs.MemFS // of the crash
		then  []txnFate  // what clients knew
	}
}

const (
	crashTxns       = 6
	crashTimeout    = 60_000
	crashGroup      = "individual"
	crashPlain      = "plain"
	crashPartitions = 2
)

func newTxnCrash(t *testing.T, at int64) *txnCrash {
	c := &txnCrash{t: t, mem: vfs.NewCrashableMem(), at: at}
	c.config = broker.Config{Listen: []string{"127.0.0.1:0"}, DataDir: "data", Settings: map[string]string{
		"offsets.topic.num.partitions":            "2",
		"transaction.state.log.num.partitions":    "2",
		"transaction.state.log.segment.bytes":     "1000",
		"offsets.topic.segment.bytes":             "1000",
		"log.cleaner.backoff.ms":                  "2",
		"log.flush.offset.checkpoint.interval.ms": "5",
		"log.cleaner.min.cleanable.ratio":         "0",
	}}
	return c
}

// beforeOp keeps what a crash would leave before one operation.
func (c *txnCrash) beforeOp(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.ops == c.at && c.mu.left == nil {
		c.crashLocked()
	}
	c.mu.ops++
	return nil
}

// crashLocked keeps what a crash leaves now, and what clients know.
func (c *txnCrash) crashLocked() {
	rng := rand.New(rand.NewPCG(uint64(c.at), 1))
	c.mu.left = c.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
	c.mu.then = slices.Clone(c.mu.fates)
}

// start starts a broker on a file system.
func (c *txnCrash) start(fs vfs.FS) (*broker.Broker, *wire.Conn) {
	c.config.FS = fs
	b, err := broker.Start(c.t.Context(), c.config)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { c.stop(b) })
	return b, dial(c.t, b.Addr())
}

func (c *txnCrash) stop(b *broker.Broker) {
	ctx, cancel := context.WithTimeout(context.Background(), wire.Patience)
	defer cancel()
	require.NoError(c.t, b.Stop(ctx))
}

// run runs the transactions, and tells how many operations changed the disk meanwhile.
func (c *txnCrash) run() int64 {
	b, conn := c.start(c.mem) // nobody looks at a crash while it starts
	for _, topic := range []string{"in", "out"} {
		require.NoError(c.t, conn.CreateTopic(topic, crashPartitions, nil))
	}
	for range crashTxns {
		_, err := conn.Do(wire.ProduceRequest("in", 0, -1, batchOf(c.t, []byte("in"))))
		require.NoError(c.t, err)
	}
	c.stop(b)
	_, conn = c.start(errorfs.Wrap(c.mem, errorfs.InjectorFunc(c.beforeOp)))
	producers := make([]*wire.Producer, 2)
	for i := range producers {
		var err error
		producers[i], err = conn.InitProducer(fmt.Sprint("txn-", i), crashTimeout)
		require.NoError(c.t, err)
		producers[i].Explicit = i == 1
	}
	for i := range crashTxns {
		c.transaction(conn, producers[i%2], i)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.left == nil {
		c.crashLocked() // upkeep has changed the disk less often than in the run that was counted
	}
	return c.mu.ops
}

// transaction runs the one of that number.
func (c *txnCrash) transaction(conn *wire.Conn, p *wire.Producer, number int) {
	commit := number%3 != 2
	c.note(number, txnFate{commit: commit})
	value := fmt.Sprint(number)
	for partition := range int32(crashPartitions) {
		_, err := p.Produce(conn, "out", partition, value)
		require.NoError(c.t, err)
	}
	own := &protocol.IndividualOffsets{Commit: []protocol.Run{{Start: int64(number), End: int64(number) + 1}}, Origin: 0}
	require.NoError(c.t, p.Stage(conn, crashGroup, "", "in", 0, -1, own))
	require.NoError(c.t, p.Stage(conn, fmt.Sprint(crashPlain, number), "", "in", 0, int64(number)+1, nil))
	c.note(number, txnFate{commit: commit, asked: true})
	require.NoError(c.t, p.End(conn, commit))
	c.note(number, txnFate{commit: commit, asked: true, answered: true})
}

func (c *txnCrash) note(number int, fate txnFate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if number == len(c.mu.fates) {
		c.mu.fates = append(c.mu.fates, fate)
	}
	c.mu.fates[number] = fate
}

// recover starts a broker on what the crash left, and checks what it finds. New producers
// end what their predecessors left open.
func (c *txnCrash) recover() {
	c.mu.Lock()
	left, then := c.mu.left, c.mu.then
	c.mu.Unlock()
	_, conn := c.start(left)
	for i := range 2 {
		_, err := conn.InitProducer(fmt.Sprint("txn-", i), crashTimeout)
		require.NoError(c.t, err)
		status, err := conn.TransactionStatus(fmt.Sprint("txn-", i))
		require.NoError(c.t, err)
		require.Equal(c.t, "Empty", status)
	}
	var seen [crashPartitions][]string
	for partition := range int32(crashPartitions) {
		values, stable, err := conn.Committed("out", partition)
		require.NoError(c.t, err)
		end, err := conn.EndOffset("out", partition)
		require.NoError(c.t, err)
		require.Equal(c.t, end, stable, "a transaction hangs in partition %d", partition)
		seen[partition] = values
	}
	require.Equal(c.t, seen[0], seen[1], "a transaction is half seen")
	ledger, err := conn.Ledger(crashGroup, "in", 0)
	require.NoError(c.t, err)
	for number := range crashTxns {
		happened := slices.Contains(seen[0], fmt.Sprint(number))
		require.Equal(c.t, happened, ledger.Committed(int64(number)), "transaction %d: its records are seen: %v; %+v", number, happened, ledger)
		plain, err := conn.Ledger(fmt.Sprint(crashPlain, number), "in", 0)
		require.NoError(c.t, err)
		require.Equal(c.t, happened, plain.Stable == int64(number)+1, "transaction %d: its records are seen: %v; %+v", number, happened, plain)
		var fate txnFate
		if number < len(then) {
			fate = then[number]
		}
		switch {
		case happened:
			require.True(c.t, fate.commit && fate.asked, "transaction %d was not to be committed", number)
		case fate.answered:
			require.False(c.t, fate.commit, "transaction %d was confirmed", number)
		}
	}
}
