package ledgers

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/extension/extensiontest"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/stretchr/testify/require"
)

// TestShareCrashes is TestCrashes for share partitions: after a power cut at any moment,
// what members were answered is there, with the delivery counts that belong to it; what
// was not answered is there in the order in which it was said, each answer whole or not
// at all; and no ledger is ahead of its data.
func TestShareCrashes(t *testing.T) {
	seeds := uint64(20)
	if os.Getenv("LACUNA_LONG") != "" {
		seeds = 2000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { newShareCrasher(t, seed).run() })
	}
}

// shareCrasher deals share partitions at random and knows what they must be.
type shareCrasher struct {
	*rig
	rnd    *rand.Rand
	groups []string
	parts  []extension.TopicPartition
	start  map[extension.TopicPartition]int64
	end    map[extension.TopicPartition]int64
	dealt  map[individualcommit.ID]*shareDealer
	now    map[int32]shareWorld   // what is, by shard
	maybe  map[int32][]shareWorld // what a crash may leave; the first was answered
}

// shareWorld is the share partitions of a shard that were founded.
type shareWorld map[individualcommit.ID]shareTruth

// shareTruth is a share partition as plain sets.
type shareTruth struct {
	committed map[int64]bool
	counts    map[int64]int // of records that are not committed
}

func (w shareWorld) clone() shareWorld {
	c := shareWorld{}
	for id, truth := range w {
		c[id] = shareTruth{maps.Clone(truth.committed), maps.Clone(truth.counts)}
	}
	return c
}

func (s shareTruth) commit(offset int64) {
	s.committed[offset] = true
	delete(s.counts, offset)
}

// stable is the first offset that is not committed, in a log with that start.
func (s shareTruth) stable(start int64) int64 {
	for s.committed[start] {
		start++
	}
	return start
}

// shareDealer is an owner with a dispatcher.
type shareDealer struct {
	c     *shareCrasher
	id    individualcommit.ID
	share *Share
	d     *cooperative.Dispatcher
	held  map[int64]string  // by whom
	again []cooperative.Run // to be fed again
	gone  bool
	nowMs int64
}

func (o *shareDealer) Committed(runs []individualcommit.Run, out *cooperative.Changes) {
	o.d.Settle(runs, out)
	o.drop(runs...)
}

func (o *shareDealer) Reopened(runs []individualcommit.Run, out *cooperative.Changes) {
	o.d.Reopened(runs, out)
	o.again = append(o.again, runs...)
}

func (o *shareDealer) Advanced(logStart int64, out *cooperative.Changes) {
	o.d.AdvanceStart(logStart, out)
	o.drop(run(0, logStart))
}

func (o *shareDealer) Ended([]individualcommit.Run, bool, *cooperative.Changes) {
	require.Fail(o.c.t, "there are no transactions")
}

func (o *shareDealer) Gone() { o.gone = true }

func (o *shareDealer) AppendCounts(dst []byte, block int64) []byte {
	return o.d.AppendCounts(dst, block)
}

// drop forgets who holds offsets.
func (o *shareDealer) drop(runs ...individualcommit.Run) {
	for _, r := range runs {
		maps.DeleteFunc(o.held, func(offset int64, _ string) bool { return r.Start <= offset && offset < r.End })
	}
}

// do is a Do that ends the test if it fails.
func (o *shareDealer) do(f func(l *individualcommit.Ledger, out *cooperative.Changes)) ShareReceipt {
	var out cooperative.Changes
	receipt, err := o.share.Do(&out, func(l *individualcommit.Ledger) { f(l, &out) })
	require.NoError(o.c.t, err)
	return receipt
}

// restored is a dispatcher of what the log says.
func (o *shareDealer) restored(l *individualcommit.Ledger, out *cooperative.Changes) *cooperative.Dispatcher {
	d := cooperative.New(cooperative.Config{Limits: cooperative.Limits{LockMs: 100, Deliveries: 255, Acquired: 1000}}, l)
	for block, value := range o.share.Counts() {
		require.NoError(o.c.t, d.RestoreCounts(block, value, out))
	}
	o.feed(d, out)
	return d
}

