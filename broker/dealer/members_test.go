package dealer

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/extension/extensiontest"
	"github.com/lacunamq/lacuna/broker/share"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
)

// A member may ask before its partitions have heard that it joined.
func TestFetchAheadOfTheNews(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.produceN(2)
		r.groups.join("a")
		require.Equal(t, []int64{0}, r.fetch("a", 1))
		joined := r.groups.joinQuietly("b")
		f := r.begin(query("b", 1))
		synctest.Wait()
		f.waits()
		r.d.ShareChanged(joined)
		require.Equal(t, []int64{1}, f.offsets())
	})
}

// News that come late free nothing of a member that has joined since.
func TestLateNews(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.produceN(3)
		r.groups.join("a", "c")
		require.Equal(t, []int64{0}, r.fetch("a", 1))
		first := r.groups.joinQuietly("d")
		second := r.groups.joinQuietly("b")
		r.d.ShareChanged(first)
		f := r.begin(query("b", 1))
		synctest.Wait()
		r.d.ShareChanged(second)
		require.Equal(t, []int64{1}, f.offsets())
		require.Equal(t, []int64{2}, r.fetch("c", 3))
		r.mustAck("b", cooperative.Accept, 1, 2)
	})
}

// A change of the group while a partition is opened is not lost.
func TestChangeWhileOpening(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.groups.settings.KeyRangeInitial = 1
		r.groups.mode(share.KeyRange)
		r.groups.join("a", "b")
		r.produce("k")
		view, err := r.groups.Share(ctx, "g")
		require.NoError(t, err)
		holder := view.Holder(tp.Topic, 0, 0)
		other := map[string]string{"a": "b", "b": "a"}[holder]
		r.groups.hold(func() { r.groups.leave(holder) })
		require.Equal(t, []int64{0}, r.fetch(other, 1))
	})
}

func TestMemberThatLeftWaitsForNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.groups.join("a", "b")
		f := r.begin(query("a", 1))
		synctest.Wait()
		r.groups.leave("a")
		require.Empty(t, f.offsets())
		_, err := r.d.Fetch(ctx, query("a", 1))
		require.ErrorIs(t, err, kerr.UnknownMemberID)
	})
}

// Of the fetches of a member the last one waits.
func TestTwoFetchesOfOneMember(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.groups.join("a")
		first := r.begin(query("a", 1))
		synctest.Wait()
		second := r.begin(query("a", 1))
		require.Empty(t, first.offsets())
		synctest.Wait()
		second.waits()
		r.produceN(1)
		require.Equal(t, []int64{0}, second.offsets())
	})
}

// A fetch over several partitions gets no more than it asked for, and once it is answered
// nothing is acquired for it.
func TestManyPartitions(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		other := extension.TopicPartition{Topic: tp.Topic, Partition: 1}
		r.groups.join("a", "b")
		q := query("a", 2)
		q.Partitions = append(q.Partitions, other)
		f := r.begin(q)
		synctest.Wait()
		r.produceN(1)
		require.Equal(t, []int64{0}, f.offsets())
		require.Empty(t, f.dealt[1].Deliveries)
		log, err := r.Data(other)
		require.NoError(t, err)
		r.appendTo(log, 3)
		synctest.Wait()
		qb := query("b", 10)
		qb.Partitions = []extension.TopicPartition{other}
		require.Equal(t, upTo(3), r.begin(qb).offsets())
	})
}

func TestPartitionThatIsNotThere(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.Gone[tp] = extension.ErrUnknownPartition
		r.groups.join("a")
		f := r.begin(query("a", 1))
		<-f.done
		require.NoError(t, f.err)
		require.ErrorIs(t, f.dealt[0].Err, extension.ErrUnknownPartition)
	})
}

// A topic that is deleted ends the fetches that wait for it.
func TestDeletedTopic(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		f := held(r, 2)
		r.Mu.Lock()
		r.Gone[tp] = extension.ErrUnknownPartition
		r.Mu.Unlock()
		require.NoError(t, r.ledgers.DeleteTopic(ctx, tp.Topic))
		<-f.done
		require.ErrorIs(t, f.dealt[0].Err, extension.ErrUnknownPartition)
		require.ErrorIs(t, r.ack("a", cooperative.Accept, 0, 1), kerr.InvalidRecordState)
	})
}

// A partition that nobody works on any more is not kept, and what it knew is not lost.
func TestIdlePartitionsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.change(func(s *Settings) { s.Limits.BackoffMs = 5000 })
		r.produceN(2)
		r.groups.join("a")
		require.Equal(t, upTo(2), r.fetch("a", 2))
		r.mustAck("a", cooperative.Release, 0, 1)
		r.groups.leave("a")
		synctest.Wait()
		require.Len(t, r.d.of("g"), 1, "a record rests")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Empty(t, r.d.of("g"))
		r.groups.join("b")
		require.Equal(t, []int16{2, 2}, r.counts("b", 2))
	})
}

