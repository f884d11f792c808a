package txncoordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lacunamq/lacuna/broker/transaction"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

func TestTransactionFromBeginToEnd(t *testing.T) {
	r := newRig(t)
	p := r.init("a")
	r.write("a", p, tp0, tp1)
	require.Equal(t, transaction.Ongoing, r.status("a"))
	next, err := r.end("a", p, true)
	require.NoError(t, err)
	require.Equal(t, transaction.Producer{ID: p.ID, Epoch: p.Epoch + 1}, next)
	require.Equal(t, transaction.CompleteCommit, r.status("a"))
	marker := protocol.EndTxnMarker{ProducerID: p.ID, ProducerEpoch: next.Epoch, Commit: true}
	require.Equal(t, []written{{tp0, marker}, {tp1, marker}}, r.markers.take())

	_, err = r.c.BeginWrite(context.Background(), adding("a", p, tp0), true)
	require.ErrorIs(t, err, kerr.ProducerFenced, "the epoch was that of the transaction before")
	r.write("a", next, tp0)
}

func TestEndIsAnsweredWhenMarkersAreDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		p := r.init("a")
		r.write("a", p, tp0)
		hold := make(chan struct{})
		r.markers.set(hold, nil)
		end := later(func() (transaction.Producer, error) { return r.end("a", p, true) })
		synctest.Wait()
		requireWaits(t, end)
		require.Equal(t, transaction.PrepareCommit, r.status("a"))
		close(hold)
		require.NoError(t, (<-end).err)
		require.Equal(t, transaction.CompleteCommit, r.status("a"))
	})
}

// TestWhatIsWrittenToAgain is in the next transaction from its beginning, and once more only
// if it is written to there.
func TestWhatIsWrittenToAgain(t *testing.T) {
	r := newRig(t)
	p := r.init("a")
	again := func(p transaction.Producer, tp transaction.TopicPartition) {
		req := adding("a", p, tp)
		req.Again = true
		w, err := r.c.BeginWrite(context.Background(), req, true)
		require.NoError(t, err)
		w.Done()
	}
	logged := func() int64 { return r.Logs[1].Bounds().End }
	ending := func(want ...transaction.TopicPartition) {
		var err error
		p, err = r.end("a", p, true)
		require.NoError(t, err)
		var at []transaction.TopicPartition
		for _, m := range r.markers.take() {
			at = append(at, m.TopicPartition)
		}
		require.Equal(t, want, at)
	}
	again(p, tp1)
	r.write("a", p, tp0)
	ending(tp0, tp1)
	for range 2 {
		r.write("a", p, tp0)
		before := logged()
		again(p, tp1)
		require.Equal(t, before, logged(), "no record of its own")
		ending(tp0, tp1)
	}
	r.write("a", p, tp0)
	ending(tp0, tp1)
	r.write("a", p, tp0)
	ending(tp0)
}

// TestNobodyWaitsForTheLastRecord of a transaction, but its successor, and it becomes durable
// soon all the same.
func TestNobodyWaitsForTheLastRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		p := r.init("a")
		r.write("a", p, tp0)
		p, err := r.end("a", p, true)
		require.NoError(t, err)
		synctest.Wait()
		bounds := func() commitlog.Bounds { return r.Logs[1].Bounds() }
		require.Less(t, bounds().HighWatermark, bounds().End)
		r.write("a", p, tp0)
		require.Equal(t, bounds().End, bounds().HighWatermark)
		_, err = r.end("a", p, false)
		require.NoError(t, err)
		time.Sleep(long)
		synctest.Wait()
		require.Equal(t, bounds().End, bounds().HighWatermark)
	})
}

func TestMarkersThatFailAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		p := r.init("a")
		r.write("a", p, tp0)
		r.markers.set(nil, errors.New("no space"))
		next, err := r.end("a", p, false)
		require.NoError(t, err, "the outcome is decided")
		require.Equal(t, transaction.PrepareAbort, r.status("a"))
		_, err = r.c.BeginWrite(context.Background(), adding("a", next, tp0), true)
		require.ErrorIs(t, err, kerr.ConcurrentTransactions)
		r.markers.set(nil, nil)
		time.Sleep(retryAfter)
		synctest.Wait()
		require.Equal(t, transaction.CompleteAbort, r.status("a"))
		r.write("a", next, tp0)
	})
}

func TestMarkersWaitForWhoWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		p := r.init("a")
		w, err := r.c.BeginWrite(context.Background(), adding("a", p, tp0), true)
		require.NoError(t, err)
		end := later(func() (transaction.Producer, error) { return r.end("a", p, true) })
		synctest.Wait()
		require.Empty(t, r.markers.take(), "the append may come behind its marker")
		requireWaits(t, end)
		w.Done()
		require.NoError(t, (<-end).err)
		require.Len(t, r.markers.take(), 1)
	})
}

func TestWriteWaitsForTheEndBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		p := r.init("a")
		r.write("a", p, tp0)
		hold := make(chan struct{})
		r.markers.set(hold, nil)
		end := later(func() (transaction.Producer, error) { return r.end("a", p, true) })
		synctest.Wait()
		write := later(func() (*Write, error) {
			return r.c.BeginWrite(context.Background(), adding("a", transaction.Producer{ID: p.ID, Epoch: p.Epoch + 1}, tp1), true)
		})
		synctest.Wait()
		requireWaits(t, write)
		close(hold)
		require.NoError(t, (<-end).err)
		wrote := <-write
		require.NoError(t, wrote.err)
		wrote.value.Done()
	})
}

func TestFirstVersionVerifies(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	p := r.init("a")
	req := adding("a", p, tp0)
	req.Version = 1
	_, err := r.c.BeginWrite(ctx, req, false)
	require.ErrorIs(t, err, kerr.TransactionAbortable)
	require.NoError(t, r.c.AddPartitions(ctx, req))
	w, err := r.c.BeginWrite(ctx, req, false)
	require.NoError(t, err)
	w.Done()
	_, err = r.c.End(ctx, &transaction.EndRequest{TransactionalID: "a", Producer: p, Version: 1, Commit: true})
	require.NoError(t, err)
	_, err = r.c.BeginWrite(ctx, req, false)
	require.Error(t, err, "that transaction is over")
}

func TestRestartGoesOnEnding(t *testing.T) {
	r := newRig(t)
	p := r.init("a")
	r.write("a", p, tp0)
	r.markers.set(nil, errors.New("no space"))
	_, err := r.end("a", p, true)
	require.NoError(t, err)
	r.stop()
	r.markers.set(nil, nil)
	r.markers.take()
	r.start()
	// The retry of a client meets the end, or what came of it.
	require.Eventually(t, func() bool { return r.status("a") == transaction.CompleteCommit }, 10*time.Second, time.Millisecond)
	require.Equal(t, []written{{tp0, protocol.EndTxnMarker{ProducerID: p.ID, ProducerEpoch: p.Epoch + 1, Commit: true}}}, r.markers.take())
	_, err = r.end("a", p, true)
	require.NoError(t, err)
}

func TestNewProducerAbortsWhatItFindsOpen(t *testing.T) {
	r := newRig(t)
	old := r.init("a")
	r.write("a", old, tp0)
	now := r.init("a")
	require.Equal(t, transaction.Producer{ID: old.ID, Epoch: old.Epoch + 2}, now, "one to fence, one for itself")
	require.Equal(t, []written{{tp0, protocol.EndTxnMarker{ProducerID: old.ID, ProducerEpoch: old.Epoch + 1}}}, r.markers.take())
	_, err := r.end("a", old, true)
	require.ErrorIs(t, err, kerr.ProducerFenced)
}

func TestTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		p := r.init("a")
		q := r.init("bb")
		r.write("bb", q, tp1)
		time.Sleep(30 * time.Second)
		r.write("a", p, tp0)
		time.Sleep(40 * time.Second)
		synctest.Wait()
		require.Equal(t, transaction.CompleteAbort, r.status("bb"))
		require.Equal(t, transaction.Ongoing, r.status("a"), "its time runs from its own beginning")
		_, err := r.end("bb", q, true)
		require.ErrorIs(t, err, kerr.InvalidTxnState)
		r.restart()
		time.Sleep(20*time.Second + maxTick)
		synctest.Wait()
		require.Equal(t, transaction.CompleteAbort, r.status("a"), "a restart does not stop the time")
	})
}

func TestUnusedIDsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		r.init("a")
		time.Sleep(r.config.IDExpiration + long)
		synctest.Wait()
		_, found, err := r.c.Describe(context.Background(), "a")
		require.NoError(t, err)
		require.False(t, found)
	})
}

func TestNothingIsLeftOfWhoWrote(t *testing.T) {
	r := newRig(t)
	p := r.init("a")
	for range 3 {
		r.write("a", p, tp0)
		next, err := r.end("a", p, true)
		require.NoError(t, err)
		p = next
	}
	c := r.c
	r.stop()
	for _, s := range c.shards {
		require.Empty(t, s.mu.live)
	}
}

// TestManyAtOnce lets producers loose on a few ids, for the race detector. Whoever is not
// fenced sees each of its transactions end as it asked.
func TestManyAtOnce(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	var producers sync.WaitGroup
	for i := range 12 {
		id := fmt.Sprintf("%0*d", 1+i%3, 0)
		producers.Go(func() {
			for range 10 {
				p, err := r.c.InitProducerID(ctx, &transaction.InitRequest{TransactionalID: id, TimeoutMs: 60_000, Expected: transaction.None})
				if err != nil {
					requireContention(t, err)
					continue
				}
				for n := range 5 {
					w, err := r.c.BeginWrite(ctx, adding(id, p, tp0, tp1), true)
					if err != nil {
						requireContention(t, err)
						break
					}
					w.Done()
					if p, err = r.end(id, p, n%2 == 0); err != nil {
						requireContention(t, err)
						break
					}
				}
			}
		})
	}
	producers.Wait()
}

func requireContention(t *testing.T, err error) {
	for _, expected := range []*kerr.Error{kerr.ProducerFenced, kerr.ConcurrentTransactions} {
		if errors.Is(err, expected) {
			return
		}
	}
	t.Error(err)
}
