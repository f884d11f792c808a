package main

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/processor"
	"github.com/lacunamq/lacuna/processor/assignor"
)

// process GROUP TOPIC NAME N opens a member of a processor group, which is there until the
// script ends, and returns when it has processed N records.
func process(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: process GROUP TOPIC NAME N")
	}
	n, err := strconv.Atoi(args[3])
	ts.Check(err)
	done, processed := make(chan struct{}), new(atomic.Int64)
	a := openProcessors(ts, args[0], args[1], args[2], func(*processor.Context, *kgo.Record) error { return nil },
		processor.InitialBuckets(1), processor.OnEvents(processor.Hooks{Committed: func(_ int32, records, _ int) {
			if all := processed.Add(int64(records)); all >= int64(n) && all-int64(records) < int64(n) {
				close(done)
			}
		}}))
	waitFor(ts, a, done)
}

// rebuild GROUP TOPIC NAME opens a member of a processor group that does not get on with
// what it is assigned to rebuild until the script ends.
func rebuild(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: rebuild GROUP TOPIC NAME")
	}
	assigned, end := make(chan struct{}, 1), make(chan struct{})
	stuck := func(*processor.Context, *kgo.Record) error { <-end; return nil }
	a := openProcessors(ts, args[0], args[1], args[2], stuck, processor.HandOverThreshold(0),
		processor.OnEvents(processor.Hooks{Assigned: func(tasks []processor.TaskStatus) {
			if len(tasks) > 0 && len(tasks[0].Rebuild) > 0 {
				select {
				case assigned <- struct{}{}:
				default:
				}
			}
		}}))
	ts.Defer(func() { close(end) })
	waitFor(ts, a, assigned)
}

// waitFor waits for something that a member does, unless it fails.
func waitFor(ts *testscript.TestScript, a *processor.App, done <-chan struct{}) {
	select {
	case <-done:
	case <-a.Failed():
		ts.Fatalf("%v", a.Err())
	}
}

func openProcessors(ts *testscript.TestScript, group, topic, name string, f func(*processor.Context, *kgo.Record) error, opts ...processor.Option) *processor.App {
	topology := processor.Topology{Inputs: []string{topic}, Processors: []processor.Node{{Name: "p", New: processor.ProcessFunc(f)}}}
	a, err := processor.Open(context.Background(), group, topology, append(opts, processor.Name(name),
		processor.StateDir(ts.MkAbs(name)), processor.SeedBrokers(ts.Getenv("LACUNA_BOOTSTRAP")))...)
	ts.Check(err)
	ts.Defer(func() { ts.Check(a.Close(context.Background())) })
	return a
}

// consumer GROUP TOPIC opens a consumer of a group that divides partitions by ranges, which is
// there until the script ends.
func consumer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: consumer GROUP TOPIC")
	}
	assigned := make(chan struct{})
	cl, err := kgo.NewClient(kgo.SeedBrokers(ts.Getenv("LACUNA_BOOTSTRAP")), kgo.ConsumerGroup(args[0]), kgo.ConsumeTopics(args[1]),
		kgo.Balancers(kgo.RangeBalancer()), kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { close(assigned) }))
	ts.Check(err)
	ts.Defer(cl.Close)
	<-assigned
}

// What members said and were told is shown of those who said it.
func TestProcessorsAreDescribed(t *testing.T) {
	left, right := assignor.NewArea(assignor.Span{From: 0, To: 32768}), assignor.NewArea(assignor.Span{From: 32768, To: 65536})
	plan := assignor.Assignment{Group: assignor.Group{Initial: 1, Topics: map[string]assignor.Topic{"in": {Partitions: 2, Fold: 1}}},
		Holders: []string{"a", "b"}, Idle: []string{"c"}}
	told := func(tasks ...assignor.Task) assignor.Assignment {
		own := plan
		own.Tasks = tasks
		return own
	}
	member := func(id string) kadm.DescribedGroupMember { return kadm.DescribedGroupMember{MemberID: id} }
	said := []saidMember{
		{DescribedGroupMember: member("c"), claim: assignor.Claim{Name: "w3"}, assignment: told()},
		{DescribedGroupMember: member("b"), assignment: told(assignor.Task{Bucket: 1, Rebuild: right}),
			claim: assignor.Claim{Name: "w2", Tasks: []assignor.TaskState{{Bucket: 1, Rebuild: right, Lag: 12, Reached: []assignor.Reached{
				{Topic: "in", Slots: assignor.Slots{Partition: 0, Lo: 40000, Hi: 65535}, Next: 9},
				{Topic: "in", Slots: assignor.Slots{Partition: 0, Lo: 32768, Hi: 39999}, Next: 7},
				{Topic: "in", Slots: assignor.Slots{Partition: 1, Lo: 40000, Hi: 65535}, Next: 5}}}}}},
		{DescribedGroupMember: member("a"), assignment: told(assignor.Task{Bucket: 0, Active: left.Union(right)}),
			claim: assignor.Claim{Name: "w1"}},
	}
	var d describedProcessors
	d.add(said)

	require.Equal(t, 2, d.Buckets)
	require.EqualValues(t, 1, d.InitialBuckets)
	lag, next := int64(12), int64(7)
	require.Equal(t, []processorMember{
		{ID: "a", Name: "w1", Tasks: []processorTask{{Bucket: 0, Active: []processorSlots{{"in", 0, 0, 65535, nil}, {"in", 1, 0, 65535, nil}}}}},
		{ID: "b", Name: "w2", Tasks: []processorTask{{Bucket: 1, SaidLag: &lag, Rebuild: []processorSlots{{"in", 0, 32768, 65535, &next}, {"in", 1, 32768, 65535, nil}}}}},
		{ID: "c", Name: "w3", Idle: true},
	}, d.Members)
}

// The lag of a rebuild that began with this generation was not said, and is not 0.
func TestALagThatNobodySaid(t *testing.T) {
	area := assignor.NewArea(assignor.Span{From: 0, To: 10})
	claim := assignor.Claim{Tasks: []assignor.TaskState{{Bucket: 1, Active: area}, {Bucket: 2, Rebuild: area, Lag: 3}}}
	require.Nil(t, saidLag(&claim, assignor.Task{Bucket: 1, Rebuild: area}))
	require.Nil(t, saidLag(&claim, assignor.Task{Bucket: 2, Active: area}))
	require.EqualValues(t, 3, *saidLag(&claim, assignor.Task{Bucket: 2, Rebuild: area}))
}
