package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func topicsDeleteCommand(c *cli) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete TOPIC...",
		Short: "Delete topics, with their records and what groups have committed of them",
		Args:  atLeastOne("topic"),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := c.confirm(yes, fmt.Sprintf("delete %s and all records?", strings.Join(names, ", "))); err != nil {
				return err
			}
			adm, err := c.kafkaAdmin()
			if err != nil {
				return err
			}
			defer adm.Close()
			deleted, err := adm.DeleteTopics(cmd.Context(), names...)
			if err != nil {
				return c.reach(err)
			}
			var errs []error
			for _, name := range names {
				if err := deleted[name].Err; err != nil {
					errs = append(errs, topicError(name, err))
					continue
				}
				fmt.Fprintf(c.out, "deleted %s\n", name)
			}
			return errors.Join(errs...)
		},
	}
	yesFlag(cmd, &yes)
	return cmd
}

func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do not ask")
}

// confirm asks a person whether to go on. Without one, --yes has to say it.
func (c *cli) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if !c.inTerminal {
		return usagef("%s say --yes to go on (nobody is here to ask)", question)
	}
	fmt.Fprintf(c.err, "%s [y/N] ", question)
	answer, err := bufio.NewReader(c.in).ReadString('\n')
	if err != nil || !strings.HasPrefix(strings.ToLower(strings.TrimSpace(answer)), "y") {
		return errors.New("not done")
	}
	return nil
}
