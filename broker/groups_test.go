package broker_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// quickGroups lets groups begin without waiting for more members.
func quickGroups(c *broker.Config) {
	c.Settings = map[string]string{
		"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100", "num.partitions": "6",
	}
}

// fill makes a topic of 6 partitions with n records in each.
func fill(t *testing.T, b *broker.Broker, topic string, n int) *kadm.Client {
	t.Helper()
	cl := client(t, b, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	adm := kadm.NewClient(cl)
	_, err := adm.CreateTopic(t.Context(), 6, 1, nil, topic)
	require.NoError(t, err)
	for p := range int32(6) {
		for i := range n {
			cl.Produce(t.Context(), &kgo.Record{Topic: topic, Partition: p, Value: fmt.Appendf(nil, "%d-%d", p, i)}, nil)
		}
	}
	require.NoError(t, cl.Flush(t.Context()))
	return adm
}

// worker is a consumer of a group that says what it is assigned.
type worker struct {
	cl       *kgo.Client
	mu       sync.Mutex
	assigned map[int32]bool
	changed  chan struct{}
}

func join(t *testing.T, b *broker.Broker, group, topic string, opts ...kgo.Opt) *worker {
	t.Helper()
	w := &worker{assigned: make(map[int32]bool), changed: make(chan struct{}, 1)}
	note := func(has bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, p := range m[topic] {
				if has {
					w.assigned[p] = true
				} else {
					delete(w.assigned, p)
				}
			}
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
	}
	w.cl = client(t, b, append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.HeartbeatInterval(50 * time.Millisecond),
		kgo.OnPartitionsAssigned(note(true)), kgo.OnPartitionsRevoked(note(false)), kgo.OnPartitionsLost(note(false)),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100 * time.Millisecond),
	}, opts...)...)
	return w
}

func (w *worker) partitions() []int32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]int32, 0, len(w.assigned))
	for p := range w.assigned {
		list = append(list, p)
	}
	slices.Sort(list)
	return list
}

// await waits until the workers share all 6 partitions, each has at least one, and none
// is in two hands.
func await(t *testing.T, workers ...*worker) {
	t.Helper()
	var cases []reflect.SelectCase
	for _, w := range workers {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(w.changed)})
	}
	cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(time.After(20 * time.Second))})
	for {
		var all []int32
		least := 6
		for _, w := range workers {
			list := w.partitions()
			all = append(all, list...)
			least = min(least, len(list))
		}
		slices.Sort(all)
		if slices.Equal(all, []int32{0, 1, 2, 3, 4, 5}) && least > 0 {
			return
		}
		chosen, _, _ := reflect.Select(cases)
		if chosen == len(workers) {
			t.Fatalf("partitions are held as %v", all)
		}
	}
}

// awaitStable waits until no rebalance of a group is under way, and describes it. Two
// cooperative members that gave partitions up may cause one each, and the second changes
// nothing any more.
func awaitStable(t *testing.T, adm *kadm.Client, group string) kadm.DescribedGroup {
	t.Helper()
	for giveUp := time.Now().Add(20 * time.Second); ; {
		described, err := adm.DescribeGroups(t.Context(), group)
		require.NoError(t, err)
		g := described[group]
		require.NoError(t, g.Err)
		if g.State == "Stable" {
			return g
		}
		require.True(t, time.Now().Before(giveUp), "the group stays %s", g.State)
	}
}

func TestConsumerGroups(t *testing.T) {
	for name, balancer := range map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "round robin": kgo.RoundRobinBalancer(),
		"sticky": kgo.StickyBalancer(), "cooperative sticky": kgo.CooperativeStickyBalancer(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, quickGroups)
			adm := fill(t, b, "letters", 50)
			first := join(t, b, "readers", "letters", kgo.Balancers(balancer))
			await(t, first)
			second := join(t, b, "readers", "letters", kgo.Balancers(balancer))
			await(t, first, second)
			third := join(t, b, "readers", "letters", kgo.Balancers(balancer))
			await(t, first, second, third)

			g := awaitStable(t, adm, "readers")
			require.Len(t, g.Members, 3)
			require.Len(t, g.AssignedPartitions()["letters"], 6)

			second.cl.Close()
			await(t, first, third)
			first.cl.Close()
			await(t, third)
		})
	}
}

