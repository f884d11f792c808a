package broker

import (
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateTopics (19), versions 2 to 7.
//
// v4 made partitions and replication factor optional, v5 added flexible versions and the
// settings of what was made, v7 topic ids.
func (b *Broker) createTopics(_ *call, req *kmsg.CreateTopicsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	named := make(map[string]int, len(req.Topics))
	for i := range req.Topics {
		named[req.Topics[i].Topic]++
	}
	budget := int32(maxPartitionsPerRequest)
	for i := range req.Topics {
		t := &req.Topics[i]
		at := kmsg.NewCreateTopicsResponseTopic()
		at.Topic, at.NumPartitions, at.ReplicationFactor = t.Topic, -1, -1
		var err error
		switch named[t.Topic] {
		case 0: // answered already
			continue
		case 1:
			err = b.createOne(t, req.ValidateOnly, &budget, &at)
		default:
			named[t.Topic] = 0
			err = refusal(kerr.InvalidRequest, "Duplicate topic name.")
		}
		if err != nil {
			at.ErrorCode, at.ErrorMessage = b.errorAnswer(err)
		}
		resp.Topics = append(resp.Topics, at)
	}
	return resp
}

// maxPartitionsPerRequest bounds what one request may make, as in Kafka.
const maxPartitionsPerRequest = 10_000

// createOne creates a topic whose partitions fit in what is left of the budget.
func (b *Broker) createOne(req *kmsg.CreateTopicsRequestTopic, validateOnly bool, budget *int32, at *kmsg.CreateTopicsResponseTopic) error {
	t := metadata.Topic{Name: req.Topic, Partitions: req.NumPartitions}
	if err := b.checkReplication(req, &t); err != nil {
		return err
	}
	if t.Partitions > *budget {
		return refusal(kerr.PolicyViolation, "Excessively large number of partitions per request.")
	}
	var err error
	if t.Config, err = b.newTopicConfig(req.Configs); err != nil {
		return err
	}
	if validateOnly {
		t.ID = newTopicID()
		if _, err := b.controller.image.Load().CreateTopic(&t); err != nil {
			return err
		}
	} else {
		made, err := b.controller.createTopic(t)
		if err != nil {
			return err
		}
		at.TopicID = made.id
	}
	*budget -= t.Partitions
	at.NumPartitions, at.ReplicationFactor = t.Partitions, 1
	at.Configs = b.describeNewTopic(&t)
	return nil
}

// checkReplication takes the number of partitions from the request, in whichever way it
// says it, and refuses more replicas than there are brokers.
func (b *Broker) checkReplication(req *kmsg.CreateTopicsRequestTopic, t *metadata.Topic) error {
	if len(req.ReplicaAssignment) > 0 {
		return b.checkAssignment(req, t)
	}
	if t.Partitions == -1 {
		t.Partitions = b.settings().NumPartitions
	}
	return b.checkReplicationFactor(req.ReplicationFactor)
}

func (b *Broker) checkReplicationFactor(factor int16) error {
	switch {
	case factor == -1 || factor == 1:
		return nil
	case factor > 1 && b.cfg.AcceptReplicationFactor:
		return nil
	case factor > 1:
		return refusal(kerr.InvalidReplicationFactor, "replication factor %d, and this broker is the only one: "+
			"ask for 1, or start the broker with --accept-replication-factor to have more ignored", factor)
	default:
		return refusal(kerr.InvalidReplicationFactor, "replication factor %d", factor)
	}
}

func (b *Broker) checkAssignment(req *kmsg.CreateTopicsRequestTopic, t *metadata.Topic) error {
	if req.NumPartitions != -1 || req.ReplicationFactor != -1 {
		return refusal(kerr.InvalidRequest, "topic %s has both an assignment of replicas and a number of partitions or a replication factor", req.Topic)
	}
	seen := make(map[int32]bool, len(req.ReplicaAssignment))
	for _, a := range req.ReplicaAssignment {
		if seen[a.Partition] || a.Partition < 0 || int(a.Partition) >= len(req.ReplicaAssignment) {
			return refusal(kerr.InvalidReplicaAssignment, "the partitions of topic %s are not 0 to %d, each once", req.Topic, len(req.ReplicaAssignment)-1)
		}
		seen[a.Partition] = true
		if err := b.checkReplicas(a.Replicas); err != nil {
			return err
		}
	}
	t.Partitions = int32(len(req.ReplicaAssignment))
	return nil
}

func (b *Broker) checkReplicas(replicas []int32) error {
	if b.cfg.AcceptReplicationFactor && len(replicas) > 0 {
		return nil
	}
	if len(replicas) != 1 || replicas[0] != b.nodeID {
		return refusal(kerr.InvalidReplicaAssignment, "replicas %v, and broker %d is the only one", replicas, b.nodeID)
	}
	return nil
}
