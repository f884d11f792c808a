package client

import (
	"fmt"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (c *cluster) apiVersions(req *kmsg.ApiVersionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	keys := []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets, kmsg.Metadata, kmsg.OffsetCommit, kmsg.OffsetFetch,
		kmsg.FindCoordinator, kmsg.ApiVersions, kmsg.OffsetForLeaderEpoch}
	if c.share != nil {
		keys = append(keys, kmsg.ShareFetch, kmsg.ShareAcknowledge, kmsg.ShareGroupHeartbeat, kmsg.DescribeConfigs)
	}
	for _, key := range keys {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MaxVersion = int16(key), kmsg.RequestForKey(int16(key)).MaxVersion()
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	for _, name := range c.features {
		f := kmsg.NewApiVersionsResponseSupportedFeature()
		f.Name, f.MinVersion, f.MaxVersion = name, 1, 1
		resp.SupportedFeatures = append(resp.SupportedFeatures, f)
	}
	return resp
}

func (c *cluster) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	for node := range c.nodes {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = node, fmt.Sprint("node-", node), 9092
		resp.Brokers = append(resp.Brokers, b)
	}
	for _, asked := range req.Topics {
		name := asked.Topic
		for n, t := range c.topics {
			if name == nil && t.id == asked.TopicID {
				name = &n
			}
		}
		t := kmsg.NewMetadataResponseTopic()
		t.Topic = name
		if name == nil || c.topics[*name] == nil {
			t.ErrorCode = kerr.UnknownTopicOrPartition.Code
			resp.Topics = append(resp.Topics, t)
			continue
		}
		t.TopicID = c.topics[*name].id
		for i, p := range c.topics[*name].partitions {
			rp := kmsg.NewMetadataResponseTopicPartition()
			rp.Partition, rp.Leader, rp.LeaderEpoch = int32(i), p.leader, p.epoch
			t.Partitions = append(t.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (c *cluster) findCoordinator(req *kmsg.FindCoordinatorRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	for _, key := range req.CoordinatorKeys {
		k := kmsg.NewFindCoordinatorResponseCoordinator()
		k.Key, k.Host, k.Port = key, "node-0", 9092
		resp.Coordinators = append(resp.Coordinators, k)
	}
	return resp
}

func (c *cluster) listOffsets(req *kmsg.ListOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, ask := range t.Partitions {
			p := c.topics[t.Topic].partitions[ask.Partition]
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition, rp.LeaderEpoch = ask.Partition, p.epoch
			switch {
			case ask.Timestamp == -1:
				rp.Offset = p.end()
			case ask.Timestamp == -2:
				rp.Offset = p.start
			case ask.Timestamp < p.end(): // the timestamp of a record is its offset
				rp.Offset = max(ask.Timestamp, p.start)
			default:
				rp.Offset = -1
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (c *cluster) offsetForLeaderEpoch(req *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for _, ask := range t.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition, rp.LeaderEpoch = ask.Partition, ask.LeaderEpoch
			rp.EndOffset = c.topics[t.Topic].partitions[ask.Partition].endOfEpoch(ask.LeaderEpoch)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// nameOf is the topic of a request that names it by id.
func (c *cluster) nameOf(name string, id topicID) string {
	for n, t := range c.topics {
		if name == "" && t.id == id {
			return n
		}
	}
	return name
}

func (c *cluster) offsetCommit(req *kmsg.OffsetCommitRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		name := c.nameOf(t.Topic, t.TopicID)
		for i := range t.Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition = t.Partitions[i].Partition
			if name == "" {
				rp.ErrorCode = kerr.UnknownTopicID.Code
			} else {
				c.commitPartition(req.Group, name, &t.Partitions[i], &rp)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (c *cluster) commitPartition(group, topic string, ask *kmsg.OffsetCommitRequestTopicPartition, rp *kmsg.OffsetCommitResponseTopicPartition) {
	l := c.ledgerLocked(group, TopicPartition{topic, ask.Partition})
	p := c.topics[topic].partitions[ask.Partition]
	tag, extended := extension(&ask.UnknownTags)
	if !extended {
		l.cumulative(ask.Offset)
		return
	}
	offsets, err := protocol.ParseIndividualOffsets(tag)
	if err != nil {
		rp.ErrorCode = kerr.InvalidRequest.Code
		return
	}
	for _, r := range offsets.Commit {
		if r.End > p.end() {
			rp.ErrorCode = kerr.OffsetOutOfRange.Code
			return
		}
	}
	if !l.founded {
		l.founded, l.stable = true, p.start
		if offsets.Origin >= 0 {
			l.stable = offsets.Origin
		}
	}
	if ask.Offset >= 0 {
		l.cumulative(ask.Offset)
	}
	l.commit(offsets.Commit...)
	l.reopen(offsets.Reopen...)
	state := State{Stable: l.stable, MaxCommit: l.maxCommit()}
	rp.UnknownTags.Set(protocol.ExtensionTag, state.AppendTo(nil))
}

func (c *cluster) offsetFetch(req *kmsg.OffsetFetchRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	for _, g := range req.Groups {
		rg := kmsg.NewOffsetFetchResponseGroup()
		rg.Group = g.Group
		tag, _ := extension(&g.UnknownTags)
		ask, err := protocol.ParseGapsRequest(tag)
		if err != nil {
			rg.ErrorCode = kerr.InvalidRequest.Code
		}
		topics := g.Topics
		if topics == nil {
			for tp := range c.groups[g.Group] {
				t := kmsg.NewOffsetFetchRequestGroupTopic()
				t.Topic, t.TopicID, t.Partitions = tp.Topic, c.topics[tp.Topic].id, []int32{tp.Partition}
				topics = append(topics, t)
			}
		}
		for _, t := range topics {
			rt := kmsg.NewOffsetFetchResponseGroupTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, n := range t.Partitions {
				tp := TopicPartition{c.nameOf(t.Topic, t.TopicID), n}
				rt.Partitions = append(rt.Partitions, fetchGaps(c.ledgerLocked(g.Group, tp), n, ask))
			}
			rg.Topics = append(rg.Topics, rt)
		}
		resp.Groups = append(resp.Groups, rg)
	}
	return resp
}

// pendingFrom answers with one transaction at a time.
func pendingFrom(all []PendingCommit, from int64) *protocol.Pending {
	for i := range all {
		if all[i].Runs[0].Start < from {
			continue
		}
		page := &protocol.Pending{Transactions: all[i : i+1], CompleteTo: protocol.GapsComplete}
		if i+1 < len(all) {
			page.CompleteTo = all[i+1].Runs[0].Start
		}
		return page
	}
	return &protocol.Pending{CompleteTo: protocol.GapsComplete}
}

// fetchGaps answers with at most three gaps at a time, so that there are pages to turn.
func fetchGaps(l *fakeLedger, partition int32, ask protocol.GapsRequest) kmsg.OffsetFetchResponseGroupTopicPartition {
	rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	rp.Partition, rp.Offset = partition, -1
	answer := protocol.IndividualGaps{MaxCommit: -1, CompleteTo: protocol.GapsComplete}
	if l.founded {
		rp.Offset, answer.MaxCommit = l.stable, l.maxCommit()
		answer.Gaps = appendOthers(nil, &l.committed, Run{Start: max(l.stable, ask.From), End: l.maxCommit()})
		if limit := min(3, int(ask.MaxRuns)); len(answer.Gaps) > limit {
			answer.Gaps, answer.CompleteTo = answer.Gaps[:limit], answer.Gaps[limit].Start
		}
		if ask.MaxPending > 0 && l.pending != nil {
			answer.Pending = pendingFrom(l.pending, ask.From)
		}
	}
	rp.UnknownTags.Set(protocol.ExtensionTag, answer.AppendTo(nil))
	return rp
}
