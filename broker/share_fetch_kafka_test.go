package broker_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestShareFetchesAnswerAsKafkaDoes compares the answers to share fetches and
// acknowledgements, wrong ones above all, with those that Apache Kafka 4.4.0 gave. They are
// recorded as those of TestShareGroupsAnswerAsKafkaDoes, with a Kafka of its own.
func TestShareFetchesAnswerAsKafkaDoes(t *testing.T) {
	requireKafkasAnswers(t, "testdata/share_fetch_kafka_4_4.txt", withoutAutoCreation, func(addr string) string {
		s := &fetchScript{shareScript: shareScript{groupScript: *newGroupScript(t, addr)}}
		s.run()
		return s.out.String()
	})
}

// fetchScript is a conversation of members of a share group that fetch and acknowledge.
type fetchScript struct {
	shareScript
	topics map[string][16]byte
}

// lookUp learns the ids of topics.
func (s *fetchScript) lookUp(names ...string) {
	s.topics = make(map[string][16]byte)
	req := kmsg.NewPtrMetadataRequest()
	for i := range names {
		req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &names[i]})
	}
	c := s.dial()
	c.send(req, 12)
	for _, t := range c.receive(req).(*kmsg.MetadataResponse).Topics {
		s.topics[*t.Topic] = t.TopicID
	}
}

func (s *fetchScript) setGroup(group string, settings ...string) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr))
	require.NoError(s.t, err)
	defer cl.Close()
	setGroup(s.t, cl, group, settings...)
}

// produce makes one batch of n records.
func (s *fetchScript) produce(topic string, n int) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(s.t, err)
	defer cl.Close()
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "%d", i)}
	}
	require.NoError(s.t, cl.ProduceSync(s.t.Context(), records...).FirstErr())
}

// fetcher is a member with a connection and a share session of its own.
type fetcher struct {
	s             *fetchScript
	c             *wireConn
	group, member string
	epoch         int32 // of the next request
}

func (s *fetchScript) fetcher(group, member string, topics ...string) *fetcher {
	s.settled(shareHeartbeat(group, member, 0, topics...))
	return &fetcher{s: s, c: s.dial(), group: group, member: member}
}

// ackRun is one batch of acknowledgements.
type ackRun = kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch

func said(first, last int64, kinds ...int8) ackRun {
	return ackRun{FirstOffset: first, LastOffset: last, AcknowledgeTypes: kinds}
}

// about is what a request says of one partition.
type about struct {
	topic     string
	id        [16]byte // of a topic without a name
	partition int32
	acks      []ackRun
}

func acks(topic string, batches ...ackRun) about { return about{topic: topic, acks: batches} }

// fetch is the next fetch in the session, of records one by one. It would wait for longer
// than the connection lasts.
func (f *fetcher) fetch(records int32, parts ...about) *kmsg.ShareFetchRequest {
	req := kmsg.NewPtrShareFetchRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &f.group, &f.member, f.epoch
	req.MaxRecords, req.BatchSize, req.MaxBytes, req.MinBytes, req.ShareAcquireMode = records, records, 1<<20, 1, 1
	req.MaxWaitMillis = 3_600_000
	for _, a := range parts {
		id := a.id
		if a.topic != "" {
			id = f.s.topics[a.topic]
		}
		if n := len(req.Topics); n == 0 || req.Topics[n-1].TopicID != id {
			req.Topics = append(req.Topics, kmsg.ShareFetchRequestTopic{TopicID: id})
		}
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, kmsg.ShareFetchRequestTopicPartition{Partition: a.partition, AcknowledgementBatches: a.acks})
	}
	return req
}

// acknowledge is the next request in the session, which fetches nothing.
func (f *fetcher) acknowledge(parts ...about) *kmsg.ShareAcknowledgeRequest {
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &f.group, &f.member, f.epoch
	for _, t := range f.fetch(0, parts...).Topics {
		at := kmsg.ShareAcknowledgeRequestTopic{TopicID: t.TopicID}
		for _, p := range t.Partitions {
			of := kmsg.ShareAcknowledgeRequestTopicPartition{Partition: p.Partition}
			for _, b := range p.AcknowledgementBatches {
				of.AcknowledgementBatches = append(of.AcknowledgementBatches, kmsg.ShareAcknowledgeRequestTopicPartitionAcknowledgementBatch(b))
			}
			at.Partitions = append(at.Partitions, of)
		}
		req.Topics = append(req.Topics, at)
	}
	return req
}

// begins opens a session and acquires records of a topic as soon as there are some: Kafka
// begins the state of a partition meanwhile.
func (f *fetcher) begins(topic string, records int32) {
	deadline := time.Now().Add(20 * time.Second)
	for f.epoch = 0; ; {
		require.True(f.s.t, time.Now().Before(deadline), "no records of %s", topic)
		req := f.fetch(records, about{topic: topic})
		req.MaxWaitMillis = 300
		f.c.send(req, 2)
		resp := f.c.receive(req).(*kmsg.ShareFetchResponse)
		f.epoch++
		if len(resp.Topics) > 0 && len(resp.Topics[0].Partitions[0].AcquiredRecords) > 0 {
			return
		}
	}
}

// ends ends the session with acknowledgements.
func (f *fetcher) ends(parts ...about) {
	f.epoch = -1
	f.say("ends", f.acknowledge(parts...))
	f.epoch = 0
}

var someRecords = regexp.MustCompile(`"Records":"[^"]+"`)

// say sends a request of the session, which is not to wait, and writes down the answer.
func (f *fetcher) say(title string, req kmsg.Request) { f.sayAt(title, req, 2) }

// waits is say for a fetch that has nothing to be answered with until its time is over.
func (f *fetcher) waits(title string, req *kmsg.ShareFetchRequest) {
	const wait = 100 * time.Millisecond
	req.MaxWaitMillis = int32(wait.Milliseconds())
	asked := time.Now()
	f.sayAt(title+", and waits", req, 2)
	require.GreaterOrEqual(f.s.t, time.Since(asked), wait, title)
}

func (f *fetcher) sayAt(title string, req kmsg.Request, version int16) {
	f.c.send(req, version)
	resp := f.c.receive(req)
	text, err := json.Marshal(resp)
	require.NoError(f.s.t, err)
	fmt.Fprintf(&f.s.out, "%s v%d: %s\n  %s\n", kmsg.NameForKey(resp.Key()), version, title,
		someRecords.ReplaceAllString(f.s.tidy(string(text)), `"Records":"some"`))
	var code int16
	switch r := resp.(type) {
	case *kmsg.ShareFetchResponse:
		code = r.ErrorCode
	case *kmsg.ShareAcknowledgeResponse:
		code = r.ErrorCode
	}
	if code == 0 {
		f.epoch++
	}
}