func (o *shareDealer) feed(d *cooperative.Dispatcher, out *cooperative.Changes) {
	records := func(r cooperative.Run) {
		if r.Start < r.End {
			d.Feed(cooperative.Records{Start: r.Start, End: r.End, Runs: []cooperative.Run{r}}, out)
		}
	}
	tp := partitionOf(o.id)
	for _, r := range o.again {
		records(run(max(r.Start, o.c.start[tp]), r.End))
	}
	o.again = nil
	records(run(d.FeedFrom(), o.c.end[tp]))
}

func newShareCrasher(t *testing.T, seed uint64) *shareCrasher {
	c := &shareCrasher{
		rig: newRig(t), rnd: rand.New(rand.NewPCG(seed, 5)), groups: []string{"s", "t", "u"},
		parts: []extension.TopicPartition{part(1, 0), part(1, 1)},
		start: map[extension.TopicPartition]int64{}, end: map[extension.TopicPartition]int64{},
		dealt: map[individualcommit.ID]*shareDealer{},
		now:   map[int32]shareWorld{}, maybe: map[int32][]shareWorld{},
	}
	for shard := range int32(rigPartitions) {
		c.now[shard] = shareWorld{}
		c.answered(shard)
	}
	return c
}

// happened notes that a shard has changed, which may become durable any time.
func (c *shareCrasher) happened(shard int32) {
	c.maybe[shard] = append(c.maybe[shard], c.now[shard].clone())
}

// answered notes that all that has happened to a shard is durable.
func (c *shareCrasher) answered(shard int32) { c.maybe[shard] = []shareWorld{c.now[shard].clone()} }

func (c *shareCrasher) run() {
	for range 3 {
		for range 30 + c.rnd.IntN(50) {
			c.step()
		}
		unsynced, seed := c.rnd.IntN(101), c.rnd.Uint64()
		_, release := c.gate.hold(".log") // no fsync ends
		release = sync.OnceFunc(release)
		defer release()
		for range c.rnd.IntN(12) {
			c.unanswered()
		}
		clone := c.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rand.New(rand.NewPCG(seed, 1))})
		release()
		c.startAfterCrash(clone)
		c.check()
	}
	for shard := range c.now {
		c.answered(shard)
	}
	c.restart()
	c.check()
}

func (c *shareCrasher) any() individualcommit.ID {
	return idOf(c.groups[c.rnd.IntN(len(c.groups))], c.parts[c.rnd.IntN(len(c.parts))])
}

func (c *shareCrasher) step() {
	id := c.any()
	tp, shard := partitionOf(id), c.c.shardOf(id.Group).index
	switch op := c.rnd.IntN(30); {
	case op < 3 || c.end[tp] == 0:
		n := 1 + c.rnd.IntN(10)
		if c.rnd.IntN(8) == 0 {
			n = 1000 // on to the next block of counts
		}
		c.produce(tp, n)
		c.end[tp] += int64(n)
	case op == 3:
		require.NoError(c.t, c.c.Checkpoint(ctx))
		require.NoError(c.t, c.DB.Sync(ctx))
	case op == 4:
		c.c.followAll(ctx)
	case op == 5:
		require.NoError(c.t, c.c.DeletePartitions(ctx, id.Group, []extension.TopicPartition{tp}))
		delete(c.primary.offsets[id.Group], tp)
		delete(c.now[shard], id)
		c.answered(shard)
	case op == 6:
		if log := c.Logs[extensiontest.JournalDir(shard)]; log != nil {
			require.NoError(c.t, log.Roll(farFuture))
			_, err := log.Clean(farFuture)
			require.NoError(c.t, err)
		}
	case op == 7:
		c.advance(tp)
	case op == 8:
		if o := c.dealt[id]; o != nil {
			o.share.Close()
			delete(c.dealt, id)
		}
	case op <= 11:
		if c.now[shard][id].committed != nil {
			for _, result := range c.operate(id).Wait(ctx) {
				require.NoError(c.t, result.Err)
			}
			c.answered(shard)
		}
	default:
		o := c.open(id)
		receipt := c.deal(o)
		if c.rnd.IntN(3) > 0 {
			require.NoError(c.t, o.share.Wait(ctx, receipt))
			c.answered(shard)
		}
	}
}

// unanswered is what may happen while no fsync ends.
func (c *shareCrasher) unanswered() {
	id := c.any()
	o := c.dealt[id]
	switch {
	case c.now[c.c.shardOf(id.Group).index][id].committed == nil:
	case c.rnd.IntN(4) == 0:
		c.operate(id)
	case o != nil && !o.gone:
		c.deal(o)
	}
}

