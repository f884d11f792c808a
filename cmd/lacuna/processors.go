package main

import (
	"errors"
	"fmt"

	"github.com/lacunamq/lacuna/processor/assignor"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func processorsCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "processors",
		Short: "Show who of a group of stateful processors has which keys",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.connectFlags(cmd)
	c.outputFlag(cmd)
	cmd.AddCommand(processorsDescribeCommand(c))
	return cmd
}

func processorsDescribeCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "describe GROUP",
		Short: "Show the members, tasks and key slots of a group of processors, and how far it is",
		Long: `Show the members, tasks and key slots of a group of processors, and how far it is.

A task is a bucket of linear hashing. A member processes what is active of it; what it
rebuilds it builds up the state of, while another member processes that. OFFSET is the next
that its store had to take in, and LAG how many offsets it was behind the group's ledger, when
it last joined, which is not now: it joins again when it is close enough to take over.

MAX COMMIT is one past the highest offset that the group has processed, and what a task that
rebuilds has to come to; below STABLE everything is processed.`,
		Example: "  lacuna processors describe wordcount",
		Args:    exactlyOne("group"),
		RunE: func(cmd *cobra.Command, args []string) error {
			adm, err := c.kafkaAdmin()
			if err != nil {
				return err
			}
			defer adm.Close()
			if describeShareGroup(cmd.Context(), adm, args[0]) != nil {
				return groupError(args[0], errors.New("it is a share group and not one of processors; see lacuna groups describe"))
			}
			described, err := adm.DescribeGroups(cmd.Context(), args[0])
			if err != nil {
				return c.reach(err)
			}
			d, err := c.describeProcessors(cmd, adm, described[args[0]])
			if err != nil {
				return groupError(args[0], err)
			}
			if c.output == "json" {
				return writeJSON(c.out, d)
			}
			return d.write(c)
		},
	}
}

// describeProcessors is what is known of a group, if it is one of processors.
func (c *cli) describeProcessors(cmd *cobra.Command, adm *kadm.Client, group kadm.DescribedGroup) (describedProcessors, error) {
	d := describedProcessors{Group: group.Group, State: group.State, Members: []processorMember{}}
	switch {
	case group.State == "Dead", errors.Is(group.Err, kerr.GroupIDNotFound): // by the version of the answer
		return d, errNoGroup
	case group.Err != nil:
		return d, group.Err
	case group.Protocol != "" && group.Protocol != assignor.ProtocolName:
		return d, fmt.Errorf("it is a group of consumers with the assignor %q and not one of processors, which is %q; see lacuna groups describe",
			group.Protocol, assignor.ProtocolName)
	}
	ledgers, err := c.groupLedgers(cmd, adm, group.Group, new(ledgerFlags))
	if err != nil {
		return d, err
	}
	d.Ledgers = ledgers
	said, err := readProcessors(group)
	if err != nil {
		return d, err
	}
	d.add(said)
	return d, nil
}
