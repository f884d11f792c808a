package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// ledgers stands for a coordinator: it takes a round trip to answer, and answers as it is
// told.
type ledgers struct {
	roundTrip time.Duration
	// fault is asked for each request, by its number from 1 on, and each part.
	fault func(request int, p part) error
	// lost is asked for each request: the error of a connection that broke.
	lost func(request int) error

	mu        sync.Mutex
	requests  int
	committed map[TopicPartition]map[int64]bool
	settled   []string
	failed    []error
}

func (l *ledgers) send(ctx context.Context, parts []part) ([]changed, error) {
	if !sleep(ctx, l.roundTrip) {
		return nil, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	var answers []changed
	for _, p := range parts {
		answer := changed{tp: p.tp}
		if l.fault != nil {
			answer.err = l.fault(l.requests, p)
		}
		if answer.err == nil {
			for o := range offsetsOf(p.runs) {
				if l.committed[p.tp] == nil {
					l.committed[p.tp] = make(map[int64]bool)
				}
				l.committed[p.tp][o] = true
			}
		}
		answers = append(answers, answer)
	}
	if l.lost != nil {
		if err := l.lost(l.requests); err != nil {
			return nil, err // it was applied; only the answer is lost
		}
	}
	return answers, nil
}

// withCommitter runs test with a committer over l, under a clock that jumps.
func withCommitter(t *testing.T, l *ledgers, configure func(*committer), test func(t *testing.T, c *committer, stop func())) {
	synctest.Test(t, func(t *testing.T) {
		l.committed = make(map[TopicPartition]map[int64]bool)
		if l.roundTrip == 0 {
			l.roundTrip = time.Millisecond
		}
		c := newCommitter()
		c.send = l.send
		c.settled = func(p part, _ State, err error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.settled = append(l.settled, fmt.Sprint(p.tp, p.runs, err))
		}
		c.failed = func(err error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.failed = append(l.failed, err)
		}
		c.backoff = func(int) time.Duration { return time.Second }
		c.maxRuns = 1000
		if configure != nil {
			configure(c)
		}
		ctx, cancel := context.WithCancel(context.Background())
		go c.run(ctx)
		stop := func() {
			cancel()
			<-c.done
		}
		defer stop()
		test(t, c, stop)
	})
}

func commitOne(ctx context.Context, c *committer, tp TopicPartition, offset int64) error {
	t := newTicket(1)
	if err := c.add(ctx, []part{{tp: tp, runs: []Run{run(offset, offset+1)}}}, t); err != nil {
		return err
	}
	return c.wait(ctx, t)
}

func TestCommitterSendsTogetherWhatComesTogether(t *testing.T) {
	l := &ledgers{}
	withCommitter(t, l, nil, func(t *testing.T, c *committer, _ func()) {
		var wg sync.WaitGroup
		for o := range int64(500) {
			wg.Go(func() { require.NoError(t, commitOne(t.Context(), c, p0, o)) })
		}
		wg.Wait()
		require.Len(t, l.committed[p0], 500)
		require.LessOrEqual(t, l.requests, 3, "those that came while the first was on its way share one")
	})
}

func TestCommitterLingersForOthers(t *testing.T) {
	l := &ledgers{}
	linger := func(c *committer) { c.linger = 10 * time.Millisecond }
	withCommitter(t, l, linger, func(t *testing.T, c *committer, _ func()) {
		var wg sync.WaitGroup
		for o := range int64(8) {
			wg.Go(func() {
				sleep(t.Context(), time.Duration(o)*time.Millisecond)
				require.NoError(t, commitOne(t.Context(), c, p0, o))
			})
		}
		wg.Wait()
		require.Equal(t, 1, l.requests)
	})
}

func TestCommitterRepeatsARequestThatLostItsAnswer(t *testing.T) {
	l := &ledgers{lost: func(request int) error {
		if request <= 3 {
			return errors.New("connection reset")
		}
		return nil
	}}
	withCommitter(t, l, nil, func(t *testing.T, c *committer, _ func()) {
		start := time.Now()
		require.NoError(t, commitOne(t.Context(), c, p0, 7))
		require.Equal(t, 4, l.requests)
		require.GreaterOrEqual(t, time.Since(start), 3*time.Second, "it waits before each new try")
	})
}

func TestCommitterRepeatsOnlyWhatMaySucceed(t *testing.T) {
	l := &ledgers{fault: func(request int, p part) error {
		if p.tp == p1 && request < 3 {
			return kerr.CoordinatorLoadInProgress
		}
		return nil
	}}
	withCommitter(t, l, nil, func(t *testing.T, c *committer, _ func()) {
		tk := newTicket(2)
		require.NoError(t, c.add(t.Context(), []part{{p0, []Run{run(1, 2)}}, {p1, []Run{run(5, 6)}}}, tk))
		require.NoError(t, c.wait(t.Context(), tk))
		require.Equal(t, []string{"t[0] [{1 2}] <nil>", "t[1] [{5 6}] <nil>"}, l.settled, "the first is not sent again")
	})
}

// A partition's commits are applied all or not at all, so one bad offset fails a request
// for everybody in it. It must not fail them for good.
func TestCommitterKeepsOneBadCommitFromFailingOthers(t *testing.T) {
	l := &ledgers{fault: func(_ int, p part) error {
		for _, r := range p.runs {
			if r.Start <= 13 && 13 < r.End {
				return kerr.OffsetOutOfRange
			}
		}
		return nil
	}}
	withCommitter(t, l, nil, func(t *testing.T, c *committer, _ func()) {
		var wg sync.WaitGroup
		errs := make([]error, 32)
		for o := range errs {
			wg.Go(func() { errs[o] = commitOne(t.Context(), c, p0, int64(o)) })
		}
		wg.Wait()
		for o, err := range errs {
			if o == 13 {
				require.ErrorIs(t, err, kerr.OffsetOutOfRange)
				continue
			}
			require.NoError(t, err, "offset %d", o)
			require.True(t, l.committed[p0][int64(o)])
		}
		require.False(t, l.committed[p0][13])
	})
}

func TestCommitterReportsWhatNobodyWaitsFor(t *testing.T) {
	l := &ledgers{fault: func(int, part) error { return kerr.UnknownMemberID }}
	withCommitter(t, l, nil, func(t *testing.T, c *committer, _ func()) {
		require.NoError(t, c.add(t.Context(), []part{{p0, []Run{run(1, 2)}}}, nil))
		require.NoError(t, c.flush(t.Context()))
		require.Len(t, l.failed, 1)
		require.ErrorIs(t, l.failed[0], kerr.UnknownMemberID)
		require.Contains(t, l.settled[0], "UNKNOWN_MEMBER_ID", "the progress learns that the offset is open")
	})
}

func TestCommitterHoldsBackThoseWhoQueueTooMuch(t *testing.T) {
	l := &ledgers{roundTrip: time.Minute}
	withCommitter(t, l, func(c *committer) { c.maxRuns = 10 }, func(t *testing.T, c *committer, _ func()) {
		for o := range int64(100) {
			require.NoError(t, c.add(t.Context(), []part{{p0, []Run{run(2*o, 2*o+1)}}}, nil))
			c.mu.Lock()
			require.LessOrEqual(t, c.mu.queue.runs, 10)
			c.mu.Unlock()
		}
		require.NoError(t, c.flush(t.Context()))
		require.Len(t, l.committed[p0], 100)
	})
}

func TestCommitterSaysWhatItWaitedFor(t *testing.T) {
	reset := errors.New("connection reset")
	l := &ledgers{lost: func(int) error { return reset }}
	withCommitter(t, l, nil, func(t *testing.T, c *committer, _ func()) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := commitOne(ctx, c, p0, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, reset)
	})
}

