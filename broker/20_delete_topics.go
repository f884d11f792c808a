package broker

import (
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteTopics (20), versions 1 to 6.
//
// v4 added flexible versions, v5 error messages, v6 deletion by id.
func (b *Broker) deleteTopics(c *call, req *kmsg.DeleteTopicsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	topics := req.Topics
	if c.version < 6 {
		for i := range req.TopicNames {
			topics = append(topics, kmsg.DeleteTopicsRequestTopic{Topic: &req.TopicNames[i]})
		}
	}
	named := map[string]int{}
	for i := range topics {
		if name := topics[i].Topic; name != nil {
			named[*name]++
		}
	}
	for i := range topics {
		at := kmsg.NewDeleteTopicsResponseTopic()
		at.Topic, at.TopicID = topics[i].Topic, topics[i].TopicID
		var err error
		if name := topics[i].Topic; name == nil || named[*name] == 1 {
			err = b.deleteOne(&topics[i], &at)
		} else if named[*name] == 0 { // answered already
			continue
		} else {
			named[*name] = 0
			err = refusal(kerr.InvalidRequest, "Duplicate topic name.")
		}
		if err != nil {
			at.ErrorCode, at.ErrorMessage = b.errorAnswer(err)
		}
		resp.Topics = append(resp.Topics, at)
	}
	return resp
}

func (b *Broker) deleteOne(req *kmsg.DeleteTopicsRequestTopic, at *kmsg.DeleteTopicsResponseTopic) error {
	id := metadata.TopicID(req.TopicID)
	if (req.Topic == nil) == (id == metadata.TopicID{}) {
		return refusal(kerr.InvalidRequest, "a topic is named either by its name or by its id")
	}
	if !b.settings().DeleteTopics {
		return refusal(kerr.TopicDeletionDisabled, "delete.topic.enable is false")
	}
	name := ""
	if req.Topic != nil {
		name = *req.Topic
	}
	t, refused := b.topics.find(name, id, req.Topic == nil)
	if refused == kerr.InvalidTopicException {
		refused = kerr.UnknownTopicOrPartition // there is none of that name
	}
	if refused != nil {
		return refused
	}
	if t.internal {
		return refusal(kerr.InvalidTopicException, "topic %s is internal", t.name)
	}
	at.Topic, at.TopicID = kmsg.StringPtr(t.name), t.id
	return b.controller.deleteTopic(t.id)
}
