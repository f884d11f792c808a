package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/dustin/go-humanize"
	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/cmd/lacuna/internal/fsck"
	"github.com/spf13/cobra"
)

func fsckCommand(c *cli) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "fsck [DIR]",
		Short: "Check a data directory while no broker uses it, without changing it",
		Long: `Check a data directory, ./lacuna-data if none is named: every batch against its checksum,
the ledgers against the records that they are about, and the offsets topic against the
ledgers. Nothing is changed: what it says about is what the next start of a broker finds
and deals with.

The exit code is 1 if there is an error, 0 if there are notes and warnings at most.`,
		Example: "  lacuna fsck ./lacuna-data",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := broker.DefaultDataDir
			if len(args) > 0 {
				dir = args[0]
			}
			dir, err := filepath.Abs(dir)
			if err != nil {
				return usagef("%w", err)
			}
			bar := c.newBar("checking", -1, true, quiet)
			report, err := fsck.Check(cmd.Context(), vfs.Default, dir, bar.add)
			bar.finish()
			if err != nil {
				return err
			}
			return c.reportCheck(&report)
		},
	}
	c.outputFlag(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress on a terminal")
	return cmd
}

func (c *cli) reportCheck(r *fsck.Report) error {
	if c.output == "json" {
		if err := writeJSON(c.out, r); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(c.out, "%s: %s, %s, %s in %s, %s\n", r.Dir,
			plural(int64(r.Topics), "topic", "topics"), plural(int64(r.Partitions), "partition", "partitions"),
			plural(r.Records, "record", "records"), plural(r.Batches, "batch", "batches"), humanize.IBytes(uint64(r.Bytes)))
		fmt.Fprintf(c.out, "%s, %s with %s\n", plural(int64(r.Offsets), "committed offset", "committed offsets"),
			plural(int64(r.Ledgers), "ledger", "ledgers"), plural(r.Gaps, "gap", "gaps"))
		for _, f := range r.Findings {
			fmt.Fprintf(c.out, "%-7s  %s: %s\n", f.Severity, f.Where, f.What)
		}
		if len(r.Findings) == 0 {
			fmt.Fprintln(c.out, "nothing is wrong")
		}
	}
	if r.Worst() == fsck.Error {
		return silentError{errors.New("there are errors")}
	}
	return nil
}
