package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func transactionsAbortCommand(c *cli) *cobra.Command {
	var yes bool
	var at partitionFlags
	var start int64
	cmd := &cobra.Command{
		Use:   "abort [ID]",
		Short: "Abort an open transaction",
		Long: `Abort the open transaction of a transactional id. Its producer is fenced: it can do nothing
more before it begins anew.

A transaction that hangs in a partition, as lacuna transactions find-hanging shows it, is
named by --topic, --partition and --start-offset. Then an abort marker is written to that
partition only. That is refused while the open transaction of a transactional id has it.`,
		Example: `  lacuna transactions abort billing-0
  lacuna transactions abort -t orders -p 0 --start-offset 1204`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			if (len(ids) == 1) == (at.topic != "" && start >= 0) || len(ids) > 1 {
				return usagef("%s needs one transactional id, or --topic and --start-offset; see %s --help", cmd.CommandPath(), cmd.CommandPath())
			}
			cl, err := c.connect()
			if err != nil {
				return err
			}
			defer cl.Close()
			if len(ids) == 0 {
				return c.abortHanging(cmd, kadm.NewClient(cl), &at, start, yes)
			}
			return c.abortByID(cmd, cl, ids[0], yes)
		},
	}
	at.add(cmd)
	cmd.Flags().Int64Var(&start, "start-offset", -1, "where the transaction begins in the partition")
	yesFlag(cmd, &yes)
	return cmd
}

// abortByID begins a new producer under the transactional id, which aborts what the one
// before has open. The new one is never used.
func (c *cli) abortByID(cmd *cobra.Command, cl *kgo.Client, id string, yes bool) error {
	shown, err := c.describeTransactions(cmd, kadm.NewClient(cl), []string{id})
	if err != nil {
		return err
	}
	t := &shown[0]
	if t.State != "Ongoing" {
		return fmt.Errorf("transactional id %s has no open transaction: it is %s", id, t.State)
	}
	if err := c.confirm(yes, fmt.Sprintf("abort the transaction of %s, open for %s, and fence its producer?", id, age(t.OpenMs))); err != nil {
		return err
	}
	if err := fence(cmd.Context(), cl, id, t.TimeoutMs); err != nil {
		return fmt.Errorf("abort the transaction of %s: %w", id, err)
	}
	fmt.Fprintf(c.out, "aborted the transaction of %s\n", id)
	return nil
}

// fence takes a transactional id over. It comes again while the transaction before is being
// aborted.
func fence(ctx context.Context, cl *kgo.Client, id string, timeoutMs int32) error {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, timeoutMs
	req.ProducerID, req.ProducerEpoch = -1, -1
	for {
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		err = kerr.ErrorForCode(resp.ErrorCode)
		if !errors.Is(err, kerr.ConcurrentTransactions) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// abortHanging writes an abort marker for a transaction that its coordinator has forgotten.
func (c *cli) abortHanging(cmd *cobra.Command, adm *kadm.Client, at *partitionFlags, start int64, yes bool) error {
	producers, err := c.producersOf(cmd, adm, at)
	if err != nil {
		return err
	}
	where := fmt.Sprintf("%s[%d]", at.topic, at.partition)
	for i := range producers {
		p := &producers[i]
		if p.CurrentTxnStartOffset != start {
			continue
		}
		if err := c.refuseKnown(cmd, adm, p.ProducerID, at); err != nil {
			return err
		}
		if err := c.confirm(yes, fmt.Sprintf("abort the transaction of producer %d that begins at offset %d of %s?", p.ProducerID, start, where)); err != nil {
			return err
		}
		if err := c.writeAbort(cmd, adm, at, p); err != nil {
			return fmt.Errorf("abort the transaction at offset %d of %s: %w", start, where, err)
		}
		fmt.Fprintf(c.out, "aborted the transaction of producer %d in %s\n", p.ProducerID, where)
		return nil
	}
	return fmt.Errorf("no transaction that begins at offset %d is open in %s; `lacuna transactions describe -t %s -p %d` shows what is", start, where, at.topic, at.partition)
}

// refuseKnown refuses to go behind the back of a coordinator that has the transaction.
func (c *cli) refuseKnown(cmd *cobra.Command, adm *kadm.Client, producerID int64, at *partitionFlags) error {
	id, known, err := coordinated(cmd.Context(), adm, producerID, at.topic, at.partition)
	if known {
		return fmt.Errorf("the transaction does not hang: it is that of transactional id %s; `lacuna transactions abort %s` aborts it", id, id)
	}
	return c.reach(err)
}

func (c *cli) writeAbort(cmd *cobra.Command, adm *kadm.Client, at *partitionFlags, p *kadm.DescribedProducer) error {
	m := kadm.TxnMarkers{ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch, CoordinatorEpoch: max(p.CoordinatorEpoch, 0)}
	m.Topics.Add(at.topic, at.partition)
	answers, err := adm.WriteTxnMarkers(cmd.Context(), m)
	if err != nil {
		return c.reach(err)
	}
	answer, ok := answers[p.ProducerID].Topics[at.topic].Partitions[at.partition]
	if !ok {
		return errors.New("the broker did not answer for the partition")
	}
	return answer.Err
}