// TestGroupReadsEachRecordOnce lets members come and go while a group reads: with commits
// at each hand-over every record is read, and none after its commit.
func TestGroupReadsEachRecordOnce(t *testing.T) {
	b := start(t, quickGroups)
	const n = 200
	fill(t, b, "letters", n)
	var mu sync.Mutex
	seen := make(map[string]int)
	read := func(w *worker, enough int) {
		for {
			fetches := w.cl.PollRecords(t.Context(), 20)
			mu.Lock()
			fetches.EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++ })
			total := len(seen)
			mu.Unlock()
			if err := w.cl.CommitUncommittedOffsets(t.Context()); err != nil {
				t.Error(err)
				return
			}
			w.cl.AllowRebalance()
			if total >= enough || t.Context().Err() != nil {
				return
			}
		}
	}
	opts := []kgo.Opt{kgo.BlockRebalanceOnPoll(), kgo.DisableAutoCommit()}
	a := join(t, b, "readers", "letters", opts...)
	read(a, n)
	c := join(t, b, "readers", "letters", opts...)
	var both sync.WaitGroup
	both.Go(func() { read(a, 3*n) })
	both.Go(func() { read(c, 3*n) })
	both.Wait()
	a.cl.CloseAllowingRebalance()
	read(c, 6*n)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, seen, 6*n)
	for value, times := range seen {
		require.Equal(t, 1, times, value)
	}
}

func TestStaticMemberReturnsWithoutRebalance(t *testing.T) {
	b := start(t, quickGroups)
	adm := fill(t, b, "letters", 1)
	first := join(t, b, "readers", "letters", kgo.InstanceID("one"))
	second := join(t, b, "readers", "letters", kgo.InstanceID("two"))
	await(t, first, second)
	held := second.partitions()
	_, generation := first.cl.GroupMetadata()

	second.cl.Close() // a static member does not leave
	again := join(t, b, "readers", "letters", kgo.InstanceID("two"))
	await(t, first, again)
	require.Equal(t, held, again.partitions())
	_, after := again.cl.GroupMetadata()
	require.Equal(t, generation, after)

	again.cl.Close()
	_, err := adm.LeaveGroup(t.Context(), kadm.LeaveGroup("readers").InstanceIDs("two").Reason("operator"))
	require.NoError(t, err)
	await(t, first)
}

func TestAdminGroups(t *testing.T) {
	b := start(t, func(c *broker.Config) {
		quickGroups(c)
		c.Settings["auto.create.topics.enable"] = "false"
	})
	adm := fill(t, b, "letters", 3)
	ctx := t.Context()
	w := join(t, b, "readers", "letters")
	await(t, w)
	var offsets kadm.Offsets
	offsets.AddOffset("letters", 0, 2, -1)
	offsets.AddOffset("letters", 5, 1, 0)
	offsets.AddOffset("letters", 6, 1, 0)
	offsets.AddOffset("nothing", 0, 1, 0)
	committed, err := adm.CommitOffsets(ctx, "simple", offsets)
	require.NoError(t, err)
	ok, _ := committed.Lookup("letters", 0)
	require.NoError(t, ok.Err)
	beyond, _ := committed.Lookup("letters", 6)
	require.ErrorIs(t, beyond.Err, kerr.UnknownTopicOrPartition)
	unknown, _ := committed.Lookup("nothing", 0)
	require.ErrorIs(t, unknown.Err, kerr.UnknownTopicOrPartition)

	fetched, err := adm.FetchOffsets(ctx, "simple")
	require.NoError(t, err)
	require.Len(t, fetched.Offsets()["letters"], 2)
	at, _ := fetched.Lookup("letters", 5)
	require.EqualValues(t, 1, at.At)

	listed, err := adm.ListGroups(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"readers", "simple"}, listed.Groups())
	listed, err = adm.ListGroups(ctx, "Stable")
	require.NoError(t, err)
	require.Equal(t, []string{"readers"}, listed.Groups())

	lag, err := adm.Lag(ctx, "simple")
	require.NoError(t, err)
	simple := lag["simple"]
	require.NoError(t, simple.Error())

	deleted, err := adm.DeleteGroups(ctx, "readers", "nobody")
	require.NoError(t, err)
	require.ErrorIs(t, deleted["readers"].Err, kerr.NonEmptyGroup)
	require.ErrorIs(t, deleted["nobody"].Err, kerr.GroupIDNotFound)
	var gone kadm.TopicsSet
	gone.Add("letters", 0)
	removed, err := adm.DeleteOffsets(ctx, "readers", gone)
	require.NoError(t, err)
	require.ErrorIs(t, removed["letters"][0], kerr.GroupSubscribedToTopic)
	removed, err = adm.DeleteOffsets(ctx, "simple", gone)
	require.NoError(t, err)
	require.NoError(t, removed["letters"][0])
	fetched, err = adm.FetchOffsets(ctx, "simple")
	require.NoError(t, err)
	require.Len(t, fetched.Offsets()["letters"], 1)
	_, err = adm.DeleteGroup(ctx, "simple")
	require.NoError(t, err)
	listed, err = adm.ListGroups(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"readers"}, listed.Groups())
}

