package processor_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/processor"
)

// attentive is a member that hears soon of partitions that were added.
func attentive(name string, opts ...processor.Option) []processor.Option {
	return append([]processor.Option{processor.Name(name), processor.ExactlyOnce(),
		processor.MemberOpts(kgo.MetadataMinAge(20*time.Millisecond), kgo.MetadataMaxAge(50*time.Millisecond))}, opts...)
}

// awaitActive waits until the members process so many partitions, and rebuild nothing.
func awaitActive(t *testing.T, partitions int, apps ...*processor.App) {
	t.Helper()
	require.Eventually(t, func() bool {
		seen := make(map[int32]bool)
		for _, a := range apps {
			active := false
			for _, s := range a.Status() {
				if len(s.Rebuild) > 0 {
					return false
				}
				for _, slots := range s.Active {
					active, seen[slots.Partition] = true, true
				}
			}
			if !active {
				return false
			}
		}
		return len(seen) == partitions
	}, 30*time.Second, 5*time.Millisecond, "%d partitions of %d members", partitions, len(apps))
}

// A number of partitions that is a multiple of what it was leaves every key with the task that
// has it, and in order: also when there is much that was not processed yet.
func TestAnInputDoubles(t *testing.T) {
	r := newRig(t, 1)
	r.produce(500, 40)
	c := &counting{gate: make(chan struct{})}
	app := r.open(c.topology(), attentive("w1", processor.StateDir(t.TempDir()))...)
	awaitActive(t, 1, app)
	r.grow(2)
	r.produce(500, 40)
	awaitActive(t, 2, app)
	close(c.gate)
	r.grow(4)
	r.produce(500, 40)
	awaitActive(t, 4, app)
	r.requireCounts(r.output(1500))
	// Who builds the state up anew finds the same order.
	other := r.open(c.topology(), attentive("w2", processor.StateDir(t.TempDir()))...)
	awaitActive(t, 4, app, other)
	r.produce(200, 40)
	r.requireCounts(r.output(1700))
	c.check(t)
}

// One that is not moves keys. All states are built up anew, and then each key is with one task
// again, with all of its records.
func TestAnInputGrowsByAThird(t *testing.T) {
	r := newRig(t, 2)
	r.produce(600, 40)
	c := new(counting)
	dirs := []processor.Option{processor.StateDir(t.TempDir()), processor.StateDir(t.TempDir()), processor.StateDir(t.TempDir())}
	one := r.open(c.topology(), attentive("w1", dirs[0], processor.InitialBuckets(2))...)
	two := r.open(c.topology(), attentive("w2", dirs[1], processor.InitialBuckets(2))...)
	awaitActive(t, 2, one, two)
	r.requireCounts(r.output(600))
	r.grow(3)
	// One is restarted while that is found out.
	require.NoError(t, one.Close(context.Background()))
	one = r.open(c.topology(), attentive("w1", dirs[0], processor.InitialBuckets(2))...)
	awaitActive(t, 3, one, two)
	r.produce(600, 40)
	r.requireCounts(r.output(1200))
	three := r.open(c.topology(), attentive("w3", dirs[2], processor.InitialBuckets(2))...)
	awaitActive(t, 3, one, two, three)
	r.produce(600, 40)
	r.requireCounts(r.output(1800))
	c.check(t)
}

// What was not processed when that is found out comes before what was written after.
func TestAnInputGrowsByAThirdWithABacklog(t *testing.T) {
	r := newRig(t, 2)
	r.produce(600, 40)
	c := &counting{gate: make(chan struct{})}
	app := r.open(c.topology(), attentive("w1", processor.StateDir(t.TempDir()), processor.InitialBuckets(2), processor.UnitRecords(50))...)
	awaitActive(t, 2, app)
	r.grow(3)
	require.Eventually(t, func() bool {
		for _, s := range app.Status() {
			if len(s.Active)+len(s.Rebuild) > 1 {
				return true
			}
		}
		return false
	}, 30*time.Second, 5*time.Millisecond)
	r.produce(600, 40)
	close(c.gate)
	out := r.output(1200)
	c.check(t)
	r.requireCounts(out)
}

