package client

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
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

func TestReaderNeedsTheBrokersFeatures(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		for feature, opts := range map[string][]ReaderOpt{
			protocol.FeatureIndividualCommit: {Topics("t"), Group("g")},
			protocol.FeatureKeyFilter:        {Topics("t"), Slots(SlotRange{Lo: 0, Hi: 9})},
		} {
			c.features = slices.DeleteFunc([]string{protocol.FeatureIndividualCommit, protocol.FeatureKeyFilter},
				func(f string) bool { return f == feature })
			_, err := OpenReader(t.Context(), append(opts, c.kafka())...)
			var missing *FeatureError
			require.ErrorAs(t, err, &missing)
			require.Equal(t, feature, missing.Feature)
			require.ErrorContains(t, err, "node-0:9092")
		}
		require.Zero(t, c.count(kmsg.Fetch)+c.count(kmsg.OffsetCommit), "nothing of a feature is sent before")
	})
}

func TestReaderOfAnUnknownTopic(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		_, err := OpenReader(t.Context(), c.kafka(), Topics("nope"))
		require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
		require.ErrorContains(t, err, "nope")
		_, err = OpenReader(t.Context(), c.kafka(), Partitions("t", 0, 7))
		require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
	})
}

func TestReaderChecksEveryEcho(t *testing.T) {
	strip := func(tags *kmsg.Tags) { *tags = kmsg.Tags{} }
	for name, key := range map[string]kmsg.Key{"commit": kmsg.OffsetCommit, "gaps": kmsg.OffsetFetch, "fetch": kmsg.Fetch} {
		t.Run(name, func(t *testing.T) {
			withCluster(t, func(t *testing.T, c *cluster) {
				c.produce("t", 0, "a")
				c.ledger("g", "t", 0, func(l *fakeLedger) { l.commit() })
				c.intercept = func(_ int32, req kmsg.Request) (kmsg.Response, bool) {
					if req.Key() != int16(key) {
						return nil, false
					}
					switch req := req.(type) {
					case *kmsg.FetchRequest:
						strip(&req.UnknownTags)
					case *kmsg.OffsetFetchRequest:
						c.mu.Lock()
						defer c.mu.Unlock()
						resp := c.offsetFetch(req).(*kmsg.OffsetFetchResponse)
						strip(&resp.Groups[0].Topics[0].Partitions[0].UnknownTags)
						return resp, false
					case *kmsg.OffsetCommitRequest:
						strip(&req.Topics[0].Partitions[0].UnknownTags)
						req.Topics[0].Partitions[0].Offset = 0
					}
					return nil, false
				}
				r, err := OpenReader(t.Context(), c.kafka(), Group("g"), Topics("t"), Slots(SlotRange{Lo: 0, Hi: 65535}))
				if err == nil {
					defer r.Close(t.Context())
					_, err = r.Poll(t.Context())
				}
				if err == nil {
					err = r.CommitRuns(t.Context(), "t", 0, run(0, 1))
				}
				require.ErrorIs(t, err, ErrNoEcho)
			})
		})
	}
}

func TestReaderSurvivesARestartOfTheBroker(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, "a", "b", "c")
		r := c.open(Group("g"), Topics("t"))
		_, records := poll(t, r, 3)
		c.setDown(true)
		var wg sync.WaitGroup
		wg.Go(func() { require.NoError(t, r.Commit(t.Context(), records[1])) })
		sleep(t.Context(), 20*time.Second)
		c.setDown(false)
		wg.Wait()
		c.produce("t", 0, "d")
		offsets, _ := poll(t, r, 1)
		require.Equal(t, []int64{3}, offsets, "and nothing twice")
		c.ledger("g", "t", 0, func(l *fakeLedger) { require.True(t, l.committed.Contains(1)) })
	})
}

func TestReaderRepeatsACommitThatLostItsAnswer(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, "a", "b")
		r := c.open(Group("g"), Topics("t"))
		_, records := poll(t, r, 2)
		lost := 0
		c.intercept = func(_ int32, req kmsg.Request) (kmsg.Response, bool) {
			if req.Key() != int16(kmsg.OffsetCommit) || lost == 2 {
				return nil, false
			}
			lost++
			return nil, true
		}
		require.NoError(t, r.Commit(t.Context(), records[1]))
		require.Equal(t, 2, lost)
	})
}

func TestReaderSaysWhatItWaitsFor(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		r := c.open(Group("g"), Topics("t"))
		c.setDown(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := r.Poll(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "node-0:9092 is down")
		c.setDown(false)
	})
}

