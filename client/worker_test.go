package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// withShares runs a test against a cluster with a share group, in a bubble of its own time.
func withShares(t *testing.T, test func(t *testing.T, c *cluster, f *fakeShare)) {
	withCluster(t, func(t *testing.T, c *cluster) {
		f := c.serveShares()
		test(t, c, f)
	})
}

// work opens a Worker of group g on topic t, and closes it when the test ends.
func (c *cluster) work(handler Handler, opts ...WorkerOpt) *Worker {
	c.t.Helper()
	w, err := OpenWorker(c.t.Context(), handler, append([]WorkerOpt{c.kafka(), Group("g"), Topics("t")}, opts...)...)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { w.Close(context.Background()) })
	return w
}

// journal notes what handlers saw, in order.
type journal struct {
	mu   sync.Mutex
	seen []string
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seen = append(j.seen, fmt.Sprintf(format, args...))
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.seen)
}

func keys(n, distinct int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint("key-", i%distinct))
	}
	return out
}

func TestWorkerAcceptsWhatItsHandlerReturnsNilFor(t *testing.T) {
	withShares(t, func(t *testing.T, c *cluster, f *fakeShare) {
		c.produce("t", 0, keys(100, 7)...)
		var j journal
		var recorded journal
		w := c.work(func(_ context.Context, r *ShareRecord) error {
			require.Equal(t, 1, r.DeliveryCount)
			require.Equal(t, "value", string(r.Value))
			j.note("%d", r.Offset)
			return nil
		}, Hooks(WorkerHooks{Acknowledged: func(r *ShareRecord, o Outcome) { recorded.note("%d %v", r.Offset, o) }}))
		time.Sleep(time.Second)
		require.Len(t, j.all(), 100)
		require.Len(t, recorded.all(), 100)
		require.Equal(t, 100, f.states("acknowledged"))
		require.NoError(t, w.Close(t.Context()))
		require.Equal(t, []string{w.member}, f.left)
		acks := f.asked(kmsg.ShareAcknowledge)
		require.EqualValues(t, finalEpoch, acks[len(acks)-1].epoch)
		require.Zero(t, f.states("acquired"))
		require.NoError(t, w.Close(t.Context()), "closing again does nothing")
	})
}

func TestWorkerReleasesAndRejects(t *testing.T) {
	withShares(t, func(t *testing.T, c *cluster, f *fakeShare) {
		c.produce("t", 0, "fine", "flaky", "bad", "hopeless")
		var j journal
		c.work(func(_ context.Context, r *ShareRecord) error {
			j.note("%s %d", r.Key, r.DeliveryCount)
			switch {
			case string(r.Key) == "bad":
				return fmt.Errorf("wrapped: %w", Reject(errors.New("cannot be parsed")))
			case string(r.Key) == "flaky" && r.DeliveryCount < 3, string(r.Key) == "hopeless":
				return errors.New("later")
			}
			return nil
		}, Concurrency(1))
		time.Sleep(10 * time.Second)
		seen := j.all()
		slices.Sort(seen)
		require.Equal(t, []string{"bad 1", "fine 1", "flaky 1", "flaky 2", "flaky 3", "hopeless 1", "hopeless 2", "hopeless 3", "hopeless 4", "hopeless 5"}, seen)
		require.Equal(t, 2, f.states("acknowledged"))
		require.Equal(t, 2, f.states("archived"))
	})
}

// An acknowledgement does not wait for the fetch that waits for records.
func TestWorkerAcknowledgesBesideALongPoll(t *testing.T) {
	withShares(t, func(t *testing.T, c *cluster, f *fakeShare) {
		began := time.Now()
		var j journal
		c.work(func(context.Context, *ShareRecord) error { time.Sleep(time.Second); return nil }, FetchMaxWait(time.Hour),
			Hooks(WorkerHooks{Acknowledged: func(r *ShareRecord, _ Outcome) { j.note("%d %v", r.Offset, time.Since(began).Round(time.Second)) }}))
		synctest.Wait()
		c.produce("t", 0, "a")
		time.Sleep(10 * time.Second)
		c.produce("t", 0, "b")
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"0 1s", "1 11s"}, j.all())
	})
}

