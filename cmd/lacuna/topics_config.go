package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func topicsConfigCommand(c *cli) *cobra.Command {
	var set, unset []string
	cmd := &cobra.Command{
		Use:   "config TOPIC",
		Short: "Show or change the settings of a topic",
		Example: `  lacuna topics config orders
  lacuna topics config orders --set retention.ms=3600000 --unset retention.bytes`,
		Args: exactlyOne("topic"),
		RunE: func(cmd *cobra.Command, names []string) error {
			values, err := keyValues("--set", set)
			if err != nil {
				return err
			}
			adm, err := c.kafkaAdmin()
			if err != nil {
				return err
			}
			defer adm.Close()
			if len(values)+len(unset) > 0 {
				return c.alterTopic(cmd, adm, names[0], values, unset)
			}
			return c.showTopicConfig(cmd, adm, names[0])
		},
	}
	cmd.Flags().StringArrayVar(&set, "set", nil, "setting, KEY=VALUE; may repeat")
	cmd.Flags().StringArrayVar(&unset, "unset", nil, "setting that returns to the broker's; may repeat")
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
			err := topicError(topic, a.Err)
			if a.ErrMessage != "" {
				err = fmt.Errorf("%w: %s", err, a.ErrMessage)
			}
			return err
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
	t := newTable("SETTING", "VALUE", "SET BY")
	for _, config := range configs {
		if config.Err != nil {
			return topicError(topic, config.Err)
		}
		slices.SortFunc(config.Configs, func(a, b kadm.Config) int { return strings.Compare(a.Key, b.Key) })
		for _, entry := range config.Configs {
			by := settingSource(entry)
			if c.output == "json" {
				if err := writeJSON(c.out, map[string]string{"setting": entry.Key, "value": entry.MaybeValue(), "set_by": by}); err != nil {
					return err
				}
				continue
			}
			t.add(entry.Key, entry.MaybeValue(), by)
		}
	}
	if c.output == "json" {
		return nil
	}
	if len(t.rows) == 0 {
		return errors.New("the broker listed no settings")
	}
	return t.write(c.out)
}

// settingSource says who set a value.
func settingSource(entry kadm.Config) string {
	switch entry.Source {
	case kmsg.ConfigSourceDynamicTopicConfig:
		return "this topic"
	case kmsg.ConfigSourceDynamicBrokerConfig, kmsg.ConfigSourceDynamicDefaultBrokerConfig, kmsg.ConfigSourceStaticBrokerConfig:
		return "the broker"
	case kmsg.ConfigSourceDefaultConfig:
		return "default"
	}
	return entry.Source.String()
}

func isTopicSetting(entry kadm.Config) bool {
	return entry.Source == kmsg.ConfigSourceDynamicTopicConfig
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
