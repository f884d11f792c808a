package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func topicsCreateCommand(c *cli) *cobra.Command {
	var (
		partitions  int32
		configs     []string
		ifNotExists bool
	)
	cmd := &cobra.Command{
		Use:   "create TOPIC...",
		Short: "Create topics",
		Example: `  lacuna topics create orders --partitions 4
  lacuna topics create accounts --config cleanup.policy=compact`,
		Args: atLeastOne("topic"),
		RunE: func(cmd *cobra.Command, names []string) error {
			values, err := keyValues("--config", configs)
			if err != nil {
				return err
			}
			adm, err := c.kafkaAdmin()
			if err != nil {
				return err
			}
			defer adm.Close()
			created, err := adm.CreateTopics(cmd.Context(), partitions, -1, pointers(values), names...)
			if err != nil {
				return c.reach(err)
			}
			return c.reportCreated(created, names, ifNotExists)
		},
	}
	cmd.Flags().Int32VarP(&partitions, "partitions", "p", -1, "number of partitions (-1: as the broker is set)")
	cmd.Flags().StringArrayVar(&configs, "config", nil, "topic setting, KEY=VALUE; may repeat")
	cmd.Flags().BoolVar(&ifNotExists, "if-not-exists", false, "leave a topic alone that exists already")
	return cmd
}

// createdTopic is what --output json says of a topic.
type createdTopic struct {
	Topic      string `json:"topic"`
	ID         string `json:"id,omitempty"`
	Partitions int32  `json:"partitions,omitempty"`
	Created    bool   `json:"created"`
	Error      string `json:"error,omitempty"`
}

func (c *cli) reportCreated(created kadm.CreateTopicResponses, names []string, ifNotExists bool) error {
	var errs []error
	for _, name := range names {
		r := created[name]
		out := createdTopic{Topic: name, Partitions: r.NumPartitions, Created: r.Err == nil}
		switch {
		case r.Err == nil:
			out.ID = topicID(r.ID)
		case ifNotExists && errors.Is(r.Err, kerr.TopicAlreadyExists):
		default:
			err := createError(name, r)
			out.Error = err.Error()
			errs = append(errs, err)
		}
		switch {
		case c.output == "json":
			if err := writeJSON(c.out, out); err != nil {
				return err
			}
		case out.Created:
			fmt.Fprintf(c.out, "created %s, %s\n", name, plural(int64(r.NumPartitions), "partition", "partitions"))
		case out.Error == "":
			fmt.Fprintf(c.out, "%s exists\n", name)
		}
	}
	return errors.Join(errs...)
}

func createError(name string, r kadm.CreateTopicResponse) error {
	err := fmt.Errorf("create topic %s: %w", name, said(r.Err, r.ErrMessage))
	if errors.Is(r.Err, kerr.TopicAlreadyExists) {
		err = fmt.Errorf("%w (--if-not-exists accepts that)", err)
	}
	return err
}

// pointers is a map as kadm wants it.
func pointers(values map[string]string) map[string]*string {
	out := make(map[string]*string, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		value := values[key]
		out[key] = &value
	}
	return out
}
