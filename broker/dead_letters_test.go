package broker_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// work joins a share group that begins at the start of its topics.
func work(t *testing.T, b *broker.Broker, group string, topics ...string) *kgo.Client {
	t.Helper()
	return client(t, b, kgo.ShareGroup(group), kgo.ConsumeTopics(topics...), kgo.FetchMaxWait(200*time.Millisecond))
}

// handle takes n records and says of each what verdict does.
func handle(t *testing.T, w *kgo.Client, n int, verdict func(*kgo.Record) kgo.AckStatus) {
	t.Helper()
	for n > 0 {
		fetches := w.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			r.Ack(verdict(r))
			n--
		})
		require.NoError(t, w.FlushAcks(t.Context()))
	}
	require.Zero(t, n, "no record beyond those expected")
}

// rejecting rejects the records with one of the values, and accepts the others.
func rejecting(values ...string) func(*kgo.Record) kgo.AckStatus {
	return func(r *kgo.Record) kgo.AckStatus {
		for _, value := range values {
			if string(r.Value) == value {
				return kgo.AckReject
			}
		}
		return kgo.AckAccept
	}
}

// readAll reads n records of a topic from its start.
func readAll(t *testing.T, b *broker.Broker, topic string, n int) (records []*kgo.Record) {
	t.Helper()
	cl := client(t, b, kgo.ConsumeTopics(topic))
	defer cl.Close()
	for len(records) < n {
		fetches := cl.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		records = append(records, fetches.Records()...)
	}
	require.Len(t, records, n)
	return records
}

// letter is a dead letter in words.
func letter(r *kgo.Record) string {
	var words []string
	for _, h := range r.Headers {
		words = append(words, strings.TrimPrefix(h.Key, "__dlq.errors.")+"="+string(h.Value))
	}
	if r.Key != nil || r.Value != nil {
		words = append(words, fmt.Sprintf("%s:%s", r.Key, r.Value))
	}
	return strings.Join(words, " ")
}

// produceTo produces values, with their numbers as keys, to a partition.
func produceTo(t *testing.T, b *broker.Broker, topic string, partition int32, values ...string) {
	t.Helper()
	cl := client(t, b, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer cl.Close()
	for i, value := range values {
		r := &kgo.Record{Topic: topic, Partition: partition, Key: fmt.Appendf(nil, "k%d", i), Value: []byte(value)}
		require.NoError(t, cl.ProduceSync(t.Context(), r).FirstErr())
	}
}

// letterTopic creates a dead-letter topic.
func letterTopic(t *testing.T, adm *kadm.Client, partitions int32, name string) {
	t.Helper()
	enabled := "true"
	_, err := adm.CreateTopic(t.Context(), partitions, 1, map[string]*string{"errors.deadletterqueue.group.enable": &enabled}, name)
	require.NoError(t, err)
}

func alterTopic(t *testing.T, adm *kadm.Client, topic, name, value string) {
	t.Helper()
	_, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: name, Value: &value}}, topic)
	require.NoError(t, err)
}

// startOffset is where a share group starts in a partition: below it all is done.
func startOffset(t *testing.T, adm *kadm.Client, group, topic string, partition int32) int64 {
	t.Helper()
	described, err := adm.DescribeShareGroupOffsets(t.Context(), group)
	require.NoError(t, err)
	return described[group].Offsets[topic][partition].StartOffset
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, 20*time.Second, 10*time.Millisecond, what)
}

func quietly(c *broker.Config) { c.Logger = zap.NewNop() }

