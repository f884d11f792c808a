package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func transactionsCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "transactions",
		Short: "Show transactions, and abort those that hang",
		Long: `Show transactions and end those that nobody else ends. While one is open, readers of
committed records stop before its first record, and the records that it has acknowledged are
with nobody. It is aborted when its time-out is over, or by you.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.connectFlags(cmd)
	c.outputFlag(cmd)
	cmd.AddCommand(transactionsListCommand(c), transactionsDescribeCommand(c), transactionsAbortCommand(c), transactionsFindHangingCommand(c))
	return cmd
}

// shownTransaction is what --output json says of a transaction.
type shownTransaction struct {
	TransactionalID string           `json:"transactional_id"`
	State           string           `json:"state"`
	ProducerID      int64            `json:"producer_id"`
	ProducerEpoch   int16            `json:"producer_epoch"`
	TimeoutMs       int32            `json:"timeout_ms"`
	OpenMs          int64            `json:"open_ms,omitempty"` // for how long, if it is open
	Partitions      []partitionInTxn `json:"partitions"`
}

type partitionInTxn struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

// open tells that the transaction has not been decided or not been carried out.
func (t *shownTransaction) open() bool {
	return t.State == "Ongoing" || t.State == "PrepareCommit" || t.State == "PrepareAbort"
}

func showTransaction(d *kadm.DescribedTransaction, now time.Time) shownTransaction {
	t := shownTransaction{
		TransactionalID: d.TxnID, State: d.State, ProducerID: d.ProducerID, ProducerEpoch: d.ProducerEpoch,
		TimeoutMs: d.TimeoutMillis, Partitions: []partitionInTxn{},
	}
	if t.open() && d.StartTimestamp > 0 {
		t.OpenMs = max(now.UnixMilli()-d.StartTimestamp, 1)
	}
	for _, topic := range d.Topics.Sorted() {
		for _, n := range topic.Partitions {
			t.Partitions = append(t.Partitions, partitionInTxn{topic.Topic, n})
		}
	}
	return t
}

// describeTransactions looks transactional ids up. It fails if one does not exist.
func (c *cli) describeTransactions(cmd *cobra.Command, adm *kadm.Client, ids []string) ([]shownTransaction, error) {
	all, err := adm.DescribeTransactions(cmd.Context(), ids...)
	if err != nil {
		return nil, c.reach(err)
	}
	now := time.Now()
	var shown []shownTransaction
	var errs []error
	for _, id := range ids {
		d, ok := all[id]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("transactional id %s: the broker did not answer for it", id))
		case d.Err != nil:
			errs = append(errs, fmt.Errorf("transactional id %s: %w", id, d.Err))
		default:
			shown = append(shown, showTransaction(&d, now))
		}
	}
	return shown, errors.Join(errs...)
}

func transactionsListCommand(c *cli) *cobra.Command {
	var states []string
	var openFor time.Duration
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List transactional ids and what their transactions are at",
		Example: `  lacuna transactions list
  lacuna transactions list --state Ongoing --open-for 1m`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			adm, err := c.kafkaAdmin()
			if err != nil {
				return err
			}
			defer adm.Close()
			listed, err := adm.ListTransactions(cmd.Context(), nil, states)
			if err != nil {
				return c.reach(err)
			}
			ids := listed.TransactionalIDs()
			slices.Sort(ids)
			if len(ids) == 0 { // to ask about none is to ask about all
				return c.writeTransactions(nil)
			}
			shown, err := c.describeTransactions(cmd, adm, ids)
			shown = slices.DeleteFunc(shown, func(t shownTransaction) bool { return t.OpenMs < openFor.Milliseconds() })
			return cmp.Or(c.writeTransactions(shown), err)
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only these: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort; may repeat")
	cmd.Flags().DurationVar(&openFor, "open-for", 0, "only those that have been open for as long")
	return cmd
}

func (c *cli) writeTransactions(shown []shownTransaction) error {
	t := newTable("TRANSACTIONAL ID", "STATE", ">PRODUCER", ">EPOCH", ">OPEN FOR", ">PARTITIONS")
	for i := range shown {
		if c.output == "json" {
			if err := writeJSON(c.out, shown[i]); err != nil {
				return err
			}
			continue
		}
		s := &shown[i]
		t.add(s.TransactionalID, s.State, fmt.Sprint(s.ProducerID), s.ProducerEpoch, ageOrDash(s.OpenMs > 0, s.OpenMs), len(s.Partitions))
	}
	if c.output == "json" {
		return nil
	}
	return t.write(c.out)
}

func transactionsDescribeCommand(c *cli) *cobra.Command {
	var at partitionFlags
	cmd := &cobra.Command{
		Use:   "describe [ID...]",
		Short: "Describe transactions, or who produces to a partition",
		Long: `Describe the transactions of transactional ids, with the partitions that they have written
