package client

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

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
		c.mu.Lock() // the Reader is at work
		c.intercept = func(_ int32, req kmsg.Request) (kmsg.Response, bool) {
			if req.Key() != int16(kmsg.OffsetCommit) || lost == 2 {
				return nil, false
			}
			lost++
			return nil, true
		}
		c.mu.Unlock()
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
		c.mu.Lock() // the Reader is at work
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
		c.mu.Unlock()
		c.edit("t", 0, func(p *fakePartition) { p.leader, p.epoch = 1, p.epoch+1 })
		c.produce("t", 0, "b")
		offsets, _ := poll(t, r, 1)
		require.Equal(t, []int64{1}, offsets)
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