// advance lets the log of a partition start later.
func (c *shareCrasher) advance(tp extension.TopicPartition) {
	c.start[tp] += c.rnd.Int64N(min(5, c.end[tp]-c.start[tp]+1))
	_, err := c.Logs[extensiontest.DataDir(tp)].DeleteRecords(c.start[tp])
	require.NoError(c.t, err)
	if c.rnd.IntN(2) == 0 {
		c.c.followAll(ctx)
	}
	for id, o := range c.dealt {
		if partitionOf(id) == tp && !o.gone {
			require.NoError(c.t, o.share.Advance())
		}
	}
}

// open gives a partition its dealer, if it has none, and founds its ledger.
func (c *shareCrasher) open(id individualcommit.ID) *shareDealer {
	if o := c.dealt[id]; o != nil && !o.gone {
		return o
	}
	tp, shard := partitionOf(id), c.c.shardOf(id.Group).index
	o := &shareDealer{c: c, id: id, held: map[int64]string{}}
	var err error
	o.share, err = c.c.OpenShare(ctx, id.Group, tp, c.start[tp], o)
	require.NoError(c.t, err)
	c.dealt[id] = o
	if c.now[shard][id].committed == nil {
		c.now[shard][id] = shareTruth{map[int64]bool{}, map[int64]int{}}
	}
	receipt := o.do(func(l *individualcommit.Ledger, out *cooperative.Changes) { o.d = o.restored(l, out) })
	require.NoError(c.t, o.share.Wait(ctx, receipt))
	c.answered(shard)
	return o
}

// deal has a member fetch and say something of what it holds, in one Do, or time pass.
func (c *shareCrasher) deal(o *shareDealer) ShareReceipt {
	shard := c.c.shardOf(o.id.Group).index
	truth := c.now[shard][o.id]
	member := fmt.Sprint("member ", c.rnd.IntN(3))
	receipt := o.do(func(_ *individualcommit.Ledger, out *cooperative.Changes) {
		o.feed(o.d, out)
		for _, dealt := range o.d.Acquire(nil, member, cooperative.Want{MaxRecords: 1 + c.rnd.IntN(8)}, o.nowMs, out) {
			for offset := dealt.Start; offset < dealt.End; offset++ {
				require.EqualValues(c.t, truth.counts[offset]+1, dealt.Count, "%v, offset %d", o.id, offset)
				require.False(c.t, truth.committed[offset], "%v, offset %d", o.id, offset)
				require.NotContains(c.t, o.held, offset)
				o.held[offset] = member
			}
		}
		for offset, holder := range o.held {
			if holder == member && c.rnd.IntN(3) > 0 {
				c.acknowledge(o, truth, member, offset, out)
			}
		}
		if c.rnd.IntN(8) == 0 {
			o.nowMs += 101
			o.d.Expire(o.nowMs, out)
			for offset := range o.held {
				truth.counts[offset]++
			}
			clear(o.held)
		}
	})
	c.happened(shard)
	return receipt
}

func (c *shareCrasher) acknowledge(o *shareDealer, truth shareTruth, member string, offset int64, out *cooperative.Changes) {
	says := []cooperative.AckType{cooperative.Accept, cooperative.Release, cooperative.Reject}[c.rnd.IntN(3)]
	ack := cooperative.Ack{Run: run(offset, offset+1), Type: says}
	require.Equal(c.t, []cooperative.Outcome{cooperative.Done}, o.d.Acknowledge(nil, member, []cooperative.Ack{ack}, o.nowMs, out))
	delete(o.held, offset)
	if says == cooperative.Release {
		truth.counts[offset]++
	} else {
		truth.commit(offset)
	}
}

