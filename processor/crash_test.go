package processor_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/lacunamq/lacuna/processor"
)

// crashPlan is who is killed, and when.
type crashPlan struct {
	broker bool // at a step of the broker; else of the first process
	at     crashPoint
	n      int // the n-th of those steps, from 1
	both   bool
}

func (p crashPlan) String() string {
	who := "process"
	if p.broker {
		who = "broker"
	}
	if p.both {
		who += " and the other"
	}
	return fmt.Sprintf("%s before %q, %d", who, p.at, p.n)
}

// theBroker is whose steps the broker's are.
const theBroker = "broker"

// crashes is a run in which what is planned happens while records come, and more at random
// while the dead come back. It tells whether the plan came to be.
func (w *crashWorld) crashes(plan crashPlan) (came bool, err error) {
	for i := range 1 + w.rng.IntN(4)/3 {
		w.seats = append(w.seats, &crashSeat{name: fmt.Sprint("seat-", i), disk: vfs.NewCrashableMem()})
	}
	came, err = w.crashOnce(plan)
	for range w.rng.IntN(3) {
		if err != nil {
			return came, err
		}
		_, err = w.crashOnce(crashPlan{broker: w.rng.IntN(2) == 0, n: 1 + w.rng.IntN(80), both: w.rng.IntN(4) == 0})
	}
	if err == nil {
		w.hireAll()
		w.produce(1 + w.rng.IntN(4))
		_, err = w.await(nil)
	}
	if err == nil {
		err = w.finish()
	}
	return came, err
}

// hireAll hires for the seats where nobody is.
func (w *crashWorld) hireAll() {
	for _, s := range w.seats {
		if w.vacant(s) {
			w.hire(s)
		}
	}
}

// crashOnce lets all work until what is planned has happened, or for a while.
func (w *crashWorld) crashOnce(plan crashPlan) (came bool, err error) {
	w.note("plan: %v", plan)
	percent, rng := 100, rand.New(rand.NewPCG(w.rng.Uint64(), 1)) // the machine goes on
	if w.rng.IntN(2) == 0 {
		percent = w.rng.IntN(100)
	}
	var of any = w.seats[0]
	victims := w.seats[:1]
	if plan.broker {
		of = theBroker
		if victims = nil; plan.both {
			victims = w.seats
		}
	}
	var k killed
	fired := w.trap.set(of, plan.at, plan.n, func() { k = w.kill(victims, plan.broker || plan.both, percent, rng) })
	w.hireAll()
	rounds := 8
	if plan.at != anyPoint {
		rounds = 600 // it does come, once the process has joined
	}
	for range rounds {
		w.produce(1 + w.rng.IntN(4))
		if came, err = w.await(fired); came || err != nil {
			break
		}
	}
	came = w.trap.unset() || came
	if !came || err != nil {
		return came, err
	}
	w.note("crash")
	if err := w.mourn(k); err != nil {
		return true, err
	}
	if len(k.lives) > 0 && w.rng.IntN(4) > 0 {
		return true, w.removeDead()
	}
	return true, nil
}

// runCrashes is a world from its beginning to its end.
func runCrashes(ctx context.Context, job crashJob, plan crashPlan, seed uint64, opts ...processor.Option) (came bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	w, err := newCrashWorld(ctx, job, seed, opts...)
	if err == nil {
		came, err = w.crashes(plan)
	}
	if err = w.done(err); err != nil {
		err = fmt.Errorf("%v, seed %d, %v: %w", job, seed, plan, err)
	}
	return came, err
}

// crashSteps are the steps between store, sink and ledger that a job takes, of the process
// and of the broker.
func crashSteps(job crashJob) (all []crashPlan) {
	asks := []string{"Produce", "OffsetCommit"}
	logs := []string{"out", "__individual_commit_offsets"}
	if job.once {
		asks = []string{"Produce", "TxnOffsetCommit", "EndTxn"}
		logs = append(logs, "__transaction_state")
	}
	for _, ask := range asks {
		all = append(all, crashPlan{at: crashPoint("ask " + ask)}, crashPlan{at: crashPoint("hear " + ask)})
	}
	if job.ack == processor.AckAtProcess {
		all = append(all, crashPlan{at: "write store"})
	}
	for _, log := range logs {
		all = append(all, crashPlan{broker: true, at: crashPoint("write " + log)}, crashPlan{broker: true, at: crashPoint("sync " + log)})
	}
	return all
}

// crashRun is one of many runs.
type crashRun struct {
	job  crashJob
	plan crashPlan
	seed uint64
}

// crashSeeds is how often each step is crashed at in the runs that every change has to pass.
const crashSeeds = 1

// crashRunsOf are runs of a job, so many for each of its steps.
func crashRunsOf(job crashJob, seeds int) (all []crashRun) {
	for seed := range seeds {
		for i, plan := range crashSteps(job) {
			plan.n, plan.both = 1+(seed+i)%5, (seed+i)%4 == 3
			all = append(all, crashRun{job, plan, uint64(seed*1000 + i)})
		}
	}
	return all
}

// crashWorkers is how many runs go on at a time. They wait more than they work.
const crashWorkers = 6

// runAll makes runs until one goes wrong, and tells of each that came to its plan.
func runAll(ctx context.Context, runs []crashRun, came func(crashRun), opts ...processor.Option) error {
	var working errgroup.Group
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	working.SetLimit(crashWorkers)
	for _, r := range runs {
		working.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			did, err := runCrashes(ctx, r.job, r.plan, r.seed, opts...)
			if err != nil && ctx.Err() != nil {
				return nil // only because another one went wrong
			}
			if err != nil {
				stop()
			}
			mu.Lock()
			defer mu.Unlock()
			if did {
				came(r)
			}
			return err
		})
	}
	return working.Wait()
}

// eachSeed makes runs of seeds, some at a time, until one goes wrong.
func eachSeed(seeds int, run func(seed uint64) error) error {
	var working errgroup.Group
	working.SetLimit(crashWorkers / 2)
	for seed := range seeds {
		working.Go(func() error { return run(uint64(seed)) })
	}
	return working.Wait()
}

// crashJobs are both kinds of acknowledging, at least and exactly once, and a changelog exactly
// once; at least once what a changelog has taken in may be taken in again.
var crashJobs = []crashJob{
	{ack: processor.AckAtProcess}, {ack: processor.AckAtProcess, once: true}, {ack: processor.AckAtProcess, once: true, changelog: true},
	{ack: processor.AckOnPunctuate}, {ack: processor.AckOnPunctuate, once: true},
}

// TestProcessorCrashes kills a process of processors, the broker, or both at every step
// between store, sink and ledger, and more at random after that. No input is lost, and none is
// emitted twice exactly once; each key is processed in order, with the state that a single
// thread has; in the end all is acknowledged.
func TestProcessorCrashes(t *testing.T) {
	t.Parallel()
	seeds := crashSeeds
	if os.Getenv("LACUNA_LONG") != "" {
		seeds = 20
	}
	for _, job := range crashJobs {
		t.Run(job.String(), func(t *testing.T) {
			runs, hit := crashRunsOf(job, seeds), make(map[crashPlan]int)
			step := func(p crashPlan) crashPlan { return crashPlan{broker: p.broker, at: p.at} }
			require.NoError(t, runAll(t.Context(), runs, func(r crashRun) { hit[step(r.plan)]++ }))
			for _, plan := range crashSteps(job) {
				require.Positive(t, hit[step(plan)], "crashes: %v", plan)
			}
			t.Logf("%d runs", len(runs))
		})
	}
}
