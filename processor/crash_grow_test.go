package processor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/processor"
)

// holding is who processes a bucket, and the slots of the input that it is.
type holding struct {
	holder string
	slots  []client.AssignedSlots
}

// holdings are what the processes have, an error if any is still to be built up or if two
// have a bucket.
func (w *crashWorld) holdings() (map[int32]holding, error) {
	all := make(map[int32]holding)
	for _, l := range w.lives() {
		app := l.app.Load()
		if app == nil {
			return nil, fmt.Errorf("%s is not open", l.name)
		}
		for _, task := range app.Status() {
			if len(task.Rebuild) > 0 || all[task.Bucket].holder != "" {
				return nil, fmt.Errorf("bucket %d is under way to %s", task.Bucket, l.name)
			}
			all[task.Bucket] = holding{l.seat, task.Active}
		}
	}
	return all, nil
}

// settled tells what is missing until so many processes have the buckets of linear hashing.
func (w *crashWorld) settled(n int) (map[int32]holding, error) {
	all, err := w.holdings()
	if err != nil {
		return nil, err
	}
	buckets, err := keyfilter.NewBuckets(1, int32(n))
	if err != nil {
		return nil, err
	}
	line, err := keyfilter.NewLine(w.partitions)
	if err != nil {
		return nil, err
	}
	holders := make(map[string]bool)
	for bucket := range int32(n) {
		var want []client.AssignedSlots
		for _, s := range line.AppendSlots(nil, buckets.Interval(bucket, line), w.partitions) {
			if s.Start < s.End {
				want = append(want, client.AssignedSlots{TopicPartition: client.TopicPartition{Topic: "in", Partition: s.Partition},
					Slots: client.SlotRange{Lo: uint16(s.Start), Hi: uint16(s.End - 1)}})
			}
		}
		if !slices.Equal(want, all[bucket].slots) {
			return nil, fmt.Errorf("bucket %d of %d is %v with %s and is to be %v", bucket, n, all[bucket].slots, all[bucket].holder, want)
		}
		holders[all[bucket].holder] = true
	}
	if len(all) != n || len(holders) != n {
		return nil, fmt.Errorf("%d buckets with %d processes, not %d", len(all), len(holders), n)
	}
	return all, nil
}

// settle lets records come and processes or the broker be killed, so often, until the group of
// all seats is settled.
func (w *crashWorld) settle(kills int) (map[int32]holding, error) {
	var fired <-chan struct{}
	var k killed
	for {
		if kills > 0 && fired == nil {
			fired = w.trapAnybody(&k)
		}
		w.produce(1)
		select {
		case <-fired:
			kills, fired = kills-1, nil
			if err := w.comeBack(k); err != nil {
				return nil, err
			}
		case <-time.After(4 * time.Millisecond):
		case <-w.ctx.Done():
			_, err := w.settled(len(w.seats))
			return nil, fmt.Errorf("%w: %w", errLate, err)
		}
		if w.isWrong() {
			return nil, nil
		}
		if kills == 0 {
			if all, err := w.settled(len(w.seats)); err == nil {
				return all, nil
			}
		}
	}
}

// trapAnybody sets a trap for a process, the broker, or both.
func (w *crashWorld) trapAnybody(k *killed) (fired <-chan struct{}) {
	seat, rng, n := w.seats[w.rng.IntN(len(w.seats))], rand.New(rand.NewPCG(w.rng.Uint64(), 1)), 1+w.rng.IntN(100)
	victims, brokerToo, percent := []*crashSeat{seat}, w.rng.IntN(3) == 0, 50*(1+w.rng.IntN(2))
	var of any = seat
	if brokerToo {
		of = theBroker
		victims = victims[:w.rng.IntN(2)]
	}
	w.note("trap for %v and %v: %d", seat.name, brokerToo, n)
	return w.trap.set(of, anyPoint, n, func() { *k = w.kill(victims, brokerToo, percent, rng) })
}

// comeBack has the dead come back, with their disks or with others.
func (w *crashWorld) comeBack(k killed) error {
	w.note("crash")
	if err := w.mourn(k); err != nil {
		return err
	}
	if err := w.removeDead(); err != nil {
		return err
	}
	for _, s := range w.seats {
		if w.vacant(s) {
			if w.rng.IntN(3) == 0 {
				s.disk = vfs.NewCrashableMem()
			}
			w.hire(s)
		}
	}
	return nil
}

// take adds a seat, and hires somebody for it.
func (w *crashWorld) take(name string) {
	s := &crashSeat{name: name, disk: vfs.NewCrashableMem()}
	w.mu.Lock()
	w.seats = append(w.seats, s)
	w.mu.Unlock()
	w.hire(s)
}

