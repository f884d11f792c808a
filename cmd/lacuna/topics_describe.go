package main

import (
	"context"
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func topicsDescribeCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "describe TOPIC...",
		Short: "Show the partitions of topics: leaders, offsets, size",
		Args:  atLeastOne("topic"),
		RunE: func(cmd *cobra.Command, names []string) error {
			adm, err := c.kafkaAdmin()
			if err != nil {
				return err
			}
			defer adm.Close()
			topics, err := metadata(cmd, c, adm, true, names...)
			if err != nil {
				return err
			}
			for i, name := range names {
				d, err := describeTopic(cmd.Context(), adm, topics[name])
				if err != nil {
					return err
				}
				if c.output == "json" {
					err = writeJSON(c.out, d)
				} else {
					if i > 0 {
						fmt.Fprintln(c.out)
					}
					err = d.write(c)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// describedTopic is what --output json says of a topic.
type describedTopic struct {
	Topic      string               `json:"topic"`
	ID         string               `json:"id"`
	Settings   map[string]string    `json:"settings,omitempty"` // those that were set for this topic
	Partitions []describedPartition `json:"partitions"`
}

type describedPartition struct {
	Partition   int32  `json:"partition"`
	Leader      int32  `json:"leader"`
	LeaderEpoch int32  `json:"leader_epoch"`
	Start       int64  `json:"start"`
	End         int64  `json:"end"`
	Stable      int64  `json:"last_stable"`
	Bytes       int64  `json:"bytes"`
	Error       string `json:"error,omitempty"`
}

func describeTopic(ctx context.Context, adm *kadm.Client, t kadm.TopicDetail) (describedTopic, error) {
	d := describedTopic{Topic: t.Topic, ID: topicID(t.ID)}
	starts, err := adm.ListStartOffsets(ctx, t.Topic)
	if err != nil {
		return d, fmt.Errorf("list the offsets of topic %s: %w", t.Topic, err)
	}
	ends, err := adm.ListEndOffsets(ctx, t.Topic)
	if err != nil {
		return d, fmt.Errorf("list the offsets of topic %s: %w", t.Topic, err)
	}
	stable, err := adm.ListCommittedOffsets(ctx, t.Topic)
	if err != nil {
		return d, fmt.Errorf("list the offsets of topic %s: %w", t.Topic, err)
	}
	sizes, err := topicSizes(ctx, adm, t)
	if err != nil {
		return d, err
	}
	for _, n := range partitionsOf(t) {
		start, _ := starts.Lookup(t.Topic, n)
		end, _ := ends.Lookup(t.Topic, n)
		last, _ := stable.Lookup(t.Topic, n)
		p := describedPartition{Partition: n, Leader: t.Partitions[n].Leader, LeaderEpoch: t.Partitions[n].LeaderEpoch,
			Start: start.Offset, End: end.Offset, Stable: last.Offset, Bytes: sizes[n]}
		if end.Err != nil {
			p.Error = end.Err.Error()
		}
		d.Partitions = append(d.Partitions, p)
	}
	d.Settings, err = topicSettings(ctx, adm, t.Topic)
	return d, err
}

// topicSizes are the bytes of each partition on its leader's disk.
func topicSizes(ctx context.Context, adm *kadm.Client, t kadm.TopicDetail) (map[int32]int64, error) {
	var set kadm.TopicsSet
	set.Add(t.Topic, partitionsOf(t)...)
	dirs, err := adm.DescribeAllLogDirs(ctx, set)
	if err != nil {
		return nil, fmt.Errorf("look up the size of topic %s: %w", t.Topic, err)
	}
	sizes := make(map[int32]int64)
	dirs.Each(func(d kadm.DescribedLogDir) {
		for n, p := range d.Topics[t.Topic] {
			sizes[n] = max(sizes[n], p.Size)
		}
	})
	return sizes, nil
}

// topicSettings are the settings that were made for a topic itself.
func topicSettings(ctx context.Context, adm *kadm.Client, topic string) (map[string]string, error) {
	configs, err := adm.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("read the settings of topic %s: %w", topic, err)
	}
	settings := make(map[string]string)
	for _, config := range configs {
		if config.Err != nil {
			return nil, topicError(topic, config.Err)
		}
		for _, entry := range config.Configs {
			if isTopicSetting(entry) {
				settings[entry.Key] = entry.MaybeValue()
			}
		}
	}
	return settings, nil
}

func (d describedTopic) write(c *cli) error {
	fmt.Fprintf(c.out, "topic %s, id %s\n", d.Topic, d.ID)
	for _, key := range sortedKeys(d.Settings) {
		fmt.Fprintf(c.out, "  %s = %s\n", key, d.Settings[key])
	}
	t := newTable(">PARTITION", ">LEADER", ">EPOCH", ">START", ">END", ">LAST STABLE", ">SIZE", "ERROR")
	for _, p := range d.Partitions {
		t.add(p.Partition, p.Leader, p.LeaderEpoch, p.Start, p.End, p.Stable, humanize.IBytes(uint64(p.Bytes)), p.Error)
	}
	return t.write(c.out)
}
