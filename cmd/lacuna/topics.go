package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func topicsCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topics",
		Short: "Create, list, describe, delete and configure topics",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.connectFlags(cmd)
	c.outputFlag(cmd)
	cmd.AddCommand(topicsCreateCommand(c), topicsListCommand(c), topicsDescribeCommand(c),
		topicsDeleteCommand(c), topicsConfigCommand(c))
	return cmd
}

// atLeastOne wants names as arguments.
func atLeastOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("%s needs the name of a %s; see %s --help", cmd.CommandPath(), what, cmd.CommandPath())
		}
		return nil
	}
}

// exactlyOne wants one name as argument.
func exactlyOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			got := ""
			if len(args) > 0 {
				got = fmt.Sprintf(", got %q", args)
			}
			return usagef("%s needs the name of one %s%s; see %s --help", cmd.CommandPath(), what, got, cmd.CommandPath())
		}
		return nil
	}
}

// metadata looks topics up, all if none is named, and fails for one that does not exist.
func metadata(cmd *cobra.Command, c *cli, adm *kadm.Client, internal bool, names ...string) (kadm.TopicDetails, error) {
	list := adm.ListTopics
	if internal || len(names) > 0 {
		list = adm.ListTopicsWithInternal
	}
	topics, err := list(cmd.Context(), names...)
	if err != nil {
		return nil, c.reach(err)
	}
	var errs []error
	for _, name := range names {
		if err := topics[name].Err; err != nil {
			errs = append(errs, topicError(name, err))
		}
	}
	return topics, errors.Join(errs...)
}

// topicError says what is wrong with a topic, and where to look.
func topicError(topic string, err error) error {
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("topic %s does not exist; `lacuna topics list` shows those that do", topic)
	}
	return fmt.Errorf("topic %s: %w", topic, err)
}

// keyValues reads KEY=VALUE arguments.
func keyValues(flag string, pairs []string) (map[string]string, error) {
	values := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, usagef("%s %q: it has the form KEY=VALUE", flag, pair)
		}
		values[key] = value
	}
	return values, nil
}

// partitionsOf are the numbers of a topic's partitions.
func partitionsOf(t kadm.TopicDetail) []int32 {
	numbers := t.Partitions.Numbers()
	slices.Sort(numbers)
	return numbers
}

// topicID is a topic's id as Kafka's tools write it.
func topicID(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }
