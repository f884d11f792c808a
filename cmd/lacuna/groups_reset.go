package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/spf13/cobra"
)

func groupsResetCommand(c *cli) *cobra.Command {
	var (
		flags ledgerFlags
		to    string
		yes   bool
		share bool
	)
	cmd := &cobra.Command{
		Use:   "reset GROUP",
		Short: "Move a group that has no members; its gaps are forgotten",
		Long: `Move a group to a position: below it all counts as committed, from it on nothing does, and
gaps on either side are forgotten. The group must have no members. One that does not exist
is made: with --share a share group.`,
		Example: `  lacuna groups reset billing --to earliest
  lacuna groups reset billing -t orders --to 2026-01-31T12:00:00Z
  lacuna groups reset billing -t orders -p 0 --to 1000 --yes
  lacuna groups reset mail -t orders --to -1h --share`,
		Args: exactlyOne("group"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return usagef("say with --to where to: earliest, latest, an offset, a time, or how long ago (-1h)")
			}
			position, err := parsePosition("--to", to, time.Now())
			if err != nil {
				return err
			}
			a, err := c.ledgerAdmin()
			if err != nil {
				return err
			}
			defer a.Close()
			ledgers, err := c.describe(cmd, a, args[0], &flags)
			if err != nil {
				return err
			}
			tps := make([]client.TopicPartition, len(ledgers))
			for i := range ledgers {
				tps[i] = ledgers[i].TopicPartition
			}
			question := fmt.Sprintf("move group %s to %v in %s, forgetting its gaps?", args[0], position, plural(int64(len(tps)), "partition", "partitions"))
			if err := c.confirm(yes, question); err != nil {
				return err
			}
			move := a.Reset
			if share {
				move = a.ResetShare
			}
			done, err := move(cmd.Context(), args[0], position, tps...)
			if err != nil {
				return c.reach(err)
			}
			return c.reportReset(done)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&to, "to", "", "earliest, latest, an offset, a time (2026-01-31T12:00:00Z), or how long ago (-1h)")
	cmd.Flags().BoolVar(&share, "share", false, "of a share group, which is made if there is none")
	yesFlag(cmd, &yes)
	return cmd
}

// resetJSON is what --output json says of a partition.
type resetJSON struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
	Error     string `json:"error,omitempty"`
}

func (c *cli) reportReset(done []client.Reset) error {
	t := newTable("TOPIC", ">PARTITION", ">FROM", ">TO")
	var errs []error
	for _, r := range done {
		if r.Err != nil {
			errs = append(errs, r.Err)
		}
		if c.output == "json" {
			if err := writeJSON(c.out, resetJSON{Topic: r.Topic, Partition: r.Partition, From: r.From, To: r.To, Error: errorText(r.Err)}); err != nil {
				return err
			}
			continue
		}
		if r.Err == nil {
			t.add(r.Topic, r.Partition, offsetOrDash(r.From), r.To)
		}
	}
	if len(t.rows) > 0 {
		if err := t.write(c.out); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}
