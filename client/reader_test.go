package client

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// withCluster runs test under a clock that jumps, with a topic t of one partition.
func withCluster(t *testing.T, test func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.create("t", 1)
		test(t, c)
	})
}

// poll polls until n records came, and returns their offsets in the order they came.
func poll(t *testing.T, r *Reader, n int) (offsets []int64, records []*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for len(offsets) < n {
		got, err := r.Poll(ctx)
		require.NoError(t, err, "after %d of %d records", len(offsets), n)
		for _, record := range got {
			offsets = append(offsets, record.Offset)
		}
		records = append(records, got...)
	}
	return offsets, records
}

// quiet checks that nothing more comes, for longer than the Reader takes to find out.
func quiet(t *testing.T, r *Reader) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := r.Poll(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Empty(t, got)
}

func TestReaderDeliversWhatTheGroupHasNotCommitted(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")
		c.ledger("g", "t", 0, func(l *fakeLedger) { l.commit(run(0, 1), run(2, 3), run(4, 5), run(6, 7), run(8, 9)) })
		r := c.open(Group("g"), Topics("t"))
		offsets, _ := poll(t, r, 7)
		require.Equal(t, []int64{1, 3, 5, 7, 9, 10, 11}, offsets)
		quiet(t, r)
	})
}

func TestReaderDeliversWhatIsWrittenWhileItWaits(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		r := c.open(Group("g"), Topics("t"))
		quiet(t, r)
		c.produce("t", 0, "a")
		start := time.Now()
		offsets, _ := poll(t, r, 1)
		require.Equal(t, []int64{0}, offsets)
		require.Less(t, time.Since(start), time.Millisecond, "the fetch was waiting for it")
	})
}

func TestReaderCommitsOneByOneAndOutOfOrder(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, "a", "b", "c", "d", "e")
		r := c.open(Group("g"), Topics("t"))
		_, records := poll(t, r, 5)
		require.NoError(t, r.Commit(t.Context(), records[3]))
		require.NoError(t, r.Commit(t.Context(), records[1], records[0]))
		c.ledger("g", "t", 0, func(l *fakeLedger) {
			require.EqualValues(t, 2, l.stable)
			require.Equal(t, []Run{run(2, 3)}, appendOthers(nil, &l.committed, run(2, 4)))
		})
		require.NoError(t, r.RedeliverOpen(t.Context()))
		offsets, _ := poll(t, r, 2)
		require.Equal(t, []int64{2, 4}, offsets)
	})
}

func TestReadersOfDisjointSlotsShareAPartition(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		var keys []string
		for i := range 300 {
			keys = append(keys, fmt.Sprint("order-", i))
		}
		c.produce("t", 0, keys...)
		var all []int64
		for _, slots := range []SlotRange{{Lo: 0, Hi: 20000}, {Lo: 20001, Hi: 40000}, {Lo: 40001, Hi: 65535}} {
			var want []int64
			for o, key := range keys {
				if s := keyfilter.Slot([]byte(key), int64(o)); slots.Lo <= s && s <= slots.Hi {
					want = append(want, int64(o))
				}
			}
			r := c.open(Group("g"), Topics("t"), Slots(slots))
			got, records := poll(t, r, len(want))
			require.Equal(t, want, got)
			require.NoError(t, r.Commit(t.Context(), records...))
			all = append(all, got...)
			require.NoError(t, r.Close(t.Context()))
		}
		slices.Sort(all)
		require.Len(t, slices.Compact(all), 300)
		c.ledger("g", "t", 0, func(l *fakeLedger) { require.EqualValues(t, 300, l.stable) })
	})
}

func TestReaderOfKeysGetsOnlyThose(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, "a", "b", "a", "c", "", "a")
		r := c.open(Group("g"), Topics("t"), Keys([]byte("a"), []byte("")))
		offsets, _ := poll(t, r, 4)
		require.Equal(t, []int64{0, 2, 4, 5}, offsets)
	})
}

// A broker passes a batch whole that it can't look into; the Reader still delivers only
// what it was asked for.
func TestReaderDropsWhatTheBrokerPassedWhole(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, "a", "b", "a")
		c.intercept = func(_ int32, req kmsg.Request) (kmsg.Response, bool) {
			fetch, ok := req.(*kmsg.FetchRequest)
			if !ok {
				return nil, false
			}
			tags := fetch.UnknownTags
			fetch.UnknownTags = kmsg.Tags{}
			resp := c.fetch(fetch).(*kmsg.FetchResponse)
			fetch.UnknownTags = tags
			scanned := protocol.ScannedTo{Next: 3}
			resp.Topics[0].Partitions[0].UnknownTags.Set(protocol.ExtensionTag, scanned.AppendTo(nil))
			return resp, false
		}
		r := c.open(Topics("t"), Keys([]byte("a")))
		offsets, _ := poll(t, r, 2)
		require.Equal(t, []int64{0, 2}, offsets)
	})
}

