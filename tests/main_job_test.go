package tests

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/tests/wire"
)

// TestTheMainJob is what Lacuna is for: a stock client writes keyed lines into one
// partition, three Readers with disjoint slots share it and commit one record in ten late
// and out of order, and the broker is killed in the middle. Nothing that was committed
// comes again, all else does, and a stock consumer goes on at the stable offset.
func TestTheMainJob(t *testing.T) {
	const topic, group = "lines", "workers"
	lines := scaled(20_000, 200_000)
	dir := t.TempDir()
	p := startProcess(t, dir)
	writeLines(t, p.addr, topic, lines)

	// The first half. Before the kill each record is delivered once.
	first := newTally(t, lines)
	half := startWorkers(t, p.addr, topic, group, first, func(int64) bool { return true })
	first.await(lines/2, lines/4)
	p.kill()
	half.abandon()
	require.Empty(t, first.faults())

	p = startProcess(t, dir)
	committed := committedOffsets(t, p.addr, topic, group, lines)
	for offset := range lines {
		if first.answered[offset] {
			require.True(t, committed[offset], "the commit of offset %d was answered and is lost", offset)
		}
		if committed[offset] {
			require.True(t, first.asked[offset], "offset %d is committed, and nobody asked for it", offset)
		}
	}
	t.Logf("killed after %d of %d records: %d commits were answered, %d are in the ledger",
		count(first.delivered), lines, count(first.answered), count(committed))

	// The rest. Some records are left open at the end.
	leftOpen := func(offset int64) bool { return offset%1000 == 700 && !committed[offset] }
	second := newTally(t, lines)
	second.notAgain = committed
	rest := startWorkers(t, p.addr, topic, group, second, func(offset int64) bool { return !leftOpen(offset) })
	second.await(lines-count(committed), 0)
	rest.finish(int64(lines))
	require.Empty(t, second.faults())

	committed = committedOffsets(t, p.addr, topic, group, lines)
	stable := int64(lines)
	for offset := range int64(lines) {
		require.Equal(t, !leftOpen(offset), committed[offset], "offset %d", offset)
		if leftOpen(offset) {
			stable = min(stable, offset)
		}
	}
	require.Less(t, stable, int64(lines), "some records were to be left open")
	consumeFrom(t, p.addr, topic, group, stable, lines)
	p.stop()
}

// line is what the i-th line says, and lineKey its key.
func line(i int) string    { return fmt.Sprintf("line %d of the text that everybody reads a part of", i) }
func lineKey(i int) string { return fmt.Sprintf("key-%d", uint32(i)*2654435761%4999) }

// writeLines writes keyed lines into a topic: with kcat where there is one, else with kgo.
func writeLines(t *testing.T, addr, topic string, lines int) {
	t.Helper()
	kcat, err := exec.LookPath("kcat")
	if err != nil {
		cl := kafkaClient(t, addr)
		for i := range lines {
			cl.Produce(t.Context(), &kgo.Record{Topic: topic, Key: []byte(lineKey(i)), Value: []byte(line(i))}, nil)
		}
		require.NoError(t, cl.Flush(t.Context()))
		cl.Close()
		return
	}
	path := filepath.Join(t.TempDir(), "lines")
	f, err := os.Create(path)
	require.NoError(t, err)
	w := bufio.NewWriter(f)
	for i := range lines {
		fmt.Fprintf(w, "%s\t%s\n", lineKey(i), line(i))
	}
	require.NoError(t, w.Flush())
	require.NoError(t, f.Close())
	out, err := exec.Command(kcat, "-P", "-b", addr, "-t", topic, "-K", "\t", "-X", "enable.idempotence=true", "-l", path).CombinedOutput()
	require.NoError(t, err, "kcat: %s", out)
}

func kafkaClient(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.AllowAutoTopicCreation()}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// workers are three Readers that share the partition.
type workers struct {
	t    *testing.T
	all  []*worker
	rest context.CancelFunc // ends polling
	die  context.CancelFunc // ends committing too
	wg   sync.WaitGroup
}

// startWorkers starts them. They commit the records that commit says yes to, one in ten
// of them late.
func startWorkers(t *testing.T, addr, topic, group string, tally *tally, commit func(offset int64) bool) *workers {
	t.Helper()
	ws := &workers{t: t}
	ctx, die := context.WithCancel(t.Context())
	polling, rest := context.WithCancel(ctx)
	ws.die, ws.rest = die, rest
	for i, slots := range []client.SlotRange{{Lo: 0, Hi: 21844}, {Lo: 21845, Hi: 43690}, {Lo: 43691, Hi: 65535}} {
		r, err := client.OpenReader(t.Context(), client.SeedBrokers(addr), client.Group(group), client.Topics(topic),
			client.Slots(slots), client.FetchMaxPartitionBytes(64<<10))
		require.NoError(t, err)
		w := &worker{r: r, tally: tally, commit: commit, rng: rand.New(rand.NewPCG(1, uint64(i)))}
		ws.all = append(ws.all, w)
		ws.wg.Go(func() { w.run(ctx, polling) })
	}
	t.Cleanup(ws.abandon)
	return ws
}

