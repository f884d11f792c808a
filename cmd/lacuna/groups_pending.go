package main

import (
	"context"
	"errors"

	"github.com/lacunamq/lacuna/client"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// pending are the partitions of which open transactions have acknowledged records for a
// group. Kafka's protocol has no field that says which records; it says so by refusing to
// tell a stable offset. Of a share group it says nothing.
func (c *cli) pending(ctx context.Context, group string) (map[client.TopicPartition]bool, error) {
	adm, err := c.kafkaAdmin()
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	offsets, err := adm.FetchOffsets(kadm.RequireStable(ctx), group)
	if errors.Is(err, kerr.GroupIDNotFound) { // a share group, of which the admin listener knows
		return nil, nil
	}
	if err != nil {
		return nil, c.reach(err)
	}
	pending := make(map[client.TopicPartition]bool)
	offsets.Each(func(o kadm.OffsetResponse) {
		if errors.Is(o.Err, kerr.UnstableOffsetCommit) {
			pending[client.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = true
		}
	})
	return pending, nil
}