// TestOffsetsOfARecreatedTopic holds that a topic made anew under an old name has nothing
// of the old one's.
func TestOffsetsOfARecreatedTopic(t *testing.T) {
	b := start(t, quickGroups)
	adm := fill(t, b, "letters", 3)
	ctx := t.Context()
	var offsets kadm.Offsets
	offsets.AddOffset("letters", 0, 2, -1)
	require.NoError(t, adm.CommitAllOffsets(ctx, "simple", offsets))
	_, err := adm.DeleteTopic(ctx, "letters")
	require.NoError(t, err)
	_, err = adm.CreateTopic(ctx, 6, 1, nil, "letters")
	require.NoError(t, err)
	fetched, err := adm.FetchOffsets(ctx, "simple")
	require.NoError(t, err)
	require.Empty(t, fetched.Offsets()["letters"])
}

// TestGroupsSurviveARestart holds that a group's offsets are there after a restart, and
// its members go on.
func TestGroupsSurviveARestart(t *testing.T) {
	fs := vfs.NewMem()
	addr := "127.0.0.1:0"
	change := func(c *broker.Config) {
		quickGroups(c)
		c.FS, c.Listen = fs, []string{addr}
	}
	b := start(t, change)
	addr = b.Addr()
	fill(t, b, "letters", 3)
	w := join(t, b, "readers", "letters", kgo.SessionTimeout(20*time.Second), kgo.DisableAutoCommit())
	await(t, w)
	read := 0
	for read < 18 {
		read += w.cl.PollFetches(t.Context()).NumRecords()
	}
	require.NoError(t, w.cl.CommitUncommittedOffsets(t.Context()))
	_, generation := w.cl.GroupMetadata()
	stop(t, b)

	again := start(t, change)
	adm := kadm.NewClient(client(t, again))
	fetched, err := adm.FetchOffsets(t.Context(), "readers")
	require.NoError(t, err)
	require.Len(t, fetched.Offsets()["letters"], 6)
	fetched.Each(func(o kadm.OffsetResponse) { require.EqualValues(t, 3, o.At) })
	described, err := adm.DescribeGroups(t.Context(), "readers")
	require.NoError(t, err)
	require.Equal(t, "Stable", described["readers"].State)
	require.Len(t, described["readers"].Members, 1)
	require.NoError(t, w.cl.CommitRecords(t.Context(), &kgo.Record{Topic: "letters", Partition: 0, Offset: 2}))
	_, after := w.cl.GroupMetadata()
	require.Equal(t, generation, after)
}

