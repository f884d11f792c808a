package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// hangingFor is how long a transaction has written nothing before it is looked at, Kafka's
// default of transaction.max.timeout.ms: by then its coordinator has aborted it.
const hangingFor = 15 * time.Minute

func transactionsFindHangingCommand(c *cli) *cobra.Command {
	var topics []string
	var openFor time.Duration
	cmd := &cobra.Command{
		Use:   "find-hanging",
		Short: "Find transactions that hang: open in a partition, and known to nobody",
		Long: `Find transactions that are open in a partition though no transactional id has them there, as
bugs of clients and brokers before KIP-890 left behind. Nobody ends them but you, with
lacuna transactions abort -t -p --start-offset. With each, the transactional id of its
producer is shown, if it has one, which has gone on without the partition.`,
		Example: `  lacuna transactions find-hanging
  lacuna transactions find-hanging -t orders --idle-for 1h`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			adm, err := c.kafkaAdmin()
			if err != nil {
				return err
			}
			defer adm.Close()
			hanging, err := findHanging(cmd.Context(), adm, topics, openFor)
			if err != nil {
				return c.reach(err)
			}
			return c.writeHanging(hanging)
		},
	}
	cmd.Flags().StringSliceVarP(&topics, "topic", "t", nil, "topic; may repeat (default: all)")
	cmd.Flags().DurationVar(&openFor, "idle-for", hangingFor, "only those that have written nothing for as long")
	return cmd
}

// hangingTransaction is what --output json says of one.
type hangingTransaction struct {
	Topic           string `json:"topic"`
	Partition       int32  `json:"partition"`
	StartOffset     int64  `json:"transaction_start_offset"`
	ProducerID      int64  `json:"producer_id"`
	ProducerEpoch   int16  `json:"producer_epoch"`
	LastMs          int64  `json:"last_timestamp_ms"`
	TransactionalID string `json:"transactional_id,omitempty"`
}

// findHanging looks for hanging transactions. One that ends while it looks is none: what
// its coordinator does not have is looked for in the partition once more.
func findHanging(ctx context.Context, adm *kadm.Client, topics []string, idleFor time.Duration) ([]hangingTransaction, error) {
	listed, err := adm.ListTopicsWithInternal(ctx, topics...)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, err
	}
	open, err := openInPartitions(ctx, adm, listed.TopicsSet())
	if err != nil {
		return nil, err
	}
	before := time.Now().Add(-idleFor).UnixMilli()
	var suspects []hangingTransaction
	var where kadm.TopicsSet
	for _, t := range open {
		if t.LastMs > before {
			continue
		}
		var known bool
		if t.TransactionalID, known, err = coordinated(ctx, adm, t.ProducerID, t.Topic, t.Partition); err != nil {
			return nil, err
		}
		if !known {
			suspects = append(suspects, t)
			where.Add(t.Topic, t.Partition)
		}
	}
	if len(suspects) == 0 { // to ask about none is to ask about all
		return nil, nil
	}
	still, err := openInPartitions(ctx, adm, where)
	return slices.DeleteFunc(suspects, func(t hangingTransaction) bool {
		return !slices.ContainsFunc(still, func(s hangingTransaction) bool {
			t.TransactionalID, s.LastMs = "", t.LastMs
			return s == t
		})
	}), err
}

// openInPartitions are the transactions that are open in partitions, in their order.
func openInPartitions(ctx context.Context, adm *kadm.Client, where kadm.TopicsSet) ([]hangingTransaction, error) {
	all, err := adm.DescribeProducers(ctx, where)
	if err != nil {
		return nil, err
	}
	var open []hangingTransaction
	for _, p := range all.SortedProducers() {
		if p.CurrentTxnStartOffset >= 0 {
			open = append(open, hangingTransaction{Topic: p.Topic, Partition: p.Partition, StartOffset: p.CurrentTxnStartOffset,
				ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch, LastMs: p.LastTimestamp})
		}
	}
	sort.Slice(open, func(i, j int) bool {
		return cmp.Or(cmp.Compare(open[i].Topic, open[j].Topic), cmp.Compare(open[i].Partition, open[j].Partition), cmp.Compare(open[i].StartOffset, open[j].StartOffset)) < 0
	})
	var errs []error
	for _, topic := range all.SortedPartitions() {
		if topic.Err != nil {
			errs = append(errs, fmt.Errorf("producers of %s[%d]: %w", topic.Topic, topic.Partition, topic.Err))
		}
	}
	return open, errors.Join(errs...)
}

// coordinated tells whether an open transaction of a producer has a partition, as its
// coordinator knows it, and the producer's transactional id if it has one.
func coordinated(ctx context.Context, adm *kadm.Client, producerID int64, topic string, partition int32) (id string, known bool, err error) {
	listed, err := adm.ListTransactions(ctx, []int64{producerID}, nil)
	if err != nil || len(listed) == 0 {
		return "", false, err
	}
	ids := listed.TransactionalIDs()
	described, err := adm.DescribeTransactions(ctx, ids...)
	if err != nil {
		return "", false, err
	}
	for _, id := range ids {
		d := described[id]
		if d.Err != nil {
			return id, false, fmt.Errorf("transactional id %s: %w", id, d.Err)
		}
		if t := showTransaction(&d, time.Now()); t.open() && slices.Contains(t.Partitions, partitionInTxn{topic, partition}) {
			return id, true, nil
		}
	}
	return ids[0], false, nil
}

func (c *cli) writeHanging(hanging []hangingTransaction) error {
	t := newTable("TOPIC", ">PARTITION", ">START OFFSET", ">PRODUCER", ">EPOCH", ">LAST WRITE", "TRANSACTIONAL ID")
	for i := range hanging {
		h := &hanging[i]
		if c.output == "json" {
			if err := writeJSON(c.out, h); err != nil {
				return err
			}
			continue
		}
		t.add(h.Topic, h.Partition, fmt.Sprint(h.StartOffset), fmt.Sprint(h.ProducerID), h.ProducerEpoch,
			age(max(time.Now().UnixMilli()-h.LastMs, 0))+" ago", cmp.Or(h.TransactionalID, "-"))
	}
	if c.output == "json" {
		return nil
	}
	return t.write(c.out)
}