// TestRejectedAndExhaustedRecordsGetDeadLetters compares with what Apache Kafka 4.4 writes:
// headers whose values are text, to the partition with the record's number modulo the count.
func TestRejectedAndExhaustedRecordsGetDeadLetters(t *testing.T) {
	b := start(t, nil)
	cl := client(t, b)
	adm := kadm.NewClient(cl)
	createTopic(t, adm, 4, "orders")
	letterTopic(t, adm, 3, "dlq.orders")
	setGroup(t, cl, "g", "share.auto.offset.reset", "earliest", "share.delivery.count.limit", "2",
		"errors.deadletterqueue.topic.name", "dlq.orders")
	produceTo(t, b, "orders", 3, "fine", "poison", "slow", "fine too")
	w := work(t, b, "g", "orders")
	handle(t, w, 5, func(r *kgo.Record) kgo.AckStatus {
		switch string(r.Value) {
		case "poison":
			return kgo.AckReject
		case "slow":
			return kgo.AckRelease // twice, its limit
		}
		return kgo.AckAccept
	})
	letters := readAll(t, b, "dlq.orders", 2)
	require.Equal(t, "topic=orders partition=3 offset=1 group=g delivery.count=1 message=Offset rejected by client.", letter(letters[0]))
	require.Equal(t, "topic=orders partition=3 offset=2 group=g delivery.count=2 message=Offset delivery count exceeded the threshold.", letter(letters[1]))
	for _, r := range letters {
		require.EqualValues(t, 0, r.Partition, "3 modulo 3 partitions")
		require.WithinDuration(t, time.Now(), r.Timestamp, time.Minute, "the time of the writing")
	}
	eventually(t, "all is archived once its letter is durable", func() bool { return startOffset(t, adm, "g", "orders", 3) == 4 })
}

func TestDeadLettersCopyTheRecordWhenAsked(t *testing.T) {
	b := start(t, quietly)
	cl := client(t, b)
	adm := kadm.NewClient(cl)
	createTopic(t, adm, 1, "orders")
	letterTopic(t, adm, 1, "dlq.orders")
	alterTopic(t, adm, "dlq.orders", "max.message.bytes", "2000")
	setGroup(t, cl, "g", "share.auto.offset.reset", "earliest", "errors.deadletterqueue.topic.name", "dlq.orders",
		"errors.deadletterqueue.copy.record.enable", "true")
	large := strings.Repeat("x", 3000)
	produceTo(t, b, "orders", 0, "poison", large)
	require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Key: []byte("order-1"), Headers: []kgo.RecordHeader{{Key: "h"}}}).FirstErr())
	handle(t, work(t, b, "g", "orders"), 3, func(*kgo.Record) kgo.AckStatus { return kgo.AckReject })

	letters := readAll(t, b, "dlq.orders", 3)
	require.Equal(t, "topic=orders partition=0 offset=0 group=g delivery.count=1 message=Offset rejected by client. k0:poison", letter(letters[0]))
	require.Nil(t, letters[1].Value, "it does not fit in the topic; the headers say where it is")
	require.Contains(t, letter(letters[1]), "offset=1 ")
	require.Equal(t, "order-1", string(letters[2].Key))
	require.Nil(t, letters[2].Value, "a tombstone stays one")
	require.Len(t, letters[2].Headers, 6, "a record's own headers are not copied")
}

// TestManyDeadLettersShareBatches rejects more than fits in one batch of the topic.
func TestManyDeadLettersShareBatches(t *testing.T) {
	b := start(t, nil)
	cl := client(t, b)
	adm := kadm.NewClient(cl)
	createTopic(t, adm, 1, "orders")
	letterTopic(t, adm, 1, "dlq.orders")
	alterTopic(t, adm, "dlq.orders", "max.message.bytes", "4000")
	setGroup(t, cl, "g", "share.auto.offset.reset", "earliest", "errors.deadletterqueue.topic.name", "dlq.orders",
		"errors.deadletterqueue.copy.record.enable", "true")
	var records []*kgo.Record
	for i := range 300 {
		records = append(records, &kgo.Record{Topic: "orders", Value: fmt.Appendf(nil, "v%d", i)})
	}
	require.NoError(t, cl.ProduceSync(t.Context(), records...).FirstErr())
	handle(t, work(t, b, "g", "orders"), 300, func(*kgo.Record) kgo.AckStatus { return kgo.AckReject })
	seen := make(map[string]bool)
	for _, r := range readAll(t, b, "dlq.orders", 300) {
		require.Equal(t, fmt.Sprintf("offset=%s", strings.TrimPrefix(string(r.Value), "v")), strings.Fields(letter(r))[2])
		seen[string(r.Value)] = true
	}
	require.Len(t, seen, 300)
}