// TestStopAnswersParkedRequests holds that a member which waits for a rebalance when the
// broker stops is told to look for its coordinator again.
func TestStopAnswersParkedRequests(t *testing.T) {
	b := start(t, quickGroups)
	s := newGroupScript(t, b.Addr())
	waits := s.begin(joinRequest("g", ""), 3)
	leader := waits.end("").(*kmsg.JoinGroupResponse).MemberID
	assign := s.begin(syncRequest("g", leader, 1, leader), 3)
	assign.end("")
	waits = s.begin(joinRequest("g", ""), 3)
	s.until(heartbeatRequest("g", leader, 1), kerr.RebalanceInProgress.Code)
	stop(t, b)
	answer := waits.end("").(*kmsg.JoinGroupResponse)
	require.Equal(t, kerr.CoordinatorNotAvailable.Code, answer.ErrorCode)
}

// TestCrashLowersCommittedOffsets holds that an offset which was committed for records
// that a crash then took away skips nothing of what comes later.
func TestCrashLowersCommittedOffsets(t *testing.T) {
	fs := vfs.NewCrashableMem()
	change := func(c *broker.Config) {
		quickGroups(c)
		c.FS = fs
	}
	b := start(t, change)
	ctx := t.Context()
	cl := client(t, b, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	adm := kadm.NewClient(cl)
	// Its records are answered for when they are written, and synced hours later.
	lazy := map[string]*string{"flush.ms": kmsg.StringPtr("36000000")}
	_, err := adm.CreateTopic(ctx, 1, 1, lazy, "letters")
	require.NoError(t, err)
	_, err = adm.CreateTopic(ctx, 1, 1, nil, "kept")
	require.NoError(t, err)
	for _, topic := range []string{"letters", "kept"} {
		for range 10 {
			require.NoError(t, cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr())
		}
	}
	var offsets kadm.Offsets
	offsets.AddOffset("letters", 0, 10, -1)
	offsets.AddOffset("kept", 0, 10, -1)
	require.NoError(t, adm.CommitAllOffsets(ctx, "readers", offsets))
	fs = fs.CrashClone(vfs.CrashCloneCfg{})

	again := start(t, change)
	adm = kadm.NewClient(client(t, again))
	ends, err := adm.ListEndOffsets(ctx, "letters", "kept")
	require.NoError(t, err)
	end, _ := ends.Lookup("letters", 0)
	require.Less(t, end.Offset, int64(10), "the crash took nothing away, and the test shows nothing")
	fetched, err := adm.FetchOffsets(ctx, "readers")
	require.NoError(t, err)
	at, _ := fetched.Lookup("letters", 0)
	require.Equal(t, end.Offset, at.At)
	at, _ = fetched.Lookup("kept", 0)
	require.EqualValues(t, 10, at.At)
}

// TestOffsetsTopic holds that __consumer_offsets is Kafka's to the byte, and that a client
// reads it like any topic.
func TestOffsetsTopic(t *testing.T) {
	b := start(t, quickGroups)
	adm := fill(t, b, "letters", 1)
	w := join(t, b, "readers", "letters", kgo.DisableAutoCommit())
	await(t, w)
	var offsets kadm.Offsets
	offsets.AddOffset("letters", 0, 1, 0)
	require.NoError(t, adm.CommitAllOffsets(t.Context(), "simple", offsets))
	cl := client(t, b, kgo.ConsumeTopics("__consumer_offsets"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var generations []int32
	var committed *kmsg.OffsetCommitValue
	for committed == nil || !slices.Contains(generations, 1) {
		cl.PollFetches(t.Context()).EachRecord(func(r *kgo.Record) {
			switch r.Key[1] {
			case 1:
				k, v := kmsg.NewOffsetCommitKey(), kmsg.NewOffsetCommitValue()
				require.NoError(t, k.ReadFrom(r.Key))
				require.NoError(t, v.ReadFrom(r.Value))
				require.Equal(t, "simple", k.Group)
				committed = &v
			case 2:
				v := kmsg.NewGroupMetadataValue()
				require.NoError(t, v.ReadFrom(r.Value))
				generations = append(generations, v.Generation)
			}
		})
	}
	require.EqualValues(t, 4, committed.Version)
	require.EqualValues(t, 1, committed.Offset)
	topics, err := adm.ListTopics(t.Context(), "letters")
	require.NoError(t, err)
	require.EqualValues(t, topics["letters"].ID, committed.TopicID)
}
