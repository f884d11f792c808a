package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestRebalanceByTheClock follows a group in time: its first members are waited for, a
// silent one is missed after its session, and a rebalance waits for those it knows.
func TestRebalanceByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.Config.InitialRebalanceDelay = 3 * time.Second })
		defer r.stop()
		begin := time.Now()
		a := outcome(func() (group.JoinAnswer, error) { return r.join("g", "a", "") })
		b := outcome(func() (group.JoinAnswer, error) { return r.join("g", "b", "") })
		first, second := (<-a).value, (<-b).value
		require.Equal(t, 6*time.Second, time.Since(begin), "the second member makes the group wait once more")
		require.EqualValues(t, 1, first.Generation)
		require.Equal(t, first.Leader, second.Leader)
		leader, follower := first, second
		if second.Leader == second.MemberID {
			leader, follower = second, first
		}
		require.Len(t, leader.Members, 2)

		waits := outcome(func() (group.SyncAnswer, error) {
			return r.c.Sync(context.Background(), &group.SyncRequest{Group: "g", MemberID: follower.MemberID, Generation: 1})
		})
		synctest.Wait()
		requireWaits(t, waits)
		_, err := r.c.Sync(context.Background(), &group.SyncRequest{Group: "g", MemberID: leader.MemberID, Generation: 1,
			Assignments: []group.Assignment{{MemberID: follower.MemberID, Data: []byte("x")}}})
		require.NoError(t, err)
		require.Equal(t, "x", string((<-waits).value.Assignment))

		// The follower falls silent; the leader sends heartbeats.
		begin = time.Now()
		for {
			pass(time.Second)
			if err := r.heartbeat("g", leader); err != nil {
				require.ErrorIs(t, err, kerr.RebalanceInProgress)
				break
			}
		}
		require.Equal(t, 10*time.Second, time.Since(begin))
		again, err := r.join("g", "a", leader.MemberID)
		require.NoError(t, err)
		require.EqualValues(t, 2, again.Generation)
		require.Len(t, again.Members, 1)
	})
}

// TestOneTimerServesAll holds that many deadlines are kept by the one timer of a shard.
func TestOneTimerServesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.stop()
		var members [20]group.JoinAnswer
		for i := range members {
			members[i] = r.lead(fmt.Sprintf("g%d", i), "a")
			pass(100 * time.Millisecond)
		}
		pass(7 * time.Second)
		require.NoError(t, r.heartbeat("g19", members[19]))
		pass(8 * time.Second)
		synctest.Wait()
		list, err := r.c.List(context.Background(), group.Filter{States: []string{"Stable"}})
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, "g19", list[0].ID)
	})
}

func TestGivenUpRequestIsNotCarriedOut(t *testing.T) {
	opening, open := make(chan struct{}), make(chan struct{})
	r := newRig(t, func(o *Options) { o.Written = func(int32) bool { return true } })
	inner := r.c.opts.Open
	r.c.opts.Open = func(p int32) (journal.Partition, error) {
		close(opening)
		<-open
		return inner(p)
	}
	kept := r.c.BeginCommit(commitOf("g", 0, 1))
	<-opening // the owner is busy, and the next one queues
	ctx, cancel := context.WithCancel(context.Background())
	queued := r.c.BeginCommit(commitOf("g", 0, 2))
	cancel()
	_, err := queued.Wait(ctx)
	require.ErrorIs(t, err, context.Canceled)
	close(open)
	_, err = kept.Wait(context.Background())
	require.NoError(t, err)
	r.requireCommitted("g", 1)
}

func TestClientThatGoesAwayLeavesItsRequestParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.stop()
		member := r.lead("g", "a")
		ctx, cancel := context.WithCancel(context.Background())
		gone := outcome(func() (group.JoinAnswer, error) {
			return r.c.Join(ctx, &group.JoinRequest{Group: "g", ClientID: "b", SessionTimeout: 10 * time.Second,
				RebalanceTimeout: time.Minute, ProtocolType: group.ConsumerProtocolType, Protocols: []group.Protocol{{Name: "range"}}})
		})
		synctest.Wait()
		cancel()
		require.ErrorIs(t, (<-gone).err, context.Canceled)
		again, err := r.join("g", "a", member.MemberID)
		require.NoError(t, err)
		require.Len(t, again.Members, 2, "it is a member until its session ends")
		synctest.Wait()
		for _, s := range r.c.shards {
			require.Empty(t, s.owner.parked)
		}
	})
}

