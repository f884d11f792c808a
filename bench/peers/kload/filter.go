package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/lacunamq/lacuna/bench/peers/load"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// extensionTag is the tagged field of Lacuna's extension, docs/protocol.md.
const extensionTag = 10000

// filterCommand reads one slot range of every partition with the broker's key filter, by
// raw Fetch requests that follow ScannedTo, and counts what came over the wire.
func filterCommand(args []string) {
	fs := flags("filter")
	slots := fs.String("slots", "0-4095", "inclusive slot range LO-HI; the default is 1/16 of the slots")
	load.Check(fs.Parse(args))
	tag, err := slotFilter(*slots)
	load.Check(err)
	cl, err := client()
	load.Check(err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), settings.Cap())
	defer cancel()
	admin := kadm.NewClient(cl)
	topics, err := admin.ListTopics(ctx, settings.Topic)
	load.Check(err)
	ends, err := admin.ListEndOffsets(ctx, settings.Topic)
	load.Check(err)

	run := load.Begin(settings.Pid)
	before := traffic.RX.Load()
	var wanted int64
	topic := topics[settings.Topic]
	for _, p := range topic.Partitions {
		end, _ := ends.Lookup(settings.Topic, p.Partition)
		for at := int64(0); at < end.Offset && ctx.Err() == nil; {
			n, next, err := filteredFetch(ctx, cl, topic.ID, p, at, tag)
			load.Check(err)
			wanted += n
			at = next
		}
	}
	m := map[string]any{"w": "keyrange-server", "label": settings.Label, "size": settings.Size, "slots": *slots, "wanted": wanted}
	run.End(m, wanted)
	if wanted > 0 {
		m["rx_b_wanted"] = load.R3(float64(traffic.RX.Load()-before) / float64(wanted))
		m["cpu_us_wanted"] = load.R3(m["cpu_broker"].(float64) / float64(wanted) * 1e6)
	}
	load.Emit(settings.Out, m)
}

// slotFilter is the extension's field for one inclusive slot range, "LO-HI": a compact
// array of one range, no keys, no tags.
func slotFilter(slots string) ([]byte, error) {
	var lo, hi uint16
	if _, err := fmt.Sscanf(slots, "%d-%d", &lo, &hi); err != nil {
		return nil, fmt.Errorf("-slots %q: want LO-HI: %w", slots, err)
	}
	tag := []byte{2}
	tag = binary.BigEndian.AppendUint16(tag, lo)
	tag = binary.BigEndian.AppendUint16(tag, hi)
	return append(tag, 1, 0), nil
}

// filteredFetch asks once for the matching records from an offset on. It returns how many
// came, and how far the broker scanned.
func filteredFetch(ctx context.Context, cl *kgo.Client, id kadm.TopicID, p kadm.PartitionDetail, from int64, tag []byte) (records, next int64, err error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 200, 1, 50<<20, -1
	req.UnknownTags.Set(extensionTag, tag)
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = settings.Topic, id
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = p.Partition, from, 4<<20, -1
	t.Partitions = append(t.Partitions, rp)
	req.Topics = append(req.Topics, t)
	answer, err := cl.Broker(int(p.Leader)).RetriableRequest(ctx, req)
	if err != nil {
		return 0, 0, err
	}
	resp := answer.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return 0, 0, err
	}
	fetched := &resp.Topics[0].Partitions[0]
	next = -1
	fetched.UnknownTags.Each(func(k uint32, v []byte) {
		if k == extensionTag && len(v) >= 8 {
			next = int64(binary.BigEndian.Uint64(v))
		}
	})
	if next < 0 {
		return 0, 0, errors.New("no ScannedTo in the answer: this broker does not filter")
	}
	out, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: settings.Topic, Partition: p.Partition, Offset: from},
		fetched, kgo.DefaultDecompressor(), nil)
	return int64(len(out.Records)), next, out.Err
}