// The broker takes an acknowledgement only after the fetch that was sent before; one that
// overtakes it is sent again.
func TestWorkerWhoseAcknowledgementOvertakesAFetch(t *testing.T) {
	withShares(t, func(t *testing.T, c *cluster, f *fakeShare) {
		c.intercept = func(_ int32, req kmsg.Request) (kmsg.Response, bool) {
			if req, ok := req.(*kmsg.ShareFetchRequest); ok && req.ShareSessionEpoch > 0 {
				time.Sleep(20 * time.Millisecond) // it travels slowly
			}
			return nil, false
		}
		var failed journal
		c.produce("t", 0, keys(20, 20)...)
		c.work(func(context.Context, *ShareRecord) error { time.Sleep(5 * time.Millisecond); return nil }, Concurrency(4), FetchMaxWait(time.Minute),
			Hooks(WorkerHooks{Failed: func(err error) { failed.note("%v", err) }}))
		time.Sleep(time.Minute)
		require.Equal(t, 20, f.states("acknowledged"))
		require.Positive(t, f.refusedEpochs, "the test does not provoke what it is about")
		require.Empty(t, failed.all())
	})
}

func TestWorkerRenewsWhileAHandlerIsAtWork(t *testing.T) {
	withShares(t, func(t *testing.T, c *cluster, f *fakeShare) {
		c.produce("t", 0, "slow", "queued", "quick")
		var j journal
		c.work(func(ctx context.Context, r *ShareRecord) error {
			j.note("%s %d", r.Key, r.DeliveryCount)
			if string(r.Key) == "slow" {
				time.Sleep(10 * time.Minute)
			}
			require.NoError(t, ctx.Err())
			return nil
		}, Concurrency(1), KeyOrder(false), Hooks(WorkerHooks{Renewed: func(r *ShareRecord) { j.note("renew %s", r.Key) }}))
		time.Sleep(9 * time.Minute)
		require.Greater(t, len(j.all()), 20)
		require.Less(t, len(j.all()), 50)
		require.Equal(t, 1, f.states("acquired"), "what is not begun is left to others")
		time.Sleep(2 * time.Minute)
		require.Equal(t, 3, f.states("acknowledged"))
		require.Contains(t, j.all(), "quick 1")
	})
}

// When a lock can not be renewed, the handler is told at its end, and the record comes again.
func TestWorkerThatLosesALock(t *testing.T) {
	withShares(t, func(t *testing.T, c *cluster, f *fakeShare) {
		c.produce("t", 0, "a", "b")
		f.refuse = func(kind ackKind, first, last int64) *kerr.Error {
			if kind == ackRenew && first <= 1 && last >= 1 {
				return kerr.InvalidRecordState
			}
			return nil
		}
		began := time.Now()
		var j journal
		c.work(func(ctx context.Context, r *ShareRecord) error {
			if r.DeliveryCount > 1 {
				j.note("%s again", r.Key)
				return nil
			}
			select {
			case <-ctx.Done():
				j.note("%s lost after %v: %v", r.Key, time.Since(began).Round(time.Second), context.Cause(ctx) == ErrLockLost)
				return nil
			case <-time.After(time.Minute):
				return nil
			}
		}, Hooks(WorkerHooks{
			Lost:         func(r *ShareRecord, o Outcome, _ error) { j.note("%s is lost, %v", r.Key, o) },
			Acknowledged: func(r *ShareRecord, _ Outcome) { j.note("%s acknowledged", r.Key) },
		}))
		time.Sleep(2 * time.Minute)
		seen := j.all()
		slices.Sort(seen)
		require.Equal(t, []string{"a acknowledged", "b acknowledged", "b again", "b is lost, unfinished", "b lost after 30s: true"}, seen)
		require.Equal(t, 2, f.states("acknowledged"))
	})
}

// An acknowledgement that is refused fails nothing but itself.
func TestWorkerWhoseAcknowledgementIsRefused(t *testing.T) {
	withShares(t, func(t *testing.T, c *cluster, f *fakeShare) {
		c.produce("t", 0, keys(100, 100)...)
		refusals := 0
		f.refuse = func(kind ackKind, first, last int64) *kerr.Error {
			if kind == ackAccept && first <= 42 && 42 <= last {
				refusals++
				return kerr.InvalidRecordState
			}
			return nil
		}
		var lost journal
		start := make(chan struct{})
		c.work(func(context.Context, *ShareRecord) error { <-start; return nil }, Concurrency(100),
			Hooks(WorkerHooks{Lost: func(r *ShareRecord, o Outcome, err error) {
				lost.note("%d %v: %v", r.Offset, o, errors.Is(err, kerr.InvalidRecordState))
			}}))
		time.Sleep(time.Second)
		close(start)
		time.Sleep(time.Second)
		require.Equal(t, 99, f.states("acknowledged"))
		require.Equal(t, []string{"42 accepted: true"}, lost.all())
		require.Greater(t, refusals, 2)
	})
}

