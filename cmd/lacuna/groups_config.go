package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func groupsConfigCommand(c *cli) *cobra.Command {
	var flags settingFlags
	cmd := &cobra.Command{
		Use:   "config GROUP",
		Short: "Show or change the settings of a group, such as share.delivery.mode",
		Long: `Show or change the settings of a consumer or share group. A group need not exist to have
settings: those of a share group are best made before its first member joins.`,
		Example: `  lacuna groups config billing
  lacuna groups config billing --set share.delivery.mode=key-ordered --set share.auto.offset.reset=earliest
  lacuna groups config billing --unset share.delivery.count.limit`,
		Args: exactlyOne("group"),
		RunE: func(cmd *cobra.Command, groups []string) error {
			values, err := keyValues("--set", flags.set)
			if err != nil {
				return err
			}
			cl, err := c.connect()
			if err != nil {
				return err
			}
			defer cl.Close()
			if len(values)+len(flags.unset) > 0 {
				return c.alterGroup(cmd, cl, groups[0], values, flags.unset)
			}
			return c.showGroupConfig(cmd, cl, groups[0])
		},
	}
	flags.add(cmd)
	return cmd
}

func (c *cli) alterGroup(cmd *cobra.Command, cl *kgo.Client, group string, set map[string]string, unset []string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for _, key := range sortedKeys(set) {
		value := set[key]
		resource.Configs = append(resource.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{
			Name: key, Op: kmsg.IncrementalAlterConfigOpSet, Value: &value,
		})
	}
	for _, key := range unset {
		resource.Configs = append(resource.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{
			Name: key, Op: kmsg.IncrementalAlterConfigOpDelete,
		})
	}
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(cmd.Context(), cl)
	if err != nil {
		return c.reach(err)
	}
	for i := range resp.Resources {
		if err := resourceError(resp.Resources[i].ErrorCode, resp.Resources[i].ErrorMessage); err != nil {
			return groupError(group, err)
		}
	}
	_, err = fmt.Fprintf(c.out, "changed %s of %s\n", plural(int64(len(resource.Configs)), "setting", "settings"), group)
	return err
}

func resourceError(code int16, message *string) error {
	if message == nil {
		return kerr.ErrorForCode(code)
	}
	return said(kerr.ErrorForCode(code), *message)
}

func (c *cli) showGroupConfig(cmd *cobra.Command, cl *kgo.Client, group string) error {
	req := kmsg.NewPtrDescribeConfigsRequest()
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(cmd.Context(), cl)
	if err != nil {
		return c.reach(err)
	}
	var all []setting
	for i := range resp.Resources {
		r := &resp.Resources[i]
		if err := resourceError(r.ErrorCode, r.ErrorMessage); err != nil {
			return groupError(group, err)
		}
		for j := range r.Configs {
			entry := setting{Name: r.Configs[j].Name, By: settingSource(r.Configs[j].Source)}
			if r.Configs[j].Value != nil {
				entry.Value = *r.Configs[j].Value
			}
			all = append(all, entry)
		}
	}
	return c.writeSettings(all)
}