func TestDelete(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	r.lead("busy", "a")
	called := 0
	count := func(context.Context) error { called++; return nil }
	require.ErrorIs(t, r.c.Delete(ctx, "busy", count), kerr.NonEmptyGroup)
	require.ErrorIs(t, r.c.Delete(ctx, "none", count), kerr.GroupIDNotFound)
	require.Zero(t, called, "nothing else of a group is deleted that stays")

	require.NoError(t, r.commit("g", 1))
	failed := errors.New("failed")
	require.ErrorIs(t, r.c.Delete(ctx, "g", func(context.Context) error { return failed }), failed)
	r.requireCommitted("g", 1)
	require.NoError(t, r.c.Delete(ctx, "g", count))
	require.Equal(t, 1, called)
	r.requireCommitted("g", -1)
	r.restart()
	_, found, err := r.c.Describe(ctx, "g")
	require.NoError(t, err)
	require.False(t, found)
}

func TestDeleteOffsets(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	require.NoError(t, r.commit("simple", 1))
	var also [][]group.TopicPartition
	note := func(_ context.Context, tps []group.TopicPartition) error {
		also = append(also, tps)
		return nil
	}
	_, err := r.c.DeleteOffsets(ctx, "none", []group.TopicPartition{{Topic: "t"}}, note)
	require.ErrorIs(t, err, kerr.GroupIDNotFound)
	require.Empty(t, also)

	failed := errors.New("failed")
	_, err = r.c.DeleteOffsets(ctx, "simple", []group.TopicPartition{{Topic: "t"}},
		func(context.Context, []group.TopicPartition) error { return failed })
	require.ErrorIs(t, err, failed)
	r.requireCommitted("simple", 1)
	_, err = r.c.DeleteOffsets(ctx, "simple", []group.TopicPartition{{Topic: "t"}}, note)
	require.NoError(t, err)
	require.Equal(t, [][]group.TopicPartition{{{Topic: "t"}}}, also)
	r.requireCommitted("simple", -1)

	subscription := kmsg.ConsumerMemberMetadata{Topics: []string{"t"}}
	joined, err := r.c.Join(ctx, &group.JoinRequest{Group: "g", ClientID: "a", SessionTimeout: 10 * time.Second,
		RebalanceTimeout: time.Minute, ProtocolType: group.ConsumerProtocolType,
		Protocols: []group.Protocol{{Name: "range", Metadata: subscription.AppendTo(nil)}}})
	require.NoError(t, err)
	require.Nil(t, joined.Err)
	errs, err := r.c.DeleteOffsets(ctx, "g", []group.TopicPartition{{Topic: "t"}, {Topic: "u"}}, note)
	require.NoError(t, err)
	require.Equal(t, []*kerr.Error{kerr.GroupSubscribedToTopic, nil}, errs)
	require.Equal(t, []group.TopicPartition{{Topic: "u"}}, also[1], "nothing else of an offset is deleted that stays")
}

// TestCheckCommitOrder holds that what a member commits elsewhere has its place before
// the rebalance that ends its generation.
func TestCheckCommitOrder(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	member := r.lead("g", "a")
	id := &group.Identity{Group: "g", MemberID: member.MemberID, Generation: 1}
	var order []string
	require.NoError(t, r.c.CheckCommit(ctx, id, func() { order = append(order, "commit") }))
	_, err := r.join("g", "a", member.MemberID)
	require.NoError(t, err)
	order = append(order, "generation 2")
	require.ErrorIs(t, r.c.CheckCommit(ctx, id, func() { order = append(order, "late") }), kerr.IllegalGeneration)
	require.Equal(t, []string{"commit", "generation 2"}, order)
	require.ErrorIs(t, r.c.CheckCommit(ctx, &group.Identity{Group: "g", Generation: -1}, nil), kerr.UnknownMemberID)
	empty, err := r.c.Empty(ctx, "g")
	require.NoError(t, err)
	require.False(t, empty)
	require.NoError(t, r.c.CheckCommit(ctx, &group.Identity{Group: "nobody", Generation: -1}, nil))
	empty, err = r.c.Empty(ctx, "nobody")
	require.NoError(t, err)
	require.True(t, empty)
}

