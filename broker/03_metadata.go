package broker

import (
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Metadata (3), versions 0 to 13.
//
// v1 added "all topics" as null, racks, the controller and internal topics, v2 the
// cluster id, v4 leave to create topics, v5 offline replicas, v7 leader epochs, v8
// authorized operations, v9 flexible versions, v10 topic ids, v12 lookup by id alone, v13
// a top-level error.
//
// A topic that is asked for by name and does not exist is created when both the request
// and auto.create.topics.enable allow it, before the answer.
func (b *Broker) metadata(c *call, req *kmsg.MetadataRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	broker := kmsg.NewMetadataResponseBroker()
	broker.NodeID, broker.Host, broker.Port = b.nodeID, c.conn.listener.host, c.conn.listener.port
	resp.Brokers = append(resp.Brokers, broker)
	resp.ClusterID, resp.ControllerID = kmsg.StringPtr(b.clusterID), b.nodeID
	if req.Topics == nil || (c.version == 0 && len(req.Topics) == 0) {
		for _, t := range b.topics.all() {
			if !c.take(len(t.partitions()) * partitionAnswerBytes) {
				return nil
			}
			resp.Topics = append(resp.Topics, b.describeTopic(t))
		}
		return resp
	}
	create := c.version < 4 || req.AllowAutoTopicCreation
	described := make(map[metadata.TopicID]bool, len(req.Topics))
	for i := range req.Topics {
		t, refused := b.namedTopic(&req.Topics[i], create)
		switch {
		case t == nil:
			resp.Topics = append(resp.Topics, unknownTopic(&req.Topics[i], refused))
		case described[t.id]: // named before
		case !c.take(len(t.partitions()) * partitionAnswerBytes):
			return nil
		default:
			described[t.id] = true
			resp.Topics = append(resp.Topics, b.describeTopic(t))
		}
	}
	return resp
}

// partitionAnswerBytes is what a partition takes in an answer that describes it, decoded
// and encoded.
const partitionAnswerBytes = 160

// namedTopic finds a topic that a request names, or makes it if it may.
func (b *Broker) namedTopic(req *kmsg.MetadataRequestTopic, create bool) (*topic, int16) {
	name, byID := "", req.Topic == nil
	if !byID {
		name = *req.Topic
	}
	t, refused := b.topics.find(name, metadata.TopicID(req.TopicID), byID)
	if t == nil && !byID && create && b.settings().AutoCreateTopics {
		var err error
		if t, err = b.autoCreate(name); err != nil {
			code, _ := b.errorCode(err)
			return nil, code
		}
	}
	if t == nil {
		return nil, refused.Code
	}
	return t, 0
}

func unknownTopic(req *kmsg.MetadataRequestTopic, code int16) kmsg.MetadataResponseTopic {
	m := kmsg.NewMetadataResponseTopic()
	m.Topic, m.TopicID, m.ErrorCode = req.Topic, req.TopicID, code
	if code == kerr.TopicAlreadyExists.Code { // somebody else was faster, and it is coming
		m.ErrorCode = kerr.LeaderNotAvailable.Code
	}
	return m
}

func (b *Broker) describeTopic(t *topic) kmsg.MetadataResponseTopic {
	m := kmsg.NewMetadataResponseTopic()
	m.Topic, m.TopicID, m.IsInternal = kmsg.StringPtr(t.name), t.id, t.internal
	replicas := []int32{b.nodeID}
	for _, p := range t.partitions() {
		mp := kmsg.NewMetadataResponseTopicPartition()
		mp.Partition, mp.Leader, mp.LeaderEpoch = p.index, b.nodeID, p.leaderEpoch()
		mp.Replicas, mp.ISR = replicas, replicas
		m.Partitions = append(m.Partitions, mp)
	}
	return m
}