// With AckOnPunctuate the latest record of a key is emitted, from whichever partition it is.
func TestAnInputGrowsBeforeItIsPunctuated(t *testing.T) {
	for _, grown := range []int{4, 3} {
		t.Run(strconv.Itoa(grown), func(t *testing.T) {
			r := newRig(t, 2)
			r.produce(400, 30)
			gate := make(chan struct{})
			punctuate := func() error {
				<-gate
				return nil
			}
			app := r.open(latestTopology(20*time.Millisecond, punctuate), attentive("w1")...)
			awaitActive(t, 2, app)
			r.grow(grown)
			close(gate)
			awaitActive(t, grown, app)
			r.produce(400, 30)
			latest := make(map[string]int)
			emitted := r.outputUntil(func(o *kgo.Record) bool {
				n, err := strconv.Atoi(string(o.Value))
				require.NoError(t, err)
				require.Greater(t, n, latest[string(o.Key)], "key %s", o.Key)
				latest[string(o.Key)] = n
				for key, n := range r.values {
					if latest[key] != n {
						return false
					}
				}
				return true
			})
			require.NotZero(t, emitted)
			require.NoError(t, app.Close(context.Background()))
		})
	}
}

func TestAnInputIsMadeAnew(t *testing.T) {
	r := newRig(t, 1)
	r.produce(100, 10)
	c := new(counting)
	dir := processor.StateDir(t.TempDir())
	a := r.open(c.topology(), attentive("w1", dir)...)
	r.output(100)
	adm := kadm.NewClient(r.kafka)
	deleted, err := adm.DeleteTopics(t.Context(), "in", "out")
	require.NoError(t, err)
	require.NoError(t, deleted.Error())
	made, err := adm.CreateTopics(t.Context(), 3, 1, nil, "in", "out")
	require.NoError(t, err)
	require.NoError(t, made.Error())
	<-a.Failed()
	require.ErrorIs(t, a.Err(), client.ErrTopicRecreated)
	require.ErrorContains(t, a.Err(), "in")
	require.NoError(t, a.Close(context.Background()))
	c.check(t)

	clear(r.values)
	r.kafka.Close()
	r.kafka, err = kgo.NewClient(kgo.SeedBrokers(r.b.Addr()))
	require.NoError(t, err)
	r.produce(100, 10)
	r.open(c.topology(), attentive("w1", dir)...)
	r.requireCounts(r.output(100))
	c.check(t)
}

// With a changelog there is nothing to read again while keys stay where they are. When they
// move the changelog would give them to others, which is refused.
func TestAnInputWithAChangelogGrows(t *testing.T) {
	r := newRig(t, 1)
	r.produce(500, 40)
	c := &counting{gate: make(chan struct{})}
	app := r.open(c.topology(), attentive("w1", processor.StateDir(t.TempDir()), processor.Changelog("log"), processor.UnitRecords(50))...)
	awaitActive(t, 1, app)
	r.grow(2)
	r.produce(500, 40)
	awaitActive(t, 2, app)
	close(c.gate)
	r.requireCounts(r.output(1000))
	other := r.open(c.topology(), attentive("w2", processor.StateDir(t.TempDir()), processor.Changelog("log"))...)
	awaitActive(t, 2, app, other)
	r.produce(200, 40)
	r.requireCounts(r.output(1200))
	c.check(t)

	r.grow(3) // which 2 divides no more, but 1 does
	awaitActive(t, 3, app, other)
	r.produce(200, 40)
	r.requireCounts(r.output(1400))
	c.check(t)
}

func TestAnInputWithAChangelogGrowsByAThird(t *testing.T) {
	r := newRig(t, 2)
	r.produce(300, 40)
	c := new(counting)
	app := r.open(c.topology(), attentive("w1", processor.StateDir(t.TempDir()), processor.Changelog("log"))...)
	r.output(300)
	r.grow(3)
	<-app.Failed()
	require.ErrorContains(t, app.Err(), "the group divided in by 2 partitions when this was written, and does by 1 now")
}