func TestReaderFoundsTheLedgerWhereItStarts(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, "a", "b", "c")
		first := c.open(Group("g"), Topics("t"), ResetPosition(Latest()))
		c.produce("t", 0, "d")
		// The second starts later, at another log end. The ledger tells it where.
		second := c.open(Group("g"), Topics("t"), ResetPosition(Latest()))
		offsets, _ := poll(t, second, 1)
		require.Equal(t, []int64{3}, offsets)
		_, records := poll(t, first, 1)
		require.NoError(t, first.Commit(t.Context(), records...))
		c.ledger("g", "t", 0, func(l *fakeLedger) {
			require.EqualValues(t, 4, l.stable, "what was before the start is no gap")
		})
	})
}

func TestReaderStartsAtAnExplicitPosition(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, "a", "b", "c", "d", "e")
		c.ledger("g", "t", 0, func(l *fakeLedger) { l.commit(run(3, 4)) })
		r := c.open(Group("g"), StartAt("t", 0, 2))
		offsets, _ := poll(t, r, 2)
		require.Equal(t, []int64{2, 4}, offsets, "not 1, which is open too, and not 3, which is committed")
		quiet(t, r)
	})
}

func TestReaderStopsAtAnEnd(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, "a", "b", "c", "d", "e")
		c.ledger("g", "t", 0, func(l *fakeLedger) { l.commit(run(1, 2), run(3, 4)) })
		for _, opts := range [][]ReaderOpt{{Partitions("t", 0)}, {StartAt("t", 0, 0)}} {
			r := c.open(append(opts, Group("g"), StopAt("t", 0, 3))...)
			offsets, _ := poll(t, r, 2)
			require.Equal(t, []int64{0, 2}, offsets)
			quiet(t, r)
			require.EqualValues(t, 3, r.Status()[0].Position)
			require.True(t, r.Status()[0].Past(3))
		}
		r := c.open(Group("g"), StartAt("t", 0, 4), StopAt("t", 0, 3))
		quiet(t, r)
		require.EqualValues(t, 4, r.Status()[0].Position)
	})
}

func TestReaderWithoutAGroup(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.features = nil // a broker that knows neither
		c.produce("t", 0, "a", "b", "c")
		r := c.open(StartAt("t", 0, 1))
		offsets, records := poll(t, r, 2)
		require.Equal(t, []int64{1, 2}, offsets)
		require.ErrorIs(t, r.Commit(t.Context(), records...), ErrNoGroup)
		require.ErrorIs(t, r.RedeliverOpen(t.Context()), ErrNoGroup)
		require.Zero(t, c.count(kmsg.OffsetCommit))
	})
}

func TestReaderRereadsItsLedger(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		r := c.open(Group("g"), Topics("t"), RefreshInterval(30*time.Second))
		c.produce("t", 0, "a", "b", "c", "d", "e", "f")
		_, records := poll(t, r, 6)
		require.NoError(t, r.Commit(t.Context(), records[:4]...))
		c.ledger("g", "t", 0, func(l *fakeLedger) {
			l.reopen(run(2, 3)) // an operator
			l.commit(run(5, 6)) // another Reader
		})
		start := time.Now()
		offsets, _ := poll(t, r, 1)
		require.Equal(t, []int64{2}, offsets, "4 is open too, but the caller has it")
		require.LessOrEqual(t, time.Since(start), 31*time.Second)
		require.NoError(t, r.RedeliverOpen(t.Context()))
		offsets, _ = poll(t, r, 2)
		require.Equal(t, []int64{2, 4}, offsets)
	})
}

// A commit's answer tells the stable offset. One that fell is looked into at once.
func TestReaderNoticesARewindWithItsNextCommit(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		r := c.open(Group("g"), Topics("t"), RefreshInterval(24*time.Hour))
		c.produce("t", 0, "a", "b", "c", "d")
		_, records := poll(t, r, 4)
		require.NoError(t, r.Commit(t.Context(), records[:3]...))
		c.ledger("g", "t", 0, func(l *fakeLedger) { l.cumulative(1) })
		require.NoError(t, r.Commit(t.Context(), records[3]))
		offsets, _ := poll(t, r, 2)
		require.Equal(t, []int64{1, 2}, offsets)
	})
}