// TestAllShards runs what concerns every group.
func TestAllShards(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Config.OffsetsRetention = time.Hour })
	ctx := context.Background()
	now := time.Now()
	r.c.opts.Now = func() time.Time { return now }
	topic := [16]byte{1}
	for i := range 10 {
		id := fmt.Sprintf("g%d", i)
		require.NoError(t, r.c.Put(ctx, id, []group.PutOffset{
			{CommitOffset: group.CommitOffset{TopicPartition: group.TopicPartition{Topic: "t"}, TopicID: topic, Offset: 100}},
			{CommitOffset: group.CommitOffset{TopicPartition: group.TopicPartition{Topic: "u"}, TopicID: [16]byte{2}, Offset: 5}},
		}))
	}
	lowered, err := r.c.Clamp(ctx, func(topic string, _ [16]byte, _ int32) (int64, bool) { return 50, topic == "t" })
	require.NoError(t, err)
	require.Equal(t, 10, lowered)
	r.requireCommitted("g3", 50)
	require.NoError(t, r.c.DeleteTopic(ctx, "t", [16]byte{9}), "another topic of that name")
	r.requireCommitted("g3", 50)
	require.NoError(t, r.c.DeleteTopic(ctx, "t", topic))
	r.requireCommitted("g3", -1)
	require.NoError(t, r.c.Upkeep(ctx, nil, func(topic string, _ [16]byte) bool { return topic == "u" }))
	for i := range 10 {
		all, err := r.c.AllCommitted(ctx, fmt.Sprintf("g%d", i))
		require.NoError(t, err)
		require.Empty(t, all)
	}
	require.NoError(t, r.commit("h", 1))
	now = now.Add(2 * time.Hour)
	require.NoError(t, r.c.Upkeep(ctx, func(string, group.TopicPartition, time.Time) bool { return true }, nil))
	r.requireCommitted("h", 1)
	r.c.SetConfig(group.Config{OffsetsRetention: 3 * time.Hour})
	require.NoError(t, r.c.Upkeep(ctx, nil, nil))
	r.requireCommitted("h", 1)
	r.c.SetConfig(group.Config{OffsetsRetention: time.Hour})
	require.NoError(t, r.c.Upkeep(ctx, nil, nil))
	r.requireCommitted("h", -1)
	list, err := r.c.List(ctx, group.Filter{})
	require.NoError(t, err)
	require.Empty(t, list)
}

// TestManyAtOnce lets clients of all sorts loose on a few groups, for the race detector.
func TestManyAtOnce(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	var clients sync.WaitGroup
	for i := range 16 {
		clients.Go(func() {
			id := fmt.Sprintf("g%d", i%3)
			simple := fmt.Sprintf("s%d", i)
			for n := range 30 {
				switch (i + n) % 5 {
				case 0:
					joining, cancel := context.WithTimeout(ctx, time.Millisecond)
					_, _ = r.c.Join(joining, &group.JoinRequest{Group: id, ClientID: "c", SessionTimeout: 6 * time.Second,
						ProtocolType: group.ConsumerProtocolType, Protocols: []group.Protocol{{Name: "range"}}})
					cancel()
				case 1:
					_, _ = r.c.List(ctx, group.Filter{})
				case 2:
					_ = r.c.Checkpoint(ctx)
				default:
					if err := r.commit(simple, int64(n)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	clients.Wait()
	r.restart()
	for i := range 16 {
		last := int64(0)
		for n := range 30 {
			if (i+n)%5 > 2 {
				last = int64(n)
			}
		}
		r.requireCommitted(fmt.Sprintf("s%d", i), last)
	}
}

func TestLeaveAndForget(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	member := r.lead("g", "a")
	errs, err := r.c.Leave(ctx, &group.LeaveRequest{Group: "g", Members: []group.LeavingMember{{MemberID: member.MemberID}, {MemberID: "x"}}})
	require.NoError(t, err)
	require.Nil(t, errs[0])
	require.Equal(t, kerr.UnknownMemberID, errs[1])
	_, err = r.c.Leave(ctx, &group.LeaveRequest{})
	require.ErrorIs(t, err, kerr.InvalidGroupID)
	require.NoError(t, r.commit("g", 5))
	errs, err = r.c.DeleteOffsets(ctx, "g", []group.TopicPartition{{Topic: "t"}}, nil)
	require.NoError(t, err)
	require.Equal(t, []*kerr.Error{nil}, errs)
	r.requireCommitted("g", -1)
}
