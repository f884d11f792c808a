package main

import (
	"context"
	"path"
	"strconv"
	"strings"
	"time"

	topicids "github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/commitlog/logtest"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// hang TOPIC PRODUCER leaves a transaction of an hour ago open in partition 0 of a topic, by
// writing to its log while the broker is stopped. The producer is an id, or a transactional
// id, whose coordinator does not hear of it.
func hang(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: hang TOPIC PRODUCER")
	}
	ctx := context.Background()
	cl, err := kgo.NewClient(kgo.SeedBrokers(ts.Getenv("LACUNA_BOOTSTRAP")))
	ts.Check(err)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	topics, err := adm.ListTopics(ctx, args[0])
	ts.Check(err)
	producer, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		described, err := adm.DescribeTransactions(ctx, args[1])
		ts.Check(err)
		producer = described[args[1]].ProducerID
	}
	under := ts.Value(underTest{}).(*scriptBroker)
	ts.Check(under.stop())
	dir := path.Join("data", "topics", topicids.TopicID(topics[args[0]].ID).String(), "0")
	logtest.LeaveOpen(under.t, under.config.FS, dir, logtest.InTxn(producer, 0, 0), time.Now().Add(-time.Hour).UnixMilli())
	ts.Check(under.start())
	ts.Setenv("LACUNA_BOOTSTRAP", under.Addr())
	ts.Setenv("ADMIN", under.AdminAddr())
}

// openTransaction ID GROUP TOPIC OFFSET leaves a transaction open that has written a record
// to partition 0 of the topic, and acknowledged one of it for a group, or with plain:OFFSET
// committed as a stock consumer does. Of a share group it does so as the first member.
func openTransaction(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: open-transaction ID GROUP TOPIC OFFSET")
	}
	number, plain := strings.CutPrefix(args[3], "plain:")
	offset, err := strconv.ParseInt(number, 10, 64)
	ts.Check(err)
	ctx := context.Background()
	cl, err := kgo.NewClient(kgo.SeedBrokers(ts.Getenv("LACUNA_BOOTSTRAP")), kgo.TransactionalID(args[0]), kgo.DefaultProduceTopic(args[2]),
		kgo.TransactionTimeout(60e9))
	ts.Check(err)
	ts.Defer(cl.Close)
	ts.Check(cl.BeginTransaction())
	ts.Check(cl.ProduceSync(ctx, kgo.StringRecord("unheard")).FirstErr())
	id, epoch, err := cl.ProducerID(ctx)
	ts.Check(err)

	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = args[0], args[1], id, epoch
	if g := describeShareGroup(ctx, kadm.NewClient(cl), args[1]); g != nil {
		req.MemberID, req.Generation = g.Members[0].MemberID, g.Members[0].MemberEpoch
	}
	metadata := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &args[2]
	metadata.Topics = append(metadata.Topics, topic)
	found, err := metadata.RequestWith(ctx, cl)
	ts.Check(err)
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic, t.TopicID = args[2], found.Topics[0].TopicID
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	if p.Offset = offset; !plain {
		p.Offset = -1
		individual := protocol.IndividualOffsets{Commit: []protocol.Run{{Start: offset, End: offset + 1}}, Origin: protocol.NoOrigin}
		p.UnknownTags.Set(protocol.ExtensionTag, individual.AppendTo(nil))
	}
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	ts.Check(err)
	ts.Check(kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode))
}
