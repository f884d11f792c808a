package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/client"
	"github.com/spf13/cobra"
)

func groupsExplainCommand(c *cli) *cobra.Command {
	var at partitionFlags
	var offset int64
	cmd := &cobra.Command{
		Use:   "explain GROUP",
		Short: "Say in what state an offset is for a group, and what holds it",
		Long: `Say in what state an offset is for a group, and what follows from that. With --admin, of a
share group also who has acquired the record, until when and in which delivery, or what it
waits for: earlier records of its key, a backoff, a transaction, a dead letter.`,
		Example: "  lacuna groups explain billing -t orders -p 0 --offset 1204",
		Args:    exactlyOne("group"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if at.topic == "" || offset < 0 {
				return usagef("%s needs --topic and --offset; see %s --help", cmd.CommandPath(), cmd.CommandPath())
			}
			if c.admin != "" {
				if err := c.explainShare(cmd, args[0], at.topic, at.partition, offset); !errors.Is(err, errNoShareGroup) {
					return err
				}
			}
			a, err := c.ledgerAdmin()
			if err != nil {
				return err
			}
			defer a.Close()
			flags := ledgerFlags{topics: []string{at.topic}, partitions: []int32{at.partition}}
			ledgers, err := c.describe(cmd, a, args[0], &flags)
			if err != nil {
				return err
			}
			if err := ledgers[0].Err; err != nil {
				return err
			}
			page, err := a.GapsPage(cmd.Context(), args[0], at.topic, at.partition, offset, 1)
			if err != nil {
				return c.reach(err)
			}
			e := explain(&ledgers[0], page.Gaps, offset)
			if e.State == "open" {
				if err := c.explainPending(cmd.Context(), a, &ledgers[0], &e); err != nil {
					return err
				}
			}
			if e.State == "open" && c.isShareGroup(cmd.Context(), args[0]) {
				e.Why = strings.TrimSuffix(e.Why, "; "+readerDelivers) + "; " + adminHint
			}
			if c.output == "json" {
				return writeJSON(c.out, e)
			}
			_, err = fmt.Fprintf(c.out, "offset %d of %v is %s for group %s:\n  %s\n", offset, ledgers[0].TopicPartition, e.State, args[0], e.Why)
			return err
		},
	}
	at.add(cmd)
	cmd.Flags().Int64Var(&offset, "offset", -1, "offset")
	return cmd
}

// readerDelivers is what follows for a reader; members of share groups get what is open
// anyway.
const readerDelivers = "it is delivered again when a reader of the group starts"

// explainPending says in what transaction an offset is pending, if it is.
func (c *cli) explainPending(ctx context.Context, a *client.Admin, l *client.Ledger, e *explanation) error {
	held, ok, err := a.PendingIn(ctx, l.Group, l.Topic, l.Partition, e.Offset)
	switch {
	case err != nil && !errors.Is(err, client.ErrNoEcho):
		return c.reach(err)
	case ok:
		in := inTransaction{ProducerID: held.ProducerID, ProducerEpoch: held.ProducerEpoch}
		names := map[int64]string{in.ProducerID: ""}
		if err := nameProducers(ctx, a, names); err != nil {
			return err
		}
		in.TransactionalID = names[in.ProducerID]
		e.State, e.Why = "pending", fmt.Sprintf("it is with %v: committed if that commits, open again if it aborts", &in)
		e.Transaction = &in
		return nil
	}
	unstable, err := c.unstable(ctx, l.Group)
	if unstable[l.TopicPartition] {
		e.Why += "; an open transaction commits something of the partition: see lacuna groups gaps, lacuna transactions list"
	}
	return err
}

// explainShare says what the admin listener knows of an offset.
func (c *cli) explainShare(cmd *cobra.Command, group, topic string, partition int32, offset int64) error {
	var e broker.OffsetExplanation
	err := c.askAdmin(cmd.Context(), shareGroupPath(group)+"/explain", url.Values{
		"topic": {topic}, "partition": {strconv.Itoa(int(partition))}, "offset": {strconv.FormatInt(offset, 10)},
	}, &e)
	if err != nil {
		return err
	}
	if c.output == "json" {
		return writeJSON(c.out, e)
	}
	fmt.Fprintf(c.out, "offset %d of %v is %s for share group %s:\n  %s\n", offset, client.TopicPartition{Topic: topic, Partition: partition}, e.State, group, e.Why)
	if e.Key != nil {
		fmt.Fprintf(c.out, "  key %q, ", *e.Key)
	} else if e.Slot != nil {
		fmt.Fprint(c.out, "  ")
	}
	if e.Slot != nil {
		fmt.Fprintf(c.out, "key slot %d", *e.Slot)
		if e.State != "committed" && e.State != "open" { // else nobody has counted, or does any more
			fmt.Fprintf(c.out, "; %s so far", plural(int64(e.Deliveries), "delivery", "deliveries"))
		}
		fmt.Fprintln(c.out)
	}
	return nil
}

// isShareGroup tells whether a group is a share group.
func (c *cli) isShareGroup(ctx context.Context, group string) bool {
	adm, err := c.kafkaAdmin()
	if err != nil {
		return false
	}
	defer adm.Close()
	return describeShareGroup(ctx, adm, group) != nil
}

// explanation is the state of one offset, in one word and in a sentence.
type explanation struct {
	Offset int64  `json:"offset"`
	State  string `json:"state"`
	Why    string `json:"why"`
	// Transaction is the one that the offset is pending in.
	Transaction *inTransaction `json:"transaction,omitempty"`
}

// explain finds the state of an offset. Gaps are the first from it on, if there is one.
func explain(l *client.Ledger, gaps []client.Run, offset int64) explanation {
	e := explanation{Offset: offset, State: "open"}
	switch {
	case offset < l.LogStart:
		e.State, e.Why = "gone", fmt.Sprintf("the log starts at %d; what was below it was deleted", l.LogStart)
	case offset >= l.LogEnd:
		e.State, e.Why = "not written", fmt.Sprintf("the log ends at %d", l.LogEnd)
	case l.Stable < 0:
		e.Why = "the group has committed nothing of the partition"
	case offset < l.Stable:
		e.State, e.Why = "committed", fmt.Sprintf("everything below the stable offset %d is", l.Stable)
	case offset >= l.MaxCommit:
		e.Why = fmt.Sprintf("nothing from the max commit offset %d on is committed", l.MaxCommit)
	case len(gaps) > 0 && gaps[0].Start <= offset:
		e.Why = fmt.Sprintf("it lies in the gap %s; %s", formatRun(gaps[0]), readerDelivers)
	default:
		e.State, e.Why = "committed", fmt.Sprintf("on its own, above the stable offset %d", l.Stable)
	}
	return e
}
