package ledgers

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/extension/extensiontest"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/stretchr/testify/require"
)

// TestCrashes is promise 2 at the level of ledgers: after a power cut at any moment, what
// was answered is there, what was not is there whole or not at all, in the order in which
// it was asked for; no ledger is ahead of its data, and the primary topic follows.
func TestCrashes(t *testing.T) {
	seeds := uint64(25)
	if os.Getenv("LACUNA_LONG") != "" {
		seeds = 2000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { newCrasher(t, seed).run() })
	}
}

// crasher changes ledgers at random and knows what they must be.
type crasher struct {
	*rig
	rnd    *rand.Rand
	groups []string
	parts  []extension.TopicPartition
	ends   map[extension.TopicPartition]int64
	// answered is what each ledger is known to be, begun what was asked for since and not
	// answered, in order.
	answered map[individualcommit.ID]*expected
	begun    map[*shard][]change
}

// expected is a ledger as a plain set of committed offsets; nil: not founded.
type expected map[int64]bool

// change is a commit of offsets, or their reopening.
type change struct {
	id     individualcommit.ID
	reopen bool
	part   PartitionCommit
}

func (c *change) apply(e *expected) {
	if *e == nil {
		*e = expected{}
	}
	for _, r := range slices.Concat(c.part.Commit, c.part.Reopen) {
		for x := r.Start; x < r.End; x++ {
			if c.reopen {
				delete(*e, x)
			} else {
				(*e)[x] = true
			}
		}
	}
}

func newCrasher(t *testing.T, seed uint64) *crasher {
	c := &crasher{
		rig: newRig(t), rnd: rand.New(rand.NewPCG(seed, 3)), groups: []string{"g", "h", "i"},
		parts:    []extension.TopicPartition{part(1, 0), part(1, 1)},
		ends:     map[extension.TopicPartition]int64{},
		answered: map[individualcommit.ID]*expected{},
	}
	for _, g := range c.groups {
		for _, tp := range c.parts {
			c.answered[idOf(g, tp)] = new(expected)
		}
	}
	return c
}

// farFuture is when all segments are old enough for anything.
var farFuture = time.Now().AddDate(10, 0, 0)

func (c *crasher) run() {
	for range 3 {
		for range 20 + c.rnd.IntN(40) {
			c.step()
		}
		unsynced, seed := c.rnd.IntN(101), c.rnd.Uint64()
		waiting, release := c.gate.hold("")
		begun := make(chan struct{})
		go func() {
			defer close(begun)
			c.begin(c.rnd.IntN(6))
		}()
		select { // no fsync ends, and some appends wait for one
		case <-begun:
		case <-waiting:
		}
		clone := c.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rand.New(rand.NewPCG(seed, 1))})
		release()
		<-begun
		c.startAfterCrash(clone)
		c.check()
	}
	c.restart()
	c.check()
}

func (c *crasher) step() {
	tp, group := c.parts[c.rnd.IntN(len(c.parts))], c.groups[c.rnd.IntN(len(c.groups))]
	switch op := c.rnd.IntN(20); {
	case op < 3 || c.ends[tp] == 0:
		n := 1 + c.rnd.IntN(10)
		c.produce(tp, n)
		c.ends[tp] += int64(n)
	case op == 3:
		require.NoError(c.t, c.c.Checkpoint(ctx))
		require.NoError(c.t, c.DB.Sync(ctx))
	case op == 4:
		c.c.followAll(ctx)
	case op == 5:
		require.NoError(c.t, c.c.DeletePartitions(ctx, group, []extension.TopicPartition{tp}))
		delete(c.primary.offsets[group], tp)
		*c.answered[idOf(group, tp)] = nil
	case op == 6:
		if log := c.Logs[extensiontest.JournalDir(c.c.shardOf(group).index)]; log != nil {
			require.NoError(c.t, log.Roll(farFuture))
			_, err := log.Clean(farFuture)
			require.NoError(c.t, err)
		}
	default:
		change := c.change(group, tp, *c.answered[idOf(group, tp)] != nil)
		require.NoError(c.t, c.commit(group, change.part)[0].Err)
		change.apply(c.answered[change.id])
	}
}

func (c *crasher) change(group string, tp extension.TopicPartition, mayReopen bool) change {
	x := c.rnd.Int64N(c.ends[tp])
	if mayReopen && c.rnd.IntN(5) == 0 {
		return change{idOf(group, tp), true, reopenOf(tp, x)}
	}
	return change{idOf(group, tp), false, commitOf(tp, x, min(x+2, c.ends[tp]-1))}
}

// begin begins changes that are not answered before the crash. Those that found a ledger
// are left out, since they wait for the primary topic.
func (c *crasher) begin(n int) {
	c.begun = map[*shard][]change{}
	for range n {
		tp, group := c.parts[c.rnd.IntN(len(c.parts))], c.groups[c.rnd.IntN(len(c.groups))]
		if *c.answered[idOf(group, tp)] == nil {
			continue
		}
		change, s := c.change(group, tp, true), c.c.shardOf(group)
		c.begun[s] = append(c.begun[s], change)
		c.c.Begin(ctx, &extension.Member{Group: group, Generation: -1}, []PartitionCommit{change.part})
	}
}

// check finds, for each shard, how much of what was begun came through.
func (c *crasher) check() {
	for index := range c.c.shards {
		var changes []change
		for s, begun := range c.begun {
			if s.index == int32(index) {
				changes = begun
			}
		}
		through := 0
		for !c.matches(int32(index)) {
			require.Less(c.t, through, len(changes), "the ledgers of partition %d are as at no time since the last answer", index)
			changes[through].apply(c.answered[changes[through].id])
			through++
		}
	}
	c.begun = nil
	c.c.followAll(ctx)
	for id := range c.answered {
		v := c.fetch(id.Group, partitionOf(id))
		require.LessOrEqual(c.t, v.MaxCommit, c.ends[partitionOf(id)], "%v is ahead of its data", id)
		if v.Founded {
			require.Equal(c.t, v.Offset, c.primary.at(id.Group, partitionOf(id)), "%v: the primary topic follows after a start", id)
		}
	}
}

// matches tells whether the ledgers of a shard are as expected.
func (c *crasher) matches(index int32) bool {
	for id, e := range c.answered {
		if c.c.shardOf(id.Group).index != index {
			continue
		}
		v := c.fetch(id.Group, partitionOf(id))
		if v.Founded != (*e != nil) {
			return false
		}
		if !v.Founded {
			continue
		}
		open := slices.Clone(v.Gaps)
		open = append(open, run(v.MaxCommit, c.ends[partitionOf(id)]))
		for x := range c.ends[partitionOf(id)] {
			isOpen := slices.ContainsFunc(open, func(r individualcommit.Run) bool { return r.Start <= x && x < r.End })
			if isOpen == (*e)[x] {
				return false
			}
		}
	}
	return true
}
