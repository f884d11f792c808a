package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	shareMaxBytes = 50 << 20
	ackAccept     = 1
)

// rawShare is a share consumer at the level of the protocol: ShareGroupHeartbeat, and
// ShareFetch that carries acknowledgements. kgo's and Java's share consumers settle every
// record of a poll before the next; the protocol does not ask for it, and the workloads
// that settle out of order need that freedom.
type rawShare struct {
	heartbeats, fetches *rawConn
	o                   *queueOptions
	member              string
	topicID             [16]byte
	parts               []int32
	memberEpoch         int32
	sessionEpoch        int32
	acks                map[int32][]int64 // by partition, not sent yet
	lastBeat            time.Time
	ackErr              error
}

func newRawShare(o *queueOptions) (*rawShare, error) {
	s := &rawShare{o: o, member: newMemberID(), acks: map[int32][]int64{}}
	var err error
	if s.fetches, err = rawDial(settings.Addr); err != nil {
		return nil, err
	}
	s.fetches.c = traffic.Count(s.fetches.c)
	s.fetches.r.Reset(s.fetches.c)
	if err := s.findTopic(); err != nil {
		s.Close(false)
		return nil, fmt.Errorf("metadata of %s: %w", settings.Topic, err)
	}
	if err := s.join(time.Now().Add(joinTimeout)); err != nil {
		s.Close(false)
		return nil, err
	}
	return s, nil
}

// Poll fetches once, and sends the acknowledgements along.
func (s *rawShare) Poll(_ context.Context, out []load.Msg) ([]load.Msg, error) {
	if time.Since(s.lastBeat) > heartbeatEvery {
		if err := s.heartbeat(); err != nil && !comingUp(err) {
			return out, err
		}
	}
	answer, err := s.fetches.do(s.fetchRequest())
	if err != nil {
		return out, err
	}
	resp := answer.(*kmsg.ShareFetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return out, fmt.Errorf("share fetch: %w", err)
	}
	s.sessionEpoch++
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return out, fmt.Errorf("share fetch of partition %d: %w", p.Partition, err)
			}
			if p.AcknowledgeErrorCode != 0 {
				s.ackErr = kerr.ErrorForCode(p.AcknowledgeErrorCode)
			}
			out = appendAcquired(out, p.Partition, p.Records, p.AcquiredRecords)
		}
	}
	return out, nil
}

// fetchRequest is the next ShareFetch of the session; the first names the partitions.
func (s *rawShare) fetchRequest() *kmsg.ShareFetchRequest {
	req := kmsg.NewPtrShareFetchRequest()
	req.Version, req.GroupID, req.MemberID, req.ShareSessionEpoch = 2, &s.o.Group, &s.member, s.sessionEpoch
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(s.o.waitMs), 1, shareMaxBytes
	req.MaxRecords, req.BatchSize = int32(s.o.MaxRec), int32(s.o.MaxRec)
	if s.o.strict {
		req.ShareAcquireMode = 1
	}
	t := kmsg.NewShareFetchRequestTopic()
	t.TopicID = s.topicID
	for _, p := range s.parts {
		rp := kmsg.NewShareFetchRequestTopicPartition()
		rp.Partition, rp.PartitionMaxBytes = p, 10<<20
		for first, last := range offsetRuns(s.acks[p]) {
			b := kmsg.NewShareFetchRequestTopicPartitionAcknowledgementBatch()
			b.FirstOffset, b.LastOffset, b.AcknowledgeTypes = first, last, []int8{ackAccept}
			rp.AcknowledgementBatches = append(rp.AcknowledgementBatches, b)
		}
		s.acks[p] = s.acks[p][:0]
		if len(rp.AcknowledgementBatches) > 0 || s.sessionEpoch == 0 {
			t.Partitions = append(t.Partitions, rp)
		}
	}
	if len(t.Partitions) > 0 {
		req.Topics = append(req.Topics, t)
	}
	return req
}

// offsetRuns sorts offsets and yields first and last of each run.
func offsetRuns(offsets []int64) func(yield func(first, last int64) bool) {
	return func(yield func(first, last int64) bool) {
		slices.Sort(offsets)
		for i := 0; i < len(offsets); {
			j := i
			for j+1 < len(offsets) && offsets[j+1] == offsets[j]+1 {
				j++
			}
			if !yield(offsets[i], offsets[j]) {
				return
			}
			i = j + 1
		}
	}
}

// Ack keeps acknowledgements for the next fetch.
func (s *rawShare) Ack(ms []load.Msg) error {
	for i := range ms {
		s.acks[ms[i].Part] = append(s.acks[ms[i].Part], ms[i].Off)
	}
	return nil
}

// Flush sends what Ack kept, by itself.
func (s *rawShare) Flush(context.Context) error {
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.Version, req.GroupID, req.MemberID, req.ShareSessionEpoch = 2, &s.o.Group, &s.member, s.sessionEpoch
	t := kmsg.NewShareAcknowledgeRequestTopic()
	t.TopicID = s.topicID
	for p, offsets := range s.acks {
		if len(offsets) == 0 {
			continue
		}
		rp := kmsg.NewShareAcknowledgeRequestTopicPartition()
		rp.Partition = p
		for first, last := range offsetRuns(offsets) {
			b := kmsg.NewShareAcknowledgeRequestTopicPartitionAcknowledgementBatch()
			b.FirstOffset, b.LastOffset, b.AcknowledgeTypes = first, last, []int8{ackAccept}
			rp.AcknowledgementBatches = append(rp.AcknowledgementBatches, b)
		}
		s.acks[p] = offsets[:0]
		t.Partitions = append(t.Partitions, rp)
	}
	if len(t.Partitions) == 0 {
		return s.ackErr
	}
	req.Topics = append(req.Topics, t)
	answer, err := s.fetches.do(req)
	if err != nil {
		return err
	}
	resp := answer.(*kmsg.ShareAcknowledgeResponse)
	s.sessionEpoch++
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("acknowledge in partition %d: %w", p.Partition, err)
			}
		}
	}
	return s.ackErr
}

// Close leaves session and group, or just drops the connections.
func (s *rawShare) Close(graceful bool) {
	if graceful {
		s.leave()
	}
	s.fetches.c.Close()
	if s.heartbeats != nil {
		s.heartbeats.c.Close()
	}
}

// leave is best effort: the broker times the member out otherwise.
func (s *rawShare) leave() {
	req := kmsg.NewPtrShareFetchRequest()
	req.Version, req.GroupID, req.MemberID, req.ShareSessionEpoch = 2, &s.o.Group, &s.member, -1
	_, _ = s.fetches.do(req)
	s.memberEpoch = -1
	_ = s.heartbeat()
}