// abandon ends the workers without an answer to what they asked, as when they are killed.
func (ws *workers) abandon() {
	ws.die()
	ws.wg.Wait()
	ended, end := context.WithCancel(context.Background())
	end()
	for _, w := range ws.all {
		w.r.Close(ended)
	}
}

// finish waits until the workers have seen the whole log, commits what they hold, and
// closes them.
func (ws *workers) finish(end int64) {
	require.Eventually(ws.t, func() bool {
		return !slices.ContainsFunc(ws.all, func(w *worker) bool {
			return !w.r.Status()[0].Past(end)
		})
	}, wire.Patience, time.Millisecond, "the Readers did not come to the end")
	ws.rest()
	ws.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), wire.Patience)
	defer cancel()
	for _, w := range ws.all {
		w.commitLate(ctx, 0)
		require.NoError(ws.t, w.r.Close(ctx))
	}
}

// worker handles the records of one Reader.
type worker struct {
	r      *client.Reader
	tally  *tally
	commit func(offset int64) bool
	rng    *rand.Rand
	late   []*kgo.Record
}

// run handles records until polling ends.
func (w *worker) run(ctx, polling context.Context) {
	for {
		records, err := w.r.Poll(polling)
		if polling.Err() != nil && len(records) == 0 {
			return
		}
		if err != nil {
			w.tally.fault("poll: %v", err)
			return
		}
		for some := range slices.Chunk(records, 200) {
			w.handle(ctx, some)
		}
	}
}

// handle commits records at once, but for one in ten, which it commits when there are
// many such.
func (w *worker) handle(ctx context.Context, records []*kgo.Record) {
	var now []*kgo.Record
	for _, r := range records {
		w.tally.deliver(r)
		switch {
		case !w.commit(r.Offset):
		case w.rng.IntN(10) == 0:
			w.late = append(w.late, r)
		default:
			now = append(now, r)
		}
	}
	w.commitAll(ctx, now)
	w.commitLate(ctx, 100)
}

// commitLate commits late records in any order and one by one, until only so many are
// left.
func (w *worker) commitLate(ctx context.Context, keep int) {
	w.rng.Shuffle(len(w.late), func(i, j int) { w.late[i], w.late[j] = w.late[j], w.late[i] })
	for len(w.late) > keep {
		n := len(w.late) - 1
		if !w.commitAll(ctx, w.late[n:]) {
			return
		}
		w.late = w.late[:n]
	}
}

func (w *worker) commitAll(ctx context.Context, records []*kgo.Record) bool {
	w.tally.ask(records)
	if err := w.r.Commit(ctx, records...); err != nil {
		return false // as much as nothing is known of it
	}
	w.tally.answer(records)
	return true
}

// committedOffsets is what the ledger of a group says of each offset.
func committedOffsets(t *testing.T, addr, topic, group string, end int) []bool {
	t.Helper()
	admin, err := client.NewAdmin(client.SeedBrokers(addr))
	require.NoError(t, err)
	defer admin.Close()
	ledgers, err := admin.Describe(t.Context(), group, topic)
	require.NoError(t, err)
	require.Len(t, ledgers, 1)
	require.NoError(t, ledgers[0].Err)
	require.EqualValues(t, end, ledgers[0].LogEnd)
	committed := make([]bool, end)
	for offset := range ledgers[0].MaxCommit {
		committed[offset] = true
	}
	open := int64(0)
	for gap, err := range admin.Gaps(t.Context(), group, topic, 0, 0) {
		require.NoError(t, err)
		require.GreaterOrEqual(t, gap.Start, ledgers[0].Stable)
		for offset := gap.Start; offset < gap.End; offset++ {
			committed[offset] = false
			open++
		}
	}
	require.Equal(t, ledgers[0].Open, open)
	return committed
}

// consumeFrom lets a stock consumer join the group and checks that it begins at an offset
// and reads every record from there on.
func consumeFrom(t *testing.T, addr, topic, group string, start int64, end int) {
	t.Helper()
	cl := kafkaClient(t, addr, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic))
	defer cl.Close()
	for next := start; next < int64(end); {
		ctx, cancel := context.WithTimeout(t.Context(), wire.Patience)
		fetches := cl.PollFetches(ctx)
		cancel()
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			require.Equal(t, next, r.Offset, "a stock consumer of the group")
			require.Equal(t, line(int(next)), string(r.Value))
			next++
		})
	}
}