// What a worker asks for never exceeds what it has room for.
func TestWorkerHoldsNoMoreThanItMay(t *testing.T) {
	withShares(t, func(t *testing.T, c *cluster, f *fakeShare) {
		c.produce("t", 0, keys(500, 500)...)
		most := 0
		c.work(func(context.Context, *ShareRecord) error {
			most = max(most, f.states("acquired"))
			time.Sleep(7 * time.Millisecond)
			return nil
		}, Concurrency(1), MaxRecords(20))
		time.Sleep(time.Minute)
		require.Equal(t, 500, f.states("acknowledged"))
		require.LessOrEqual(t, most, 20+20/2, "handled and not acknowledged included")
		require.Greater(t, most, 10)
		require.Less(t, len(f.asked(kmsg.ShareFetch)), 250, "one fetch for several records")
	})
}

// The connection breaks while handlers are at work: what they do is not recorded, and the
// records come again, as often as it takes.
func TestWorkerWhoseConnectionBreaks(t *testing.T) {
	withShares(t, func(t *testing.T, c *cluster, f *fakeShare) {
		c.produce("t", 0, keys(50, 50)...)
		var told, lost journal
		w := c.work(func(ctx context.Context, r *ShareRecord) error {
			select {
			case <-ctx.Done():
				told.note("%v", errors.Is(context.Cause(ctx), ErrLockLost))
			case <-time.After(time.Duration(r.Offset%5+1) * 400 * time.Millisecond):
			}
			return nil
		}, Concurrency(5), Hooks(WorkerHooks{Lost: func(r *ShareRecord, o Outcome, _ error) { lost.note("%v", o) }}))
		for range 3 {
			time.Sleep(2500 * time.Millisecond)
			c.setDown(true)
			time.Sleep(3 * time.Second)
			c.setDown(false)
		}
		time.Sleep(2 * time.Minute)
		require.Equal(t, 50, f.states("acknowledged"))
		require.Contains(t, told.all(), "true")
		require.NotContains(t, told.all(), "false")
		require.Contains(t, lost.all(), "accepted")
		require.Contains(t, lost.all(), "unfinished")
		require.NoError(t, w.Status().Trouble)
	})
}

func TestWorkerThatIsFenced(t *testing.T) {
	withShares(t, func(t *testing.T, c *cluster, f *fakeShare) {
		c.produce("t", 0, keys(10, 10)...)
		w := c.work(func(context.Context, *ShareRecord) error { time.Sleep(time.Second); return nil }, Concurrency(1))
		time.Sleep(1500 * time.Millisecond)
		f.with(func() {
			clear(f.members)
			for member, s := range f.session {
				f.end(member, s)
			}
		})
		time.Sleep(time.Minute)
		require.Equal(t, 10, f.states("acknowledged"))
		require.Contains(t, f.members, w.member)
	})
}

// Records with the same key come one after the other, whatever fails.
func TestWorkerKeepsTheOrderOfKeys(t *testing.T) {
	withShares(t, func(t *testing.T, c *cluster, f *fakeShare) {
		f.mode = "key-ordered"
		f.limit = 100
		const distinct = 5
		c.produce("t", 0, keys(200, distinct)...)
		var mu sync.Mutex
		running := make(map[string]bool)
		done := make(map[string]int64)
		tries := 0
		c.work(func(_ context.Context, r *ShareRecord) error {
			key := string(r.Key)
			mu.Lock()
			defer mu.Unlock()
			require.False(t, running[key], "%s is handled twice at a time", key)
			running[key] = true
			tries++
			fail := tries%7 == 0
			mu.Unlock()
			time.Sleep(3 * time.Millisecond)
			mu.Lock()
			running[key] = false
			if fail {
				return errors.New("now and then")
			}
			if last, ok := done[key]; ok {
				require.Equal(t, last+distinct, r.Offset, "of %s", key)
			}
			done[key] = r.Offset
			return nil
		}, Concurrency(8))
		time.Sleep(time.Minute)
		require.Equal(t, 200, f.states("acknowledged"))
		require.Greater(t, tries, 220)
	})
}

func TestWorkerCloseLetsHandlersFinish(t *testing.T) {
	withShares(t, func(t *testing.T, c *cluster, f *fakeShare) {
		c.produce("t", 0, keys(30, 30)...)
		w := c.work(func(context.Context, *ShareRecord) error { time.Sleep(10 * time.Second); return nil }, Concurrency(10), FetchMaxWait(time.Hour))
		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(t, w.Close(t.Context()))
		require.Equal(t, 9*time.Second, time.Since(began).Round(100*time.Millisecond))
		require.Equal(t, 10, f.states("acknowledged"))
		require.Zero(t, f.states("acquired"))
	})
}

