package main

// W7 on a broker with the key filter of docs/protocol.md: read one slot range of every partition by raw
// Fetch requests, follow ScannedTo, count what came over the wire.

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const extTag = 10000

func filterCmd(args []string) {
	fs := flag.NewFlagSet("filter", flag.ExitOnError)
	common(fs)
	slots := fs.String("slots", "0-4095", "inclusive slot range LO-HI; the default is 1/16 of the slots")
	fs.Parse(args)
	var lo, hi uint16
	if _, err := fmt.Sscanf(*slots, "%d-%d", &lo, &hi); err != nil {
		die(fmt.Errorf("-slots %q: want LO-HI", *slots))
	}
	tag := []byte{2}
	tag = binary.BigEndian.AppendUint16(tag, lo)
	tag = binary.BigEndian.AppendUint16(tag, hi)
	tag = append(tag, 1, 0)

	cl, err := client()
	die(err)
	defer cl.Close()
	ctx, c := context.WithTimeout(context.Background(), time.Duration(secs*float64(time.Second)))
	defer c()
	adm := kadm.NewClient(cl)
	td, err := adm.ListTopics(ctx, topic)
	die(err)
	ends, err := adm.ListEndOffsets(ctx, topic)
	die(err)

	run := load.Begin(pid)
	r0 := rx.Load()
	var wanted int64
	for p, d := range td[topic].Partitions {
		end, _ := ends.Lookup(topic, p)
		for at := int64(0); at < end.Offset && ctx.Err() == nil; {
			req := kmsg.NewPtrFetchRequest()
			req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 200, 1, 50<<20, -1
			req.UnknownTags.Set(extTag, tag)
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = topic, td[topic].ID
			rp := kmsg.NewFetchRequestTopicPartition()
			rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = p, at, 4<<20, -1
			t.Partitions = append(t.Partitions, rp)
			req.Topics = append(req.Topics, t)
			resp, err := cl.Broker(int(d.Leader)).RetriableRequest(ctx, req)
			die(err)
			fr := resp.(*kmsg.FetchResponse)
			die(kerr.ErrorForCode(fr.ErrorCode))
			fp := &fr.Topics[0].Partitions[0]
			next := int64(-1)
			fp.UnknownTags.Each(func(k uint32, v []byte) {
				if k == extTag && len(v) >= 8 {
					next = int64(binary.BigEndian.Uint64(v))
				}
			})
			if next < 0 {
				die(errors.New("no ScannedTo in the answer: this broker does not filter"))
			}
			out, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: topic, Partition: p, Offset: at}, fp, kgo.DefaultDecompressor(), nil)
			die(out.Err)
			wanted += int64(len(out.Records))
			at = next
		}
	}
	m := map[string]any{"w": "keyrange-server", "label": label, "size": size, "slots": *slots, "wanted": wanted}
	run.End(m, wanted)
	if wanted > 0 {
		m["rx_b_wanted"] = load.R3(float64(rx.Load()-r0) / float64(wanted))
		m["cpu_us_wanted"] = load.R3(m["cpu_broker"].(float64) / float64(wanted) * 1e6)
	}
	load.Emit(outFile, m)
}
