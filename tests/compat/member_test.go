package compat

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// An event is what a member of a group tells of itself. Kafka's VerifiableConsumer prints
// such events; the other members here speak its words.
type event struct {
	Name       string
	Partitions []struct {
		Partition int32
		MinOffset int64
		MaxOffset int64
	}
}

// A memberKind starts members of one client. A member runs until its context ends, then
// leaves its group; tell takes its events, from one goroutine at a time. The assignor is
// eager ("range") or "cooperative-sticky".
type memberKind struct {
	name string
	run  func(ctx context.Context, addr, topic, group, assignor string, tell func(event)) error
}

var memberKinds = []memberKind{
	{"librdkafka", runPythonMember},
	{"java", runJavaMember},
	{"kgo", runKgoMember},
}

func runPythonMember(ctx context.Context, addr, topic, group, assignor string, tell func(event)) error {
	return runTellingMember(ctx, tell, python(), "python/member.py", addr, topic, group, assignor)
}

var javaAssignors = map[string]string{
	"range":              "org.apache.kafka.clients.consumer.RangeAssignor",
	"cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}

func runJavaMember(ctx context.Context, addr, topic, group, assignor string, tell func(event)) error {
	return runTellingMember(ctx, tell, kafkaScript, "run", kafkaDir(), toolsPackage+"VerifiableConsumer",
		"--bootstrap-server", addr, "--topic", topic, "--group-id", group, "--reset-policy", "earliest",
		"--session-timeout", "6000", "--assignment-strategy", javaAssignors[assignor])
}

// runTellingMember runs a program that prints events.
func runTellingMember(ctx context.Context, tell func(event), name string, args ...string) error {
	err := run(ctx, nil, func(line []byte) error {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("not an event: %q: %w", line, err)
		}
		tell(e)
		return nil
	}, name, args...)
	if ctx.Err() != nil {
		return nil // it was told to leave; how it exits is its own business
	}
	return err
}

var kgoBalancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

func runKgoMember(ctx context.Context, addr, topic, group, assignor string, tell func(event)) error {
	tellPartitions := func(name string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
			e := event{Name: name}
			for _, p := range topics[topic] {
				e.add(p, 0, 0)
			}
			tell(e)
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.Balancers(kgoBalancers[assignor]), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(tellPartitions("partitions_assigned")),
		kgo.OnPartitionsRevoked(tellPartitions("partitions_revoked")),
		kgo.OnPartitionsLost(tellPartitions("partitions_lost")))
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil && ctx.Err() == nil {
			return err
		}
		if fetches.NumRecords() > 0 {
			e := event{Name: "records_consumed"}
			fetches.EachRecord(func(r *kgo.Record) { e.add(r.Partition, r.Offset, r.Offset) })
			tell(e)
			if err := client.CommitUncommittedOffsets(context.WithoutCancel(ctx)); err != nil {
				return err
			}
		}
		client.AllowRebalance()
	}
	return nil
}

func (e *event) add(partition int32, first, last int64) {
	e.Partitions = append(e.Partitions, struct {
		Partition            int32
		MinOffset, MaxOffset int64
	}{partition, first, last})
}