// What a member has acquired it keeps through a change of the isolation level.
func TestIsolationChangeKeepsWhatIsAcquired(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		f := held(r, 2)
		r.produceN(1)
		require.Equal(t, []int64{2}, f.offsets())
		r.change(func(s *Settings) { s.ReadCommitted = true })
		synctest.Wait()
		r.mustAck("a", cooperative.Accept, 0, 1)
		r.mustAck("a", cooperative.Release, 1, 2)
		r.mustAck("b", cooperative.Accept, 2, 3)
		synctest.Wait()
		require.Equal(t, []int16{2}, r.counts("b", 5))
	})
}

func TestFailedAppends(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		f := held(r, 2)
		r.Mu.Lock()
		journalLog := r.Logs[extensiontest.JournalDir(0)]
		r.Mu.Unlock()
		require.NoError(t, journalLog.Close())
		require.Error(t, r.ack("a", cooperative.Accept, 0, 1))
		<-f.done
		require.Error(t, errors.Join(f.err, f.dealt[0].Err), "nothing is dealt of which nothing can be logged")
		r.Mu.Lock()
		delete(r.Logs, extensiontest.JournalDir(0))
		r.Mu.Unlock()
		require.Equal(t, upTo(2), r.fetch("b", 2), "what was refused did not happen")
	})
}

// Close ends what waits, also when it comes while partitions are opened or change hands.
func TestCloseAtAnyTime(t *testing.T) {
	for round := range 20 {
		r := newRig(t)
		r.produceN(10)
		members := make([]string, 8)
		for i := range members {
			members[i] = fmt.Sprint("m", i)
		}
		r.groups.join(members...)
		var wg sync.WaitGroup
		for i, m := range members {
			wg.Go(func() {
				for {
					f, err := r.d.Fetch(ctx, query(m, 1))
					if errors.Is(err, ErrStopped) || err == nil && errors.Is(f[0].Err, ErrStopped) {
						return
					}
					if i == 0 {
						r.commit(individualcommit.Request{Offset: int64(round % 10)})
					}
				}
			})
		}
		for range round * 20 { // so that it is anywhere
			runtime.Gosched()
		}
		r.d.Close()
		wg.Wait()
		dealt, err := r.d.Fetch(ctx, query("m0", 1))
		require.NoError(t, err)
		require.ErrorIs(t, dealt[0].Err, ErrStopped)
	}
}

// A fetch whose client is gone holds up nobody who waits for the same partition to open.
func TestOpenerGoesAway(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.produceN(1)
		r.groups.join("a", "b")
		held := make(chan struct{})
		r.groups.hold(func() { <-held })
		a := r.begin(query("a", 1))
		synctest.Wait()
		b := r.begin(query("b", 1))
		synctest.Wait()
		a.stop()
		close(held)
		require.Equal(t, []int64{0}, b.offsets())
		<-a.done
	})
}

func TestRefusedAcknowledgements(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		require.ErrorIs(t, r.ack("a", cooperative.Accept, 0, 1), kerr.InvalidRecordState, "nothing was ever acquired")
		held(r, 4)
		require.ErrorIs(t, r.ack("b", cooperative.Accept, 0, 1), kerr.InvalidRecordState)
		require.ErrorIs(t, r.ack("a", cooperative.Accept, 3, 6), kerr.InvalidRecordState)
		r.mustAck("a", cooperative.Accept, 0, 1)
		require.ErrorIs(t, r.ack("a", cooperative.Accept, 0, 1), kerr.InvalidRecordState)
		require.ErrorIs(t, r.ack("a", cooperative.AckType(9), 1, 2), kerr.InvalidRequest)
		r.change(func(s *Settings) { s.Renew = false })
		require.ErrorIs(t, r.ack("a", cooperative.Renew, 1, 2), kerr.InvalidRecordState)
		r.mustAck("a", cooperative.Reject, 1, 4)
	})
}

// Ledgers are there before anybody fetches: what comes after the first member is its.
func TestFoundedWithTheFirstMember(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.change(func(s *Settings) {
			s.Origin = func(l Log) (int64, error) { return l.Bounds().HighWatermark, nil }
		})
		r.produceN(3)
		r.groups.join("a")
		synctest.Wait()
		r.produceN(2)
		require.Equal(t, []int64{3, 4}, r.fetch("a", 5))
	})
}

func TestAcknowledgedThenCrashed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		held(r, 4)
		r.mustAck("a", cooperative.Accept, 0, 1)
		r.mustAck("a", cooperative.Release, 1, 2)
		r.crash()
		r.groups.join("b")
		require.Equal(t, []int16{2, 1, 1}, r.counts("b", 4))
		require.ErrorIs(t, r.ack("a", cooperative.Accept, 3, 4), kerr.InvalidRecordState)
	})
}
