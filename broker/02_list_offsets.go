package broker

import (
	"context"

	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The timestamps of ListOffsets that do not stand for a time.
const (
	listLatest        = -1
	listEarliest      = -2
	listMaxTimestamp  = -3 // KIP-734, from version 7
	listEarliestLocal = -4 // KIP-405, from version 8
	listLatestTiered  = -5 // KIP-1005, from version 9
	listEarliestToGo  = -6 // KIP-1023, from version 11
)

// ListOffsets (2), versions 1 to 11.
//
// v2 added isolation levels, v4 the leader epoch, v6 flexible versions, v7 the offset of
// the largest timestamp, v8 to v11 offsets of tiered storage, which is not here: all data
// is local and nothing is tiered.
func (b *Broker) listOffsets(c *call, req *kmsg.ListOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t := &resp.Topics[i]
		t.Topic = req.Topics[i].Topic
		t.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(req.Topics[i].Partitions))
		for j := range req.Topics[i].Partitions {
			p := &t.Partitions[j]
			p.Default()
			if err := b.listOffset(c, t.Topic, &req.Topics[i].Partitions[j], req.IsolationLevel == 1, p); err != nil {
				p.ErrorCode, _ = b.errorCode(err)
			}
		}
	}
	return resp
}

func (b *Broker) listOffset(c *call, name string, req *kmsg.ListOffsetsRequestTopicPartition, readCommitted bool, p *kmsg.ListOffsetsResponseTopicPartition) error {
	p.Partition, p.Offset, p.Timestamp, p.LeaderEpoch = req.Partition, -1, -1, -1
	t, refused := b.topics.find(name, metadata.TopicID{}, false)
	if refused != nil {
		return refused
	}
	_, log, err := t.open(req.Partition)
	if err != nil {
		return err
	}
	bounds := settled(c.ctx, log)
	if err := checkLeaderEpoch(req.CurrentLeaderEpoch, bounds.LeaderEpoch); err != nil {
		return err
	}
	end := bounds.HighWatermark
	if readCommitted {
		end = bounds.LSO
	}
	switch req.Timestamp {
	case listLatest:
		p.Offset, p.LeaderEpoch = end, bounds.LeaderEpoch
	case listEarliest, listEarliestLocal:
		p.Offset, p.LeaderEpoch = bounds.Start, log.EpochAt(bounds.Start)
	case listLatestTiered, listEarliestToGo:
		// Nothing is tiered: -1 without an error.
	case listMaxTimestamp:
		return answerTimestamp(p, end, log.MaxTimestamp)
	default:
		if req.Timestamp < 0 {
			return kerr.UnsupportedForMessageFormat
		}
		return answerTimestamp(p, end, func() (commitlog.TimestampedOffset, bool, error) {
			return log.OffsetForTimestamp(req.Timestamp)
		})
	}
	return nil
}

// settled gives the bounds of a log once what was appended up to now is durable, or never
// will be. A client whose acks=1 was answered finds its record there, though others would
// not yet.
func settled(ctx context.Context, log *commitlog.Log) commitlog.Bounds {
	if bounds := log.Bounds(); bounds.HighWatermark == bounds.End {
		return bounds
	}
	_ = log.Flush(ctx) // after a failure, what was durable before still counts
	return log.Bounds()
}

// answerTimestamp answers with the record that look finds, if it is below end.
func answerTimestamp(p *kmsg.ListOffsetsResponseTopicPartition, end int64, look func() (commitlog.TimestampedOffset, bool, error)) error {
	found, ok, err := look()
	if err == nil && ok && found.Offset < end {
		p.Offset, p.Timestamp, p.LeaderEpoch = found.Offset, found.TimestampMs, found.LeaderEpoch
	}
	return err
}
