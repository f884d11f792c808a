package main

import (
	"github.com/spf13/cobra"
)

func topicsListCommand(c *cli) *cobra.Command {
	var internal bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List topics",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			adm, err := c.kafkaAdmin()
			if err != nil {
				return err
			}
			defer adm.Close()
			topics, err := metadata(cmd, c, adm, internal)
			if err != nil {
				return err
			}
			t := newTable("TOPIC", ">PARTITIONS", "ID")
			for _, topic := range topics.Sorted() {
				if c.output == "json" {
					if err := writeJSON(c.out, listedTopic{Topic: topic.Topic, ID: topicID(topic.ID), Partitions: len(topic.Partitions), Internal: topic.IsInternal}); err != nil {
						return err
					}
					continue
				}
				t.add(topic.Topic, int64(len(topic.Partitions)), topicID(topic.ID))
			}
			if c.output == "json" {
				return nil
			}
			return t.write(c.out)
		},
	}
	cmd.Flags().BoolVar(&internal, "internal", false, "the broker's own topics too")
	return cmd
}

// listedTopic is what --output json says of a topic.
type listedTopic struct {
	Topic      string `json:"topic"`
	ID         string `json:"id"`
	Partitions int    `json:"partitions"`
	Internal   bool   `json:"internal,omitempty"`
}
