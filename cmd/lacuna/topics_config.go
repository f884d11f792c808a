package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func topicsConfigCommand(c *cli) *cobra.Command {
	var flags settingFlags
	cmd := &cobra.Command{
		Use:   "config TOPIC",
		Short: "Show or change the settings of a topic",
		Example: `  lacuna topics config orders
  lacuna topics config orders --set retention.ms=3600000 --unset retention.bytes`,
		Args: exactlyOne("topic"),
		RunE: func(cmd *cobra.Command, names []string) error {
			values, err := keyValues("--set", flags.set)
			if err != nil {
				return err
			}
			adm, err := c.kafkaAdmin()
			if err != nil {
				return err
			}
			defer adm.Close()
			if len(values)+len(flags.unset) > 0 {
				return c.alterTopic(cmd, adm, names[0], values, flags.unset)
			}
			return c.showTopicConfig(cmd, adm, names[0])
		},
	}
	flags.add(cmd)
	return cmd
}

func (c *cli) alterTopic(cmd *cobra.Command, adm *kadm.Client, topic string, set map[string]string, unset []string) error {
	var changes []kadm.AlterConfig
	for _, key := range sortedKeys(set) {
		value := set[key]
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: &value})
	}
	for _, key := range unset {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: key})
	}
	altered, err := adm.AlterTopicConfigs(cmd.Context(), changes, topic)
	if err != nil {
		return c.reach(err)
	}
	for _, a := range altered {
		if a.Err != nil {
			return topicError(topic, said(a.Err, a.ErrMessage))
		}
	}
	_, err = fmt.Fprintf(c.out, "changed %s of %s\n", plural(int64(len(changes)), "setting", "settings"), topic)
	return err
}

func (c *cli) showTopicConfig(cmd *cobra.Command, adm *kadm.Client, topic string) error {
	configs, err := adm.DescribeTopicConfigs(cmd.Context(), topic)
	if err != nil {
		return c.reach(err)
	}
	var all []setting
	for _, config := range configs {
		if config.Err != nil {
			return topicError(topic, config.Err)
		}
		for _, entry := range config.Configs {
			all = append(all, setting{Name: entry.Key, Value: entry.MaybeValue(), By: settingSource(entry.Source)})
		}
	}
	return c.writeSettings(all)
}

func isTopicSetting(entry kadm.Config) bool {
	return entry.Source == kmsg.ConfigSourceDynamicTopicConfig
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
