package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/tests/wire"
)

const (
	jobTopic = "orders"
	jobGroup = "billing"
)

// The job that Lacuna is for: keyed lines in one partition, three readers that share it by
// key range and commit record by record, one in ten late and out of order; kill -9 in the
// middle; and exactly the gaps that were there.
func TestTheMainJob(t *testing.T) {
	lines := int64(scaled(20_000, 200_000))
	dir := t.TempDir()
	broker := startProcess(t, dir)
	writeLines(t, broker.addr, lines)

	left := lines - 7 // stays open to the end
	before := newJob(lines, left)
	readers := before.read(t, broker.addr)
	before.awaitAnswered(t, lines/2)
	broker.kill()
	before.stop()
	closeReaders(readers)
	require.Empty(t, before.twice, "before the crash each record is delivered once")
	require.Less(t, int64(len(before.answered)), lines, "the broker was killed in the middle")

	broker = startProcess(t, dir)
	committed := committedOffsets(t, broker.addr)
	for offset := range before.answered {
		require.True(t, committed[offset], "offset %d: a commit that was answered is in the ledger", offset)
	}

	after := newJob(lines, left)
	readers = after.read(t, broker.addr)
	after.awaitDelivered(t, lines-int64(len(committed)))
	after.awaitAnswered(t, lines-int64(len(committed))-1)
	after.stop()
	closeReaders(readers)
	require.Empty(t, after.twice)
	for offset := range after.delivered {
		require.False(t, committed[offset], "offset %d: what is committed is not read again", offset)
	}
	for offset := range lines {
		require.True(t, committed[offset] || after.delivered[offset], "offset %d: everything else is", offset)
	}

	stock, err := kgo.NewClient(kgo.SeedBrokers(broker.addr), kgo.ConsumerGroup(jobGroup), kgo.ConsumeTopics(jobTopic))
	require.NoError(t, err)
	defer stock.Close()
	ctx, cancel := context.WithTimeout(t.Context(), wire.Patience)
	defer cancel()
	fetches := stock.PollFetches(ctx)
	require.NoError(t, fetches.Err())
	require.Equal(t, left, fetches.Records()[0].Offset, "a stock consumer starts at the stable offset")
}

// writeLines writes keyed lines into one partition, with kcat where it is installed.
func writeLines(t *testing.T, addr string, lines int64) {
	t.Helper()
	if path, err := exec.LookPath("kcat"); err == nil {
		var input strings.Builder
		for i := range lines {
			fmt.Fprintf(&input, "order-%d:line %d\n", i%5000, i)
		}
		cmd := exec.Command(path, "-P", "-b", addr, "-t", jobTopic, "-K:", "-X", "enable.idempotence=true")
		cmd.Stdin = strings.NewReader(input.String())
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	producer, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(jobTopic), kgo.AllowAutoTopicCreation())
	require.NoError(t, err)
	defer producer.Close()
	for i := range lines {
		producer.Produce(t.Context(), &kgo.Record{Key: fmt.Appendf(nil, "order-%d", i%5000), Value: fmt.Appendf(nil, "line %d", i)},
			func(_ *kgo.Record, err error) { require.NoError(t, err) })
	}
	require.NoError(t, producer.Flush(t.Context()))
}

// job is what three readers do and see.
type job struct {
	lines int64
	leave int64 // an offset that is never committed

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	changed   *sync.Cond
	delivered map[int64]bool
	twice     []int64
	answered  map[int64]bool // their commit was answered
}

func newJob(lines, leave int64) *job {
	j := &job{lines: lines, leave: leave, delivered: make(map[int64]bool), answered: make(map[int64]bool)}
	j.changed = sync.NewCond(&j.mu)
	j.ctx, j.cancel = context.WithCancel(context.Background())
	return j
}