to. A partition of __consumer_offsets means that records were acknowledged.

With --topic and --partition describe the producers that the partition remembers instead,
and where their open transactions begin. One that no transactional id has any more hangs;
see lacuna transactions find-hanging --help.`,
		Example: `  lacuna transactions describe billing-0
  lacuna transactions describe -t orders -p 0`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			if (len(ids) == 0) == (at.topic == "") {
				return usagef("%s needs transactional ids, or --topic; see %s --help", cmd.CommandPath(), cmd.CommandPath())
			}
			adm, err := c.kafkaAdmin()
			if err != nil {
				return err
			}
			defer adm.Close()
			if at.topic != "" {
				producers, err := c.producersOf(cmd, adm, &at)
				if err != nil {
					return err
				}
				return c.writeProducers(producers)
			}
			shown, err := c.describeTransactions(cmd, adm, ids)
			for i := range shown {
				if err := c.writeTransaction(&shown[i]); err != nil {
					return err
				}
			}
			return err
		},
	}
	at.add(cmd)
	return cmd
}

func (c *cli) writeTransaction(t *shownTransaction) error {
	if c.output == "json" {
		return writeJSON(c.out, t)
	}
	fmt.Fprintf(c.out, "transactional id %s is %s\n", t.TransactionalID, t.State)
	fmt.Fprintf(c.out, "  producer    %d, epoch %d\n", t.ProducerID, t.ProducerEpoch)
	fmt.Fprintf(c.out, "  time-out    %s\n", age(int64(t.TimeoutMs)))
	if t.OpenMs > 0 {
		fmt.Fprintf(c.out, "  open for    %s\n", age(t.OpenMs))
	}
	for i, p := range t.Partitions {
		label := ""
		if i == 0 {
			label = "partitions"
		}
		fmt.Fprintf(c.out, "  %-10s  %s[%d]\n", label, p.Topic, p.Partition)
	}
	return nil
}

// producersOf are the producers that a partition remembers, by their ids.
func (c *cli) producersOf(cmd *cobra.Command, adm *kadm.Client, at *partitionFlags) ([]kadm.DescribedProducer, error) {
	var of kadm.TopicsSet
	of.Add(at.topic, at.partition)
	all, err := adm.DescribeProducers(cmd.Context(), of)
	if err != nil {
		return nil, c.reach(err)
	}
	p, ok := all[at.topic].Partitions[at.partition]
	if !ok || p.Err != nil {
		return nil, fmt.Errorf("producers of %s[%d]: %w", at.topic, at.partition, cmp.Or(p.Err, errors.New("the broker did not answer for it")))
	}
	return p.ActiveProducers.Sorted(), nil
}

// shownProducer is what --output json says of a producer.
type shownProducer struct {
	ProducerID    int64  `json:"producer_id"`
	ProducerEpoch int16  `json:"producer_epoch"`
	LastSequence  int32  `json:"last_sequence"`
	LastMs        int64  `json:"last_timestamp_ms"`
	OpenSince     *int64 `json:"transaction_start_offset,omitempty"`
}

func (c *cli) writeProducers(producers []kadm.DescribedProducer) error {
	t := newTable(">PRODUCER", ">EPOCH", ">LAST SEQUENCE", ">LAST WRITE", ">OPEN FROM OFFSET")
	for i := range producers {
		p := &producers[i]
		if c.output == "json" {
			s := shownProducer{p.ProducerID, p.ProducerEpoch, p.LastSequence, p.LastTimestamp, nil}
			if p.CurrentTxnStartOffset >= 0 {
				s.OpenSince = &p.CurrentTxnStartOffset
			}
			if err := writeJSON(c.out, s); err != nil {
				return err
			}
			continue
		}
		open := "-"
		if p.CurrentTxnStartOffset >= 0 {
			open = fmt.Sprint(p.CurrentTxnStartOffset)
		}
		t.add(fmt.Sprint(p.ProducerID), p.ProducerEpoch, p.LastSequence, age(max(time.Now().UnixMilli()-p.LastTimestamp, 0))+" ago", open)
	}
	if c.output == "json" {
		return nil
	}
	return t.write(c.out)
}