func TestReaderRedeliversRecords(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, "a", "b", "c", "d")
		r := c.open(Group("g"), Topics("t"))
		_, records := poll(t, r, 4)
		require.NoError(t, r.Commit(t.Context(), records[2]))
		require.NoError(t, r.Redeliver(records[3], records[2], records[1]))
		offsets, _ := poll(t, r, 2)
		require.Equal(t, []int64{1, 3}, offsets, "2 is committed")
	})
}

func TestReaderGetsPartitionsThatAreAdded(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		r := c.open(Group("g"), Topics("t"), ResetPosition(Latest()))
		c.mu.Lock()
		c.topics["t"].partitions = append(c.topics["t"].partitions, newFakePartition())
		c.mu.Unlock()
		c.produce("t", 1, "a")
		_, records := poll(t, r, 1)
		require.EqualValues(t, 1, records[0].Partition)
		require.NoError(t, r.Commit(t.Context(), records...))
	})
}

func TestReadCommittedClosesAbortedRecordsOfItsSlots(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, "a")                                               // 0
		c.edit("t", 0, func(p *fakePartition) { p.abort(7, "a", "b", "a") }) // 1 to 3, marker 4
		c.produce("t", 0, "a")                                               // 5
		r := c.open(Group("g"), Topics("t"), Keys([]byte("a")), ReadCommitted())
		offsets, records := poll(t, r, 2)
		require.Equal(t, []int64{0, 5}, offsets)
		require.NoError(t, r.Flush(t.Context()))
		require.NoError(t, r.Commit(t.Context(), records...))
		c.ledger("g", "t", 0, func(l *fakeLedger) {
			for o, want := range []bool{true, true, false, true, false, true} {
				require.Equal(t, want, int64(o) < l.stable || l.committed.Contains(int64(o)),
					"offset %d: b belongs to another reader, the marker to the broker", o)
			}
		})
	})
}

func TestReadUncommittedDeliversAbortedRecords(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.edit("t", 0, func(p *fakePartition) { p.abort(7, "a", "b") })
		c.produce("t", 0, "c")
		r := c.open(Group("g"), Topics("t"))
		offsets, _ := poll(t, r, 3)
		require.Equal(t, []int64{0, 1, 3}, offsets)
	})
}

func TestReaderHoldsOneAnswerAhead(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, "a")
		r := c.open(Topics("t"))
		sleep(t.Context(), time.Second)
		for range 5 {
			c.produce("t", 0, "b")
			sleep(t.Context(), time.Minute)
		}
		require.Equal(t, 1, c.count(kmsg.Fetch), "nobody polled what it brought")
		poll(t, r, 1)
	})
}

func TestReaderCloseSendsWhatIsQueued(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, "a", "b", "c")
		r := c.open(Group("g"), Topics("t"), CommitLinger(time.Minute))
		_, records := poll(t, r, 3)
		require.NoError(t, r.Enqueue(t.Context(), records[2]))
		require.NoError(t, r.Close(t.Context()))
		c.ledger("g", "t", 0, func(l *fakeLedger) { require.True(t, l.committed.Contains(2)) })
		_, err := r.Poll(t.Context())
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, r.Commit(t.Context(), records[0]), ErrClosed)
		require.ErrorIs(t, r.RedeliverOpen(t.Context()), ErrClosed)
		require.NoError(t, r.Close(t.Context()), "a second time does nothing")
	})
}

func TestReaderRefusesCommitsOfOthersPartitions(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		r := c.open(Group("g"), Topics("t"))
		require.ErrorIs(t, r.CommitRuns(t.Context(), "t", 3, run(0, 1)), ErrNotAssigned)
		require.ErrorIs(t, r.CommitRuns(t.Context(), "t", 0, run(4, 4)), ErrBadRuns)
		require.NoError(t, r.CommitRuns(t.Context(), "t", 0), "nothing to do")
	})
}

func TestReaderOptionsAreChecked(t *testing.T) {
	for want, opts := range map[string][]ReaderOpt{
		"nothing to read":  {Group("g")},
		"given whole":      {Topics("t"), Partitions("t", 1)},
		"is negative":      {StartAt("t", 0, -1)},
		"neither by":       {Topics("t"), StopAt("t", 0, 1)},
		"inverted":         {Topics("t"), Slots(SlotRange{Lo: 2, Hi: 1})},
		"longer than":      {Topics("t"), Keys(make([]byte, 70_000))},
		"refresh interval": {Topics("t"), RefreshInterval(0)},
		"max queued runs":  {Topics("t"), MaxQueuedRuns(0)},
		"fetch max wait":   {Topics("t"), FetchMaxWait(-1)},
		"byte limit":       {Topics("t"), FetchMaxBytes(0)},
		"commit linger":    {Topics("t"), CommitLinger(-1)},
	} {
		_, err := OpenReader(t.Context(), opts...)
		require.ErrorContains(t, err, want)
	}
}