func TestReaderFollowsTheLeader(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.nodes = 2
		c.produce("t", 0, "a")
		r := c.open(Group("g"), Topics("t"))
		poll(t, r, 1)
		c.intercept = func(node int32, req kmsg.Request) (kmsg.Response, bool) {
			fetch, ok := req.(*kmsg.FetchRequest)
			if !ok || node == 1 {
				return nil, false
			}
			resp := fetch.ResponseKind().(*kmsg.FetchResponse)
			rt := kmsg.NewFetchResponseTopic()
			rt.TopicID = fetch.Topics[0].TopicID
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.ErrorCode = kerr.NotLeaderForPartition.Code
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
			return resp, false
		}
		c.edit("t", 0, func(p *fakePartition) { p.leader, p.epoch = 1, p.epoch+1 })
		c.produce("t", 0, "b")
		offsets, _ := poll(t, r, 1)
		require.Equal(t, []int64{1}, offsets)
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

func TestReaderGoesOnAtTheLogStart(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, "a", "b", "c", "d", "e")
		c.ledger("g", "t", 0, func(l *fakeLedger) { l.commit(run(0, 1)) })
		c.edit("t", 0, func(p *fakePartition) { p.trim(3) })
		r := c.open(Group("g"), Topics("t"))
		offsets, _ := poll(t, r, 2)
		require.Equal(t, []int64{3, 4}, offsets)
	})
}

func TestReaderThatMustNotReset(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		_, err := OpenReader(t.Context(), c.kafka(), Group("g"), Topics("t"), ResetPosition(NoReset()))
		require.ErrorIs(t, err, ErrNoPosition)
		c.produce("t", 0, "a", "b", "c")
		c.edit("t", 0, func(p *fakePartition) { p.trim(2) })
		r := c.open(StartAt("t", 0, 1), ResetPosition(NoReset()))
		_, err = r.Poll(t.Context())
		require.ErrorIs(t, err, ErrNoPosition)
		require.ErrorContains(t, err, "t[0]")
	})
}

func TestReaderFollowsALogThatLostItsEnd(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, "a", "b", "c", "d", "e")
		r := c.open(Group("g"), Topics("t"))
		_, old := poll(t, r, 5)
		c.edit("t", 0, func(p *fakePartition) { p.truncate(3) })
		c.produce("t", 0, "other", "another", "third")
		_, err := r.Poll(t.Context())
		require.ErrorIs(t, err, ErrTruncated)
		offsets, fresh := poll(t, r, 3)
		require.Equal(t, []int64{3, 4, 5}, offsets)
		require.Equal(t, "other", string(fresh[0].Key))
		require.ErrorIs(t, r.Commit(t.Context(), old[3]), ErrTruncated, "its offset is another record's now")
		require.NoError(t, r.Commit(t.Context(), old[0], fresh[0]))
		c.ledger("g", "t", 0, func(l *fakeLedger) {
			require.EqualValues(t, 1, l.stable)
			require.True(t, l.committed.Contains(3))
			require.False(t, l.committed.Contains(4))
		})
	})
}

// A topic of the same name is another topic: nothing of the old one may touch it.
func TestReaderStopsAtATopicThatWasMadeAnew(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, "a", "b")
		r := c.open(Group("g"), Topics("t"))
		_, records := poll(t, r, 2)
		c.create("t", 1)
		c.mu.Lock()
		clear(c.groups)
		c.mu.Unlock()
		c.produce("t", 0, "x", "y", "z")
		_, err := r.Poll(t.Context())
		require.ErrorIs(t, err, ErrTopicRecreated)
		require.ErrorIs(t, r.Commit(t.Context(), records[0]), ErrTopicRecreated)
		c.ledger("g", "t", 0, func(l *fakeLedger) { require.False(t, l.founded) })
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

// A batch that nobody can decompress must not end the reading of a partition for ever.
func TestReaderGoesOnBehindABatchThatIsTooLarge(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.edit("t", 0, func(p *fakePartition) {
			p.write(fakeRecord{key: []byte("bomb"), value: make([]byte, 1<<20), codec: protocol.CodecGzip})
		})
		c.produce("t", 0, "a")
		r := c.open(c.kafka(kgo.MaxDecompressBatchBytes(1<<16)), Group("g"), Topics("t"))
		_, err := r.Poll(t.Context())
		require.ErrorIs(t, err, ErrBatchTooLarge)
		require.ErrorContains(t, err, "commit offsets 0 to 0")
		require.NoError(t, r.CommitRuns(t.Context(), "t", 0, run(0, 1)))
		offsets, _ := poll(t, r, 1)
		require.Equal(t, []int64{1}, offsets)
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

func TestReaderCloseGivesUpWithItsContext(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, "a")
		r := c.open(Group("g"), Topics("t"))
		_, records := poll(t, r, 1)
		c.setDown(true)
		require.NoError(t, r.Enqueue(t.Context(), records...))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.ErrorIs(t, r.Close(ctx), context.DeadlineExceeded)
	})
}

func TestReaderReportsCommitsThatNobodyWaitedFor(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, "a")
		r := c.open(Group("g"), Topics("t"))
		poll(t, r, 1)
		require.NoError(t, r.EnqueueRuns(t.Context(), "t", 0, run(5, 6)))
		_, err := r.Poll(t.Context())
		var about *PartitionError
		require.ErrorAs(t, err, &about)
		require.Equal(t, "g", about.Group)
		require.ErrorIs(t, err, kerr.OffsetOutOfRange)
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
