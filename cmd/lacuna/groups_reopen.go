package main

import (
	"context"
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/lacunamq/lacuna/client"
	"github.com/spf13/cobra"
)

func groupsReopenCommand(c *cli) *cobra.Command {
	return changeCommand(c, "reopen", "reopened", `Make committed offsets uncommitted again, so that their records are delivered once more:
to a reader that runs within its refresh interval, to one that starts at once.`, (*client.Admin).Reopen)
}

func groupsCommitCommand(c *cli) *cobra.Command {
	return changeCommand(c, "commit", "committed", `Commit offsets for a group that has no members, so that their records are not delivered
again.`, (*client.Admin).Commit)
}

// changer is a call of Admin that changes offsets of one ledger.
type changer func(a *client.Admin, ctx context.Context, group, topic string, partition int32, runs ...client.Run) (client.State, error)

func changeCommand(c *cli, verb, done, long string, change changer) *cobra.Command {
	var at partitionFlags
	var offsets string
	cmd := &cobra.Command{
		Use:     verb + " GROUP",
		Short:   fmt.Sprintf("Make offsets of one partition %s", done),
		Long:    long,
		Example: fmt.Sprintf("  lacuna groups %s billing -t orders -p 0 --offsets 7,10-12", verb),
		Args:    exactlyOne("group"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if at.topic == "" || offsets == "" {
				return usagef("%s needs --topic and --offsets; see %s --help", cmd.CommandPath(), cmd.CommandPath())
			}
			runs, err := parseRuns("--offsets", offsets)
			if err != nil {
				return err
			}
			a, err := c.ledgerAdmin()
			if err != nil {
				return err
			}
			defer a.Close()
			state, err := change(a, cmd.Context(), args[0], at.topic, at.partition, runs...)
			if err != nil {
				return c.reach(err)
			}
			if c.output == "json" {
				return writeJSON(c.out, map[string]int64{"stable": state.Stable, "max_commit": state.MaxCommit})
			}
			_, err = fmt.Fprintf(c.out, "%s; stable offset %s, max commit offset %s\n", done, humanize.Comma(state.Stable), humanize.Comma(state.MaxCommit))
			return err
		},
	}
	at.add(cmd)
	cmd.Flags().StringVar(&offsets, "offsets", "", "offsets, such as 7,10-12")
	return cmd
}