// operate is an operator's commit, reopening or move.
func (c *shareCrasher) operate(id individualcommit.ID) *Commit {
	tp, shard := partitionOf(id), c.c.shardOf(id.Group).index
	truth := c.now[shard][id]
	p := commitOf(tp)
	x := c.start[tp] + c.rnd.Int64N(max(c.end[tp]-c.start[tp], 1))
	r := run(x, min(x+1+c.rnd.Int64N(4), c.end[tp]))
	switch op := c.rnd.IntN(7); {
	case r.Start >= r.End:
	case op == 0:
		p.Offset = x
		clear(truth.counts)
		if x < truth.stable(c.start[tp]) {
			clear(truth.committed)
		}
		for offset := range x {
			truth.committed[offset] = true
		}
	case op <= 3:
		p.Commit = []individualcommit.Run{r}
		for offset := r.Start; offset < r.End; offset++ {
			truth.commit(offset)
		}
	default:
		p.Reopen = []individualcommit.Run{r}
		for offset := r.Start; offset < r.End; offset++ {
			delete(truth.committed, offset)
		}
	}
	c.happened(shard)
	return c.c.Begin(ctx, &extension.Member{Group: id.Group, Generation: -1}, []PartitionCommit{p})
}

// check finds what the crash has left among what may be.
func (c *shareCrasher) check() {
	clear(c.dealt)
	found := shareWorld{}
	for _, group := range c.groups {
		for _, tp := range c.parts {
			founded, err := c.c.Founded(ctx, group, tp)
			require.NoError(c.t, err)
			if founded {
				found[idOf(group, tp)] = c.read(idOf(group, tp))
			}
		}
	}
	for shard := range c.now {
		of := maps.Clone(found)
		maps.DeleteFunc(of, func(id individualcommit.ID, _ shareTruth) bool { return c.c.shardOf(id.Group).index != shard })
		left := -1
		var differences []string
		for i, world := range c.maybe[shard] {
			if d := c.difference(of, world); d != "" {
				differences = append(differences, d)
			} else {
				left = i // the last is as good as the others
			}
		}
		require.GreaterOrEqual(c.t, left, 0, "shard %d is as at no time since the last answer: %q", shard, differences)
		c.now[shard] = c.maybe[shard][left]
		c.answered(shard)
	}
}

// read is what the log says of a partition, without a change.
func (c *shareCrasher) read(id individualcommit.ID) shareTruth {
	truth := shareTruth{map[int64]bool{}, map[int64]int{}}
	o := &shareDealer{c: c, id: id}
	var err error
	o.share, err = c.c.OpenShare(ctx, id.Group, partitionOf(id), 0, o)
	require.NoError(c.t, err)
	defer o.share.Close()
	tp := partitionOf(id)
	_, err = o.share.Do(&cooperative.Changes{}, func(l *individualcommit.Ledger) {
		var out cooperative.Changes
		require.LessOrEqual(c.t, l.MaxCommit(), c.end[tp], "%v is ahead of its data", id)
		for offset := c.start[tp]; offset < c.end[tp]; offset++ {
			if l.IsCommitted(offset) {
				truth.committed[offset] = true
			}
		}
		d := o.restored(l, &out)
		for more := true; more; {
			more = false
			for _, dealt := range d.Acquire(nil, "m", cooperative.Want{MaxRecords: 1000}, o.nowMs, &out) {
				for offset := dealt.Start; offset < dealt.End; offset++ {
					truth.counts[offset] = int(dealt.Count) - 1
				}
				d.Settle([]cooperative.Run{dealt.Run}, &out) // to make room
				o.feed(d, &out)
				more = true
			}
		}
	})
	require.NoError(c.t, err)
	return truth
}

// difference compares what was read with what may be, of the offsets that logs still have;
// it is empty if there is none.
func (c *shareCrasher) difference(read, may shareWorld) string {
	if len(read) != len(may) {
		return fmt.Sprintf("%d ledgers, not %d", len(read), len(may))
	}
	for id, truth := range read {
		want, ok := may[id]
		if !ok {
			return fmt.Sprint("a ledger of ", id)
		}
		tp := partitionOf(id)
		for offset := c.start[tp]; offset < c.end[tp]; offset++ {
			if truth.committed[offset] != want.committed[offset] || truth.counts[offset] != want.counts[offset] {
				return fmt.Sprintf("%v, offset %d: committed %v, count %d, not %v, %d", id, offset,
					truth.committed[offset], truth.counts[offset], want.committed[offset], want.counts[offset])
			}
			if _, dealt := truth.counts[offset]; dealt == truth.committed[offset] {
				return fmt.Sprintf("%v, offset %d: committed %v, dealt %v", id, offset, truth.committed[offset], dealt)
			}
		}
	}
	return ""
}
