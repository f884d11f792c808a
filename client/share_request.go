package client

import (
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// piggybackMaxWait bounds the wait of a fetch that carries acknowledgements, in
// milliseconds: their answer comes with its own.
const piggybackMaxWait = 100

// fetchRequest is a fetch on the wire.
func (w *Worker) fetchRequest(f *shareFetch) *kmsg.ShareFetchRequest {
	cfg := &w.cfg
	req := kmsg.NewPtrShareFetchRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &cfg.group, &w.member, f.epoch
	req.MaxWaitMillis = int32(cfg.fetchMaxWait.Milliseconds())
	req.MinBytes, req.MaxBytes = cfg.fetchMinBytes, cfg.fetchMaxBytes
	req.MaxRecords, req.BatchSize = int32(f.records), int32(f.records)
	if !cfg.wholeBatches {
		req.ShareAcquireMode = 1 // record-limit
	}
	if len(f.acks) > 0 {
		req.MaxWaitMillis = min(req.MaxWaitMillis, piggybackMaxWait)
	}
	if w.filterTag != nil {
		req.UnknownTags.Set(protocol.ExtensionTag, w.filterTag)
	}
	index := newTopicIndex()
	topic := func(at sharePartition) *kmsg.ShareFetchRequestTopic {
		i, isNew := index.of(at.topic)
		if isNew {
			t := kmsg.NewShareFetchRequestTopic()
			t.TopicID = at.topic
			req.Topics = append(req.Topics, t)
		}
		return &req.Topics[i]
	}
	for _, at := range f.add {
		t := topic(at)
		t.Partitions = append(t.Partitions, w.fetchPartition(at.number))
	}
	for i := range f.acks {
		part := &f.acks[i]
		t := topic(part.at)
		p := w.fetchPartition(part.at.number)
		for _, run := range part.appendRuns(nil) {
			b := kmsg.NewShareFetchRequestTopicPartitionAcknowledgementBatch()
			b.FirstOffset, b.LastOffset, b.AcknowledgeTypes = run.first, run.last, []int8{int8(run.kind)}
			p.AcknowledgementBatches = append(p.AcknowledgementBatches, b)
		}
		t.Partitions = append(t.Partitions, p)
	}
	forget := newTopicIndex()
	for _, at := range f.forget {
		i, isNew := forget.of(at.topic)
		if isNew {
			t := kmsg.NewShareFetchRequestForgottenTopicsData()
			t.TopicID = at.topic
			req.ForgottenTopicsData = append(req.ForgottenTopicsData, t)
		}
		t := &req.ForgottenTopicsData[i]
		t.Partitions = append(t.Partitions, at.number)
	}
	return req
}

func (w *Worker) fetchPartition(number int32) kmsg.ShareFetchRequestTopicPartition {
	p := kmsg.NewShareFetchRequestTopicPartition()
	p.Partition, p.PartitionMaxBytes = number, w.cfg.fetchMaxPartitionBytes
	return p
}

// ackRequest is an acknowledgement on the wire.
func (w *Worker) ackRequest(a *shareAck) *kmsg.ShareAcknowledgeRequest {
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch, req.IsRenewAck = &w.cfg.group, &w.member, a.epoch, a.renews
	index := newTopicIndex()
	for i := range a.parts {
		part := &a.parts[i]
		at, isNew := index.of(part.at.topic)
		if isNew {
			t := kmsg.NewShareAcknowledgeRequestTopic()
			t.TopicID = part.at.topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewShareAcknowledgeRequestTopicPartition()
		p.Partition = part.at.number
		for _, run := range part.appendRuns(nil) {
			b := kmsg.NewShareAcknowledgeRequestTopicPartitionAcknowledgementBatch()
			b.FirstOffset, b.LastOffset, b.AcknowledgeTypes = run.first, run.last, []int8{int8(run.kind)}
			p.AcknowledgementBatches = append(p.AcknowledgementBatches, b)
		}
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, p)
	}
	return req
}

// topicIndex numbers topics in the order they come.
type topicIndex map[topicID]int

func newTopicIndex() topicIndex { return make(topicIndex) }

func (x topicIndex) of(id topicID) (i int, isNew bool) {
	i, known := x[id]
	if !known {
		i = len(x)
		x[id] = i
	}
	return i, !known
}
