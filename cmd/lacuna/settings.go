package main

import (
	"errors"
	"sort"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// settingFlags say what is to be changed.
type settingFlags struct{ set, unset []string }

func (f *settingFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.set, "set", nil, "setting, KEY=VALUE; may repeat")
	cmd.Flags().StringArrayVar(&f.unset, "unset", nil, "setting that returns to the broker's; may repeat")
}

// setting is one setting of a topic or a group, and who set it.
type setting struct {
	By    string `json:"set_by"`
	Name  string `json:"setting"`
	Value string `json:"value"`
}

// writeSettings shows settings by name: a table, or a line of JSON for each.
func (c *cli) writeSettings(all []setting) error {
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	if c.output == "json" {
		for _, s := range all {
			if err := writeJSON(c.out, s); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) == 0 {
		return errors.New("the broker listed no settings")
	}
	t := newTable("SETTING", "VALUE", "SET BY")
	for _, s := range all {
		t.add(s.Name, s.Value, s.By)
	}
	return t.write(c.out)
}

// settingSource says who set a value.
func settingSource(s kmsg.ConfigSource) string {
	switch s {
	case kmsg.ConfigSourceDynamicTopicConfig:
		return "this topic"
	case kmsg.ConfigSourceGroupConfig:
		return "this group"
	case kmsg.ConfigSourceDynamicBrokerConfig, kmsg.ConfigSourceDynamicDefaultBrokerConfig, kmsg.ConfigSourceStaticBrokerConfig:
		return "the broker"
	case kmsg.ConfigSourceDefaultConfig:
		return "default"
	}
	return s.String()
}