// read starts three readers with a third of the slots each.
func (j *job) read(t *testing.T, addr string) []*client.Reader {
	t.Helper()
	var readers []*client.Reader
	for _, slots := range []client.SlotRange{{Lo: 0, Hi: 21844}, {Lo: 21845, Hi: 43689}, {Lo: 43690, Hi: 65535}} {
		reader, err := client.OpenReader(t.Context(), client.SeedBrokers(addr), client.Group(jobGroup), client.Topics(jobTopic), client.Slots(slots))
		require.NoError(t, err)
		readers = append(readers, reader)
		j.wg.Go(func() { j.work(reader) })
	}
	return readers
}

// work handles what a reader delivers: nine records in ten are committed at once, the
// tenth by commitLate.
func (j *job) work(reader *client.Reader) {
	late := make(chan *kgo.Record, j.lines)
	j.wg.Go(func() { j.commitLate(reader, late) })
	defer close(late)
	for {
		records, err := reader.Poll(j.ctx)
		if err != nil {
			return
		}
		now := records[:0:0]
		for _, r := range records {
			j.deliver(r.Offset)
			switch {
			case r.Offset == j.leave:
			case r.Offset%10 == 3:
				late <- r
			default:
				now = append(now, r)
			}
		}
		j.commit(reader, now)
	}
}

// commitLate commits what has gathered meanwhile, the last first.
func (j *job) commitLate(reader *client.Reader, late <-chan *kgo.Record) {
	for r := range late {
		records := []*kgo.Record{r}
		for range len(late) {
			records = append(records, <-late)
		}
		slices.Reverse(records)
		j.commit(reader, records)
	}
}

// commit commits records, and notes it if the answer comes.
func (j *job) commit(reader *client.Reader, records []*kgo.Record) {
	if len(records) == 0 || reader.Commit(j.ctx, records...) != nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range records {
		j.answered[r.Offset] = true
	}
	j.changed.Broadcast()
}

func (j *job) deliver(offset int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.delivered[offset] {
		j.twice = append(j.twice, offset)
	}
	j.delivered[offset] = true
	j.changed.Broadcast()
}

// await waits until count reaches n.
func (j *job) await(t *testing.T, what string, n int64, count func() int) {
	t.Helper()
	late := time.AfterFunc(10*wire.Patience, func() {
		j.cancel()
		j.changed.Broadcast()
	})
	defer late.Stop()
	j.mu.Lock()
	defer j.mu.Unlock()
	for int64(count()) < n && j.ctx.Err() == nil {
		j.changed.Wait()
	}
	require.GreaterOrEqual(t, int64(count()), n, what)
}

func (j *job) awaitAnswered(t *testing.T, n int64) {
	t.Helper()
	j.await(t, "records committed", n, func() int { return len(j.answered) })
}

func (j *job) awaitDelivered(t *testing.T, n int64) {
	t.Helper()
	j.await(t, "records delivered", n, func() int { return len(j.delivered) })
}

// stop ends the work; nothing changes afterwards.
func (j *job) stop() {
	j.cancel()
	j.wg.Wait()
}

// closeReaders closes readers whose work has stopped. Of what they have not committed
// they may complain.
func closeReaders(readers []*client.Reader) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, r := range readers {
		_ = r.Close(ctx)
	}
}

// committedOffsets are those that are in the ledger, by what `lacuna groups gaps` says.
func committedOffsets(t *testing.T, addr string) map[int64]bool {
	t.Helper()
	out, err := exec.Command(lacuna(t), "groups", "gaps", jobGroup, "-b", addr, "-o", "json", "--limit", "0").Output()
	require.NoError(t, err)
	var ledger struct {
		MaxCommit int64 `json:"max_commit"`
		Window    []struct {
			First int64 `json:"first"`
			Last  int64 `json:"last"`
		} `json:"window"`
	}
	require.NoError(t, json.Unmarshal(out, &ledger), "%s", out)
	committed := make(map[int64]bool)
	for offset := range ledger.MaxCommit {
		committed[offset] = true
	}
	for _, gap := range ledger.Window {
		for offset := gap.First; offset <= gap.Last; offset++ {
			delete(committed, offset)
		}
	}
	return committed
}
