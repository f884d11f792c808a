package main

import (
	"errors"
	"fmt"

	"github.com/lacunamq/lacuna/client"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
)

func groupsCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "groups",
		Short: "Show what groups have committed and acquired, draw the gaps, commit, reopen, reset",
		Long: `Show what groups have committed of what they read, and change it.

A group's ledger of a partition says which offsets it has committed. Below the stable
offset all are; between it and the max commit offset there may be gaps: offsets that are
open, and are delivered again. Members of a share group acquire open records; with --admin
the commands show which, for how long, and what an offset waits for.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.connectFlags(cmd)
	c.outputFlag(cmd)
	c.adminFlag(cmd)
	cmd.AddCommand(groupsListCommand(c), groupsDescribeCommand(c), groupsGapsCommand(c), groupsExplainCommand(c),
		groupsCommitCommand(c), groupsReopenCommand(c), groupsResetCommand(c), groupsDeleteCommand(c),
		groupsConfigCommand(c))
	return cmd
}

// ledgerFlags choose ledgers of a group.
type ledgerFlags struct {
	topics     []string
	partitions []int32
}

func (l *ledgerFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&l.topics, "topic", "t", nil, "topic; may repeat (default: all that the group has committed of)")
	cmd.Flags().Int32SliceVarP(&l.partitions, "partition", "p", nil, "partition; may repeat (default: all)")
}

// wants tells whether a partition was chosen.
func (l *ledgerFlags) wants(tp client.TopicPartition) bool {
	if len(l.partitions) == 0 {
		return true
	}
	for _, n := range l.partitions {
		if n == tp.Partition {
			return true
		}
	}
	return false
}

// describe reads the chosen ledgers of a group. It fails if there are none.
func (c *cli) describe(cmd *cobra.Command, a *client.Admin, group string, flags *ledgerFlags) ([]client.Ledger, error) {
	all, err := a.Describe(cmd.Context(), group, flags.topics...)
	if err != nil {
		return nil, c.reach(err)
	}
	var ledgers []client.Ledger
	for _, l := range all {
		if flags.wants(l.TopicPartition) {
			ledgers = append(ledgers, l)
		}
	}
	if len(ledgers) == 0 {
		return nil, fmt.Errorf("group %s has committed nothing there; `lacuna groups list` shows the groups", group)
	}
	return ledgers, nil
}

// groupError says what is wrong with a group.
func groupError(group string, err error) error {
	if errors.Is(err, kerr.GroupIDNotFound) {
		err = errNoGroup
	}
	return fmt.Errorf("group %s: %w", group, err)
}

var errNoGroup = errors.New("there is no such group; `lacuna groups list` shows the groups")

func groupsDeleteCommand(c *cli) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete GROUP...",
		Short: "Delete groups without members, with all that they have committed",
		Args:  atLeastOne("group"),
		RunE: func(cmd *cobra.Command, groups []string) error {
			if err := c.confirm(yes, fmt.Sprintf("delete %q and what they have committed?", groups)); err != nil {
				return err
			}
			adm, err := c.kafkaAdmin()
			if err != nil {
				return err
			}
			defer adm.Close()
			deleted, err := adm.DeleteGroups(cmd.Context(), groups...)
			if err != nil {
				return c.reach(err)
			}
			var errs []error
			for _, group := range groups {
				if err := deleted[group].Err; err != nil {
					errs = append(errs, groupError(group, err))
					continue
				}
				fmt.Fprintf(c.out, "deleted %s\n", group)
			}
			return errors.Join(errs...)
		},
	}
	yesFlag(cmd, &yes)
	return cmd
}
