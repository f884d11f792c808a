package main

import (
	"github.com/spf13/cobra"
)

func groupsListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List groups",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			adm, err := c.kafkaAdmin()
			if err != nil {
				return err
			}
			defer adm.Close()
			groups, err := adm.ListGroups(cmd.Context())
			if err != nil {
				return c.reach(err)
			}
			t := newTable("GROUP", "STATE", "TYPE", "PROTOCOL")
			for _, g := range groups.Sorted() {
				if c.output == "json" {
					if err := writeJSON(c.out, listedGroup{Group: g.Group, State: g.State, Type: g.GroupType, Protocol: g.ProtocolType}); err != nil {
						return err
					}
					continue
				}
				t.add(g.Group, g.State, g.GroupType, g.ProtocolType)
			}
			if c.output == "json" {
				return nil
			}
			return t.write(c.out)
		},
	}
}

// listedGroup is what --output json says of a group.
type listedGroup struct {
	Group    string `json:"group"`
	State    string `json:"state"`
	Type     string `json:"type,omitempty"`
	Protocol string `json:"protocol,omitempty"`
}
