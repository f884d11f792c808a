package broker

import (
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreatePartitions (37), versions 0 to 3.
//
// v2 added flexible versions.
func (b *Broker) createPartitions(_ *call, req *kmsg.CreatePartitionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	named := make(map[string]int, len(req.Topics))
	for i := range req.Topics {
		named[req.Topics[i].Topic]++
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		at := kmsg.NewCreatePartitionsResponseTopic()
		at.Topic = t.Topic
		var err error
		switch named[t.Topic] {
		case 0: // answered already
			continue
		case 1:
			err = b.addPartitions(t, req.ValidateOnly)
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

func (b *Broker) addPartitions(req *kmsg.CreatePartitionsRequestTopic, validateOnly bool) error {
	t, refused := b.topics.find(req.Topic, metadata.TopicID{}, false)
	if refused != nil {
		return refused
	}
	if t.internal {
		return refusal(kerr.InvalidTopicException, "topic %s is internal; groups find their partition by its number", t.name)
	}
	added := int(req.Count) - len(t.partitions())
	if added > maxPartitionsPerRequest {
		return refusal(kerr.PolicyViolation, "Excessively large number of additional partitions per request.")
	}
	if req.Assignment != nil && added > 0 {
		if len(req.Assignment) != added {
			return refusal(kerr.InvalidReplicaAssignment, "replicas are given for %d new partitions, and topic %s gets %d", len(req.Assignment), t.name, added)
		}
		for _, a := range req.Assignment {
			if err := b.checkReplicas(a.Replicas); err != nil {
				return err
			}
		}
	}
	if validateOnly {
		_, err := b.controller.image.Load().AddPartitions(t.id, req.Count)
		return err
	}
	return b.controller.do(func(image *metadata.Image) ([]metadata.Record, error) {
		return image.AddPartitions(t.id, req.Count)
	})
}
