package main

import (
	"context"
	"errors"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicCommand creates a topic, or deletes it.
func topicCommand(args []string) {
	fs := flags("topic")
	remove := fs.Bool("rm", false, "delete it")
	configs := fs.String("c", "", "topic configs k=v,k=v")
	load.Check(fs.Parse(args))
	cl, err := client()
	load.Check(err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if *remove {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TopicNames = []string{settings.Topic}
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = kmsg.StringPtr(settings.Topic)
		req.Topics = append(req.Topics, t)
		_, err := req.RequestWith(ctx, cl)
		load.Check(err)
		return
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = settings.Topic, int32(settings.Parts), 1
	for k, v := range pairs(*configs) {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = k, kmsg.StringPtr(v)
		t.Configs = append(t.Configs, c)
	}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	load.Check(err)
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		load.Check(err)
	}
}
