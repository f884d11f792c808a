package ledgers

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/stretchr/testify/require"
)

// TestTransactionsOfLaterVersions ends a transaction that holds offsets of a ledger which a
// later Lacuna wrote, and crashes before each operation of that and of the later Lacuna's
// start. Its end comes again after a crash, as the transaction coordinator has it; it does
// not fail, and what was decided is in the ledger when that can be read again.
func TestTransactionsOfLaterVersions(t *testing.T) {
	for _, commit := range []bool{true, false} {
		total := newLater(t).run(commit, -1, -1)
		require.Positive(t, total[0])
		require.Equal(t, commit, total[1] > 0, "an aborted transaction has left nothing to do")
		for phase, ops := range total {
			for at := range ops {
				t.Run(fmt.Sprintf("commit=%v,phase=%d,at=%d", commit, phase, at), func(t *testing.T) {
					newLater(t).run(commit, phase, at)
				})
			}
		}
	}
}

// later is a rig with a ledger of which two producers hold something.
type later struct {
	*rig
	snapshot journal.Record // of the ledger, as it is read by the later Lacuna
}

func newLater(t *testing.T) *later {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 10)
	s := r.openShare("g", tp, &listener{})
	require.NoError(t, r.stage(s, one, run(2, 4)))
	require.NoError(t, r.stage(s, other, run(6, 7)))
	s.Close()
	var w individualcommit.Records
	individualcommit.NewState(0).Found(&w, idOf("g", tp), individualcommit.NewLedger(0, 0, 10), individualcommit.Delta{}, nil, 1)
	return &later{rig: r, snapshot: journal.Record{Key: w.All()[0].Key, Value: w.All()[0].Value}}
}

// run crashes before an operation of a phase, and tells how many there were. In the first
// the transaction is ended, and in the second the ledger can be read again.
func (r *later) run(commit bool, phase, at int) (total [2]int) {
	tp := part(1, 0)
	r.appendLater(individualcommit.Key{ID: idOf("g", tp), Kind: individualcommit.KindSnapshot})
	end := func() { r.end(one, commit) }
	total[0] = r.crashing(phase == 0, at, end)
	end()
	r.end(one, false) // of the producer's next transaction, which has nothing here

	journalOf := r.c.shardOf("g").mu.loaded.journal
	receipt, err := journalOf.Append([]journal.Record{r.snapshot})
	require.NoError(r.t, err)
	require.NoError(r.t, receipt.Wait(ctx))
	r.stop()
	require.NoError(r.t, r.fs.RemoveAll("views")) // which the record went by
	total[1] = r.crashing(phase == 1, at, r.start)

	for range 2 {
		if commit {
			r.requireLedger("g", tp, 0, 4, run(0, 2))
		} else {
			r.requireLedger("g", tp, 0, 0)
		}
		s := r.openShare("g", tp, &listener{})
		require.Error(r.t, r.stage(s, one, run(6, 7)), "the other transaction is open")
		require.Equal(r.t, commit, r.stage(s, one, run(2, 4)) != nil)
		s.Close()
		r.end(one, false)
		r.restart()
	}
	r.end(other, true)
	v := r.fetch("g", tp)
	require.EqualValues(r.t, 7, v.MaxCommit)
	require.Equal(r.t, int64(6), v.Gaps[len(v.Gaps)-1].End)
	return total
}

// crashing does something, counts the operations that change files, and goes on with what a
// crash before one of them leaves.
func (r *later) crashing(crash bool, at int, do func()) (ops int) {
	var left *vfs.MemFS
	r.gate.mu.Lock()
	r.gate.before = func() {
		if crash && ops == at {
			rng := rand.New(rand.NewPCG(uint64(at), 1))
			left = r.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		}
		ops++
	}
	r.gate.mu.Unlock()
	do()
	r.gate.mu.Lock()
	r.gate.before = nil
	r.gate.mu.Unlock()
	if left != nil {
		r.startAfterCrash(left)
	}
	return ops
}