// TestDeadLettersWaitForTheirTopic holds that a record whose letter cannot be written is
// neither lost nor dealt again, holds up no other, and goes on as soon as it can.
func TestDeadLettersWaitForTheirTopic(t *testing.T) {
	for _, obstacle := range []string{"missing", "not enabled", "wrong prefix"} {
		t.Run(obstacle, func(t *testing.T) {
			b := start(t, quietly)
			cl := client(t, b)
			adm := kadm.NewClient(cl)
			createTopic(t, adm, 1, "orders")
			name := "dlq.orders"
			switch obstacle {
			case "not enabled":
				createTopic(t, adm, 1, name)
			case "wrong prefix":
				name = "letters"
				letterTopic(t, adm, 1, name)
			}
			setGroup(t, cl, "g", "share.auto.offset.reset", "earliest", "errors.deadletterqueue.topic.name", name)
			produceTo(t, b, "orders", 0, "a", "poison", "b")
			w := work(t, b, "g", "orders")
			handle(t, w, 3, rejecting("poison"))
			produceTo(t, b, "orders", 0, "c", "d")
			handle(t, w, 2, rejecting())
			require.EqualValues(t, 1, startOffset(t, adm, "g", "orders", 0))

			switch obstacle {
			case "missing":
				letterTopic(t, adm, 1, name)
			case "not enabled":
				alterTopic(t, adm, name, "errors.deadletterqueue.group.enable", "true")
			case "wrong prefix":
				prefix := "let"
				_, err := adm.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Name: "errors.deadletterqueue.topic.name.prefix", Value: &prefix}})
				require.NoError(t, err)
			}
			require.Contains(t, letter(readAll(t, b, name, 1)[0]), "offset=1 ")
			eventually(t, "it is archived", func() bool { return startOffset(t, adm, "g", "orders", 0) == 5 })
		})
	}
}

// TestDeadLettersEndWithTheirSetting holds that records do not wait for letters that the
// group wants no more.
func TestDeadLettersEndWithTheirSetting(t *testing.T) {
	b := start(t, quietly)
	cl := client(t, b)
	adm := kadm.NewClient(cl)
	createTopic(t, adm, 1, "orders")
	setGroup(t, cl, "g", "share.auto.offset.reset", "earliest", "errors.deadletterqueue.topic.name", "dlq.missing")
	produceTo(t, b, "orders", 0, "poison", "b")
	handle(t, work(t, b, "g", "orders"), 2, rejecting("poison"))
	require.Zero(t, startOffset(t, adm, "g", "orders", 0))
	setGroup(t, cl, "g", "errors.deadletterqueue.topic.name", "")
	eventually(t, "it is archived", func() bool { return startOffset(t, adm, "g", "orders", 0) == 2 })
}

func TestDeadLetterTopicsAreCreatedWhenAllowed(t *testing.T) {
	b := start(t, func(c *broker.Config) {
		c.Settings = map[string]string{"errors.deadletterqueue.auto.create.topics.enable": "true", "log.message.timestamp.type": "LogAppendTime"}
	})
	cl := client(t, b)
	adm := kadm.NewClient(cl)
	createTopic(t, adm, 1, "orders")
	setGroup(t, cl, "g", "share.auto.offset.reset", "earliest", "errors.deadletterqueue.topic.name", "dlq.made")
	produceTo(t, b, "orders", 0, "poison")
	handle(t, work(t, b, "g", "orders"), 1, rejecting("poison"))
	looking, err := kadm.NewOptClient(kgo.SeedBrokers(b.Addr())) // it makes no topics that it asks for
	require.NoError(t, err)
	defer looking.Close()
	eventually(t, "the topic is there", func() bool {
		topics, err := looking.ListTopics(t.Context(), "dlq.made")
		require.NoError(t, err)
		return topics["dlq.made"].Err == nil
	})
	require.Contains(t, letter(readAll(t, b, "dlq.made", 1)[0]), "topic=orders")
	described, err := adm.DescribeTopicConfigs(t.Context(), "dlq.made")
	require.NoError(t, err)
	for _, c := range described[0].Configs {
		switch c.Key {
		case "errors.deadletterqueue.group.enable":
			require.Equal(t, "true", *c.Value)
		case "message.timestamp.type":
			require.Equal(t, "CreateTime", *c.Value)
		}
	}
}

