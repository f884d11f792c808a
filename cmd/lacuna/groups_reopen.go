package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/lacunamq/lacuna/client"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
)

func groupsReopenCommand(c *cli) *cobra.Command {
	return changeCommand(c, "reopen", "reopened", "Open committed offsets of one partition again", `Make committed offsets uncommitted again, so that their records are delivered once more:
to a reader that runs within its refresh interval, to one that starts at once.`, reopen)
}

func groupsCommitCommand(c *cli) *cobra.Command {
	return changeCommand(c, "commit", "committed", "Commit offsets of one partition", `Commit offsets for a group that has no members, so that their records are not delivered
again.`, func(ctx context.Context, a *client.Admin, group, topic string, partition int32, runs ...client.Run) (client.State, error) {
		state, err := a.Commit(ctx, group, topic, partition, runs...)
		if errors.Is(err, kerr.GroupIDNotFound) {
			err = fmt.Errorf("%w\nthe offsets of a share group are committed by its members; `lacuna groups reset` moves it, `lacuna groups list` shows the types of groups", err)
		}
		return state, err
	})
}

// reopen is Admin.Reopen for a person, who may have the name of the group wrong: that would
// begin a ledger for nobody.
func reopen(ctx context.Context, a *client.Admin, group, topic string, partition int32, runs ...client.Run) (client.State, error) {
	ledgers, err := a.Describe(ctx, group, topic)
	if err != nil {
		return client.State{}, err
	}
	for i := range ledgers {
		if l := &ledgers[i]; l.Partition == partition && l.Err == nil && l.MaxCommit < 0 {
			return client.State{}, fmt.Errorf("group %s has committed nothing of %v; `lacuna groups list` shows the groups", group, l.TopicPartition)
		}
	}
	return a.Reopen(ctx, group, topic, partition, runs...)
}

// changer is a call of Admin that changes offsets of one ledger.
type changer func(ctx context.Context, a *client.Admin, group, topic string, partition int32, runs ...client.Run) (client.State, error)

func changeCommand(c *cli, verb, done, short, long string, change changer) *cobra.Command {
	var at partitionFlags
	var offsets string
	cmd := &cobra.Command{
		Use:     verb + " GROUP",
		Short:   short,
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
			state, err := change(cmd.Context(), a, args[0], at.topic, at.partition, runs...)
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