func TestCommitterFlushWaitsForWhatIsOnItsWay(t *testing.T) {
	l := &ledgers{roundTrip: time.Minute}
	withCommitter(t, l, nil, func(t *testing.T, c *committer, _ func()) {
		require.NoError(t, c.add(t.Context(), []part{{p0, []Run{run(1, 2)}}}, nil))
		sleep(t.Context(), time.Second) // it is on its way, and the queue is empty
		require.NoError(t, c.flush(t.Context()))
		require.True(t, l.committed[p0][1])
	})
}

func TestCommitterThatStopsFailsWhatIsNotAnswered(t *testing.T) {
	l := &ledgers{roundTrip: time.Hour}
	withCommitter(t, l, nil, func(t *testing.T, c *committer, stop func()) {
		errs := make(chan error, 2)
		go func() { errs <- commitOne(t.Context(), c, p0, 1) }()
		synctest.Wait()
		go func() { errs <- commitOne(t.Context(), c, p0, 2) }()
		synctest.Wait()
		stop()
		require.ErrorIs(t, <-errs, ErrClosed)
		require.ErrorIs(t, <-errs, ErrClosed)
		require.ErrorIs(t, commitOne(t.Context(), c, p0, 3), ErrClosed)
		require.ErrorIs(t, c.flush(t.Context()), ErrClosed)
	})
}