func TestWorkerCloseLosesPatience(t *testing.T) {
	withShares(t, func(t *testing.T, c *cluster, f *fakeShare) {
		c.produce("t", 0, keys(30, 30)...)
		var j journal
		w := c.work(func(ctx context.Context, r *ShareRecord) error {
			if r.Offset == 0 {
				return nil
			}
			<-ctx.Done()
			j.note("%v", context.Cause(ctx) == ErrWorkerClosed)
			return ctx.Err()
		}, Concurrency(3))
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, w.Close(ctx), context.DeadlineExceeded)
		require.Equal(t, []string{"true", "true", "true"}, j.all())
		require.Equal(t, 1, f.states("acknowledged"))
		require.Zero(t, f.states("acquired"))
		require.Len(t, f.left, 1)
	})
}

func TestWorkerRunEndsWithItsContext(t *testing.T) {
	withShares(t, func(t *testing.T, c *cluster, f *fakeShare) {
		c.produce("t", 0, "a")
		w := c.work(func(context.Context, *ShareRecord) error { time.Sleep(3 * time.Second); return nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, w.Run(ctx))
		require.Equal(t, 1, f.states("acknowledged"))
		require.NoError(t, w.Run(t.Context()))
	})
}

func TestWorkerOfSomeKeys(t *testing.T) {
	withShares(t, func(t *testing.T, c *cluster, f *fakeShare) {
		c.produce("t", 0, keys(20, 4)...)
		var j journal
		c.work(func(_ context.Context, r *ShareRecord) error { j.note("%s", r.Key); return nil }, Keys([]byte("key-1")))
		time.Sleep(time.Second)
		require.Equal(t, []string{"key-1", "key-1", "key-1", "key-1", "key-1"}, j.all())
	})
}

func TestWorkerNeedsWhatItsOptionsNeed(t *testing.T) {
	withShares(t, func(t *testing.T, c *cluster, f *fakeShare) {
		nothing := func(context.Context, *ShareRecord) error { return nil }
		open := func(opts ...WorkerOpt) error {
			_, err := OpenWorker(t.Context(), nothing, append([]WorkerOpt{c.kafka(), Group("g")}, opts...)...)
			return err
		}
		require.ErrorContains(t, open(), "client.Topics")
		require.ErrorContains(t, open(Topics("t"), Concurrency(0)), "concurrency")
		require.ErrorIs(t, open(Topics("nope")), kerr.UnknownTopicOrPartition)
		c.features = slices.DeleteFunc(c.features, func(f string) bool { return f == protocol.FeatureKeyFilter })
		var missing *FeatureError
		require.ErrorAs(t, open(Topics("t"), Keys([]byte("a"))), &missing)
	})
	withCluster(t, func(t *testing.T, c *cluster) {
		_, err := OpenWorker(t.Context(), nil, c.kafka(), Group("g"), Topics("t"))
		require.ErrorIs(t, err, ErrNoShareGroups)
	})
}

// A broker, or a proxy before it, that drops the filter would deal us everything.
func TestWorkerChecksTheEchoOfItsFilter(t *testing.T) {
	withShares(t, func(t *testing.T, c *cluster, f *fakeShare) {
		c.produce("t", 0, "a", "b")
		c.intercept = func(_ int32, req kmsg.Request) (kmsg.Response, bool) {
			if req, ok := req.(*kmsg.ShareFetchRequest); ok {
				req.UnknownTags = kmsg.Tags{}
			}
			return nil, false
		}
		var failed journal
		c.work(func(context.Context, *ShareRecord) error { t.Error("handled"); return nil }, Keys([]byte("a")),
			Hooks(WorkerHooks{Failed: func(err error) { failed.note("%v", errors.Is(err, ErrNoEcho)) }}))
		time.Sleep(time.Second)
		require.Contains(t, failed.all(), "true")
		require.NotContains(t, failed.all(), "false")
	})
}

// Offsets that are acquired and hold no record are given back as such.
func TestWorkerAcknowledgesAbsentOffsets(t *testing.T) {
	withShares(t, func(t *testing.T, c *cluster, f *fakeShare) {
		c.edit("t", 0, func(p *fakePartition) {
			p.write(fakeRecord{key: []byte("a")})
			p.write(fakeRecord{producer: 7, marker: true})
			p.write(fakeRecord{key: []byte("b")})
		})
		var j journal
		c.work(func(_ context.Context, r *ShareRecord) error { j.note("%d", r.Offset); return nil }, Concurrency(3))
		time.Sleep(time.Second)
		require.ElementsMatch(t, []string{"0", "2"}, j.all())
		require.Equal(t, 3, f.states("acknowledged"))
		var kinds []ackKind
		for _, a := range append(f.asked(kmsg.ShareAcknowledge), f.asked(kmsg.ShareFetch)...) {
			for _, run := range a.acks {
				if run.first <= 1 && 1 <= run.last {
					kinds = append(kinds, run.kind)
				}
			}
		}
		require.Equal(t, []ackKind{ackGap}, kinds)
	})
}