// leave lets the process of a seat end in good order, and removes the seat.
func (w *crashWorld) leave(at int) {
	w.mu.Lock()
	l := w.seats[at].life
	w.seats = slices.Delete(slices.Clone(w.seats), at, at+1)
	w.mu.Unlock()
	close(l.stop)
	l.end()
}

// planOf is the assignment that holdings are.
func planOf(all map[int32]holding) (keyfilter.Assignment, error) {
	holders := make([]string, len(all))
	for bucket, h := range all {
		holders[bucket] = h.holder
	}
	return keyfilter.RestoreAssignment(1, 1<<15, holders, nil)
}

// requirePlan compares who has which bucket with what linear hashing says.
func requirePlan(want keyfilter.Assignment, all map[int32]holding) error {
	for bucket, has := range all {
		if want.Holder(bucket) != has.holder {
			return fmt.Errorf("bucket %d is with %s, not with %s: %v", bucket, has.holder, want.Holder(bucket), all)
		}
	}
	return nil
}

// checkPeace checks who was assigned what in a step without kills: whoever keeps its slots had
// them all the time.
func (w *crashWorld) checkPeace(before, after map[int32]holding) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for bucket, had := range before {
		if has := after[bucket]; has.holder != had.holder || !slices.Equal(has.slots, had.slots) {
			continue
		}
		for _, tasks := range w.mu.assigned[had.holder] {
			at := slices.IndexFunc(tasks, func(t processor.TaskStatus) bool { return t.Bucket == bucket })
			if at < 0 || !slices.Equal(tasks[at].Active, had.slots) {
				return fmt.Errorf("%s was to keep %v of bucket %d and was assigned %v", had.holder, had.slots, bucket, tasks)
			}
		}
	}
	return nil
}

// grow grows the group from 1 to 2, 3 and 5 processes and shrinks it to 2. Every other step is
// taken in peace, and moves no more than linear hashing has to; in the others everybody is
// killed now and then.
func (w *crashWorld) grow(violent bool) error {
	w.keys, w.session = 16, 10*time.Second // who is dead is removed, and nobody else
	w.take("seat-1")
	before, err := w.settle(0)
	for _, n := range []int{2, 3, 5, 4, 3, 2} {
		if err != nil || w.isWrong() {
			return err
		}
		if before, err = w.growTo(n, before, violent); err != nil {
			return fmt.Errorf("%d processes: %w", n, err)
		}
		violent = !violent
	}
	if _, err := w.await(nil); err != nil {
		return err
	}
	return w.finish()
}

// growTo is a step.
func (w *crashWorld) growTo(n int, before map[int32]holding, violent bool) (after map[int32]holding, err error) {
	plan, err := planOf(before)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.mu.assigned = make(map[string][][]processor.TaskStatus)
	w.mu.Unlock()
	for at := len(w.seats) + 1; at <= n; at++ {
		w.hired++
		name := fmt.Sprint("seat-", 1+w.hired)
		w.take(name)
		plan = plan.Join(name)
	}
	if len(w.seats) > n {
		at := w.rng.IntN(len(w.seats))
		plan = plan.Leave(w.seats[at].name)
		w.leave(at)
	}
	kills := 0
	if violent {
		kills = 1 + w.rng.IntN(2)
	}
	if after, err = w.settle(kills); err != nil || violent || w.isWrong() {
		return after, err
	}
	w.note("%d processes: %v", n, after)
	if n == len(before)+2 { // of two that come at once either may be the first
		for bucket := len(before); bucket < n; bucket++ {
			delete(after, int32(bucket))
		}
	}
	err = errors.Join(requirePlan(plan, after), w.checkPeace(before, after))
	if err == nil {
		after, err = w.settled(n)
	}
	return after, err
}

func runGrowth(ctx context.Context, job crashJob, seed uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	w, err := newCrashWorld(ctx, job, seed)
	if err == nil {
		err = w.grow(w.rng.IntN(2) == 0)
	}
	if err = w.done(err); err != nil {
		err = fmt.Errorf("%v, seed %d: %w", job, seed, err)
	}
	return err
}

// TestGrowthCrashes lets a group grow and shrink under load while its members and the broker
// are killed. What holds of TestProcessorCrashes holds, and of the slices only those move that
// linear hashing names.
func TestGrowthCrashes(t *testing.T) {
	t.Parallel()
	seeds := 1
	if os.Getenv("LACUNA_LONG") != "" {
		seeds = 8
	}
	for _, job := range crashJobs {
		t.Run(job.String(), func(t *testing.T) {
			require.NoError(t, eachSeed(seeds, func(seed uint64) error { return runGrowth(t.Context(), job, seed) }))
		})
	}
}