// TestADeadLetterTopicDoesNotFeedItself has a group fail on its own dead letters.
func TestADeadLetterTopicDoesNotFeedItself(t *testing.T) {
	b := start(t, nil)
	cl := client(t, b)
	adm := kadm.NewClient(cl)
	letterTopic(t, adm, 1, "dlq.orders")
	setGroup(t, cl, "g", "share.auto.offset.reset", "earliest", "errors.deadletterqueue.topic.name", "dlq.orders")
	produceTo(t, b, "dlq.orders", 0, "poison")
	handle(t, work(t, b, "g", "dlq.orders"), 1, rejecting("poison"))
	eventually(t, "it is archived", func() bool { return startOffset(t, adm, "g", "dlq.orders", 0) == 1 })
	ends, err := adm.ListEndOffsets(t.Context(), "dlq.orders")
	require.NoError(t, err)
	end, _ := ends.Lookup("dlq.orders", 0)
	require.EqualValues(t, 1, end.Offset)
}

// TestDeadLettersSurviveACrash crashes a broker that owes letters: they are written when
// the partition is worked on again, and their records are dealt to nobody.
func TestDeadLettersSurviveACrash(t *testing.T) {
	disk := vfs.NewCrashableMem()
	on := func(c *broker.Config) { c.FS, c.Logger = disk, zap.NewNop() }
	b := start(t, on)
	cl := client(t, b)
	adm := kadm.NewClient(cl)
	createTopic(t, adm, 1, "orders")
	setGroup(t, cl, "g", "share.auto.offset.reset", "earliest", "share.delivery.count.limit", "2", "errors.deadletterqueue.topic.name", "dlq.orders",
		"errors.deadletterqueue.copy.record.enable", "true")
	produceTo(t, b, "orders", 0, "poison", "slow", "b")
	w := work(t, b, "g", "orders")
	handle(t, w, 4, func(r *kgo.Record) kgo.AckStatus {
		if string(r.Value) == "slow" {
			return kgo.AckRelease
		}
		return rejecting("poison")(r)
	})
	w.Close()

	disk = disk.CrashClone(vfs.CrashCloneCfg{})
	b = start(t, on)
	adm = kadm.NewClient(client(t, b))
	letterTopic(t, adm, 1, "dlq.orders")
	produceTo(t, b, "orders", 0, "c")
	handle(t, work(t, b, "g", "orders"), 1, func(r *kgo.Record) kgo.AckStatus {
		require.Equal(t, "c", string(r.Value))
		return kgo.AckAccept
	})
	eventually(t, "all is done", func() bool { return startOffset(t, adm, "g", "orders", 0) == 4 })
	counts := make(map[string]int)
	for _, r := range readAll(t, b, "dlq.orders", 2) {
		counts[letter(r)]++
	}
	require.Equal(t, map[string]int{
		"topic=orders partition=0 offset=0 group=g delivery.count=1 message=Offset rejected by client. k0:poison":                  1,
		"topic=orders partition=0 offset=1 group=g delivery.count=2 message=Offset delivery count exceeded the threshold. k1:slow": 1,
	}, counts)
}

func TestTheNameOfADeadLetterTopicIsChecked(t *testing.T) {
	b := start(t, nil)
	name := "__consumer_offsets"
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{
		ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: "g",
		Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "errors.deadletterqueue.topic.name", Value: &name}},
	}}
	resp, err := req.RequestWith(t.Context(), client(t, b))
	require.NoError(t, err)
	require.Equal(t, kerr.InvalidConfig.Code, resp.Resources[0].ErrorCode)
}
