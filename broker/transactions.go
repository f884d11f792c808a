package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/lacunamq/lacuna/broker/coordinator"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/broker/transaction"
	"github.com/lacunamq/lacuna/broker/txncoordinator"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// The versions of transactions (Kafka's feature transaction.version) by which clients
// speak: up to the first they add partitions before they write to them, which Kafka logs as
// version 0; in the second (KIP-890) writing adds them, and each transaction has an epoch of
// its own.
const (
	transactionV0 = 0
	transactionV2 = 2
)

// transactionFeature is how clients learn which of them is in use.
const transactionFeature = "transaction.version"

// openTransactions opens the transaction coordinator over __transaction_state. Groups and
// ledgers must be there.
func (b *Broker) openTransactions(ctx context.Context) error {
	states, refused := b.topics.find(transactionsTopic, metadata.TopicID{}, false)
	if refused != nil {
		return fmt.Errorf("open the transaction coordinator: topic %s: %w", transactionsTopic, refused)
	}
	var err error
	b.transactions, err = txncoordinator.Open(ctx, txncoordinator.Options{
		Partitions:   int32(len(states.partitions())),
		PartitionFor: coordinator.PartitionFor,
		Open: func(index int32) (journal.Partition, error) {
			p, log, err := states.open(index)
			if err != nil {
				return journal.Partition{}, err
			}
			view, source := transactionsView(p)
			return journal.Partition{Log: log, View: b.store.View(view), Source: source}, nil
		},
		Written:       func(index int32) bool { return states.partition(index).log.Load() != nil },
		NewProducerID: b.producerIDs.next,
		Markers:       txnMarkers{b},
		Config:        b.settings().Transactions,
		Logger:        b.log,
	})
	return err
}

// transactionsView names the view of a partition of __transaction_state, and its source
// there.
func transactionsView(p *partition) (view, source string) {
	return fmt.Sprintf("transactions-%d", p.index), fmt.Sprintf("%s/%s", p, p.topic.id)
}

// transactionsCleanUpTo is what compaction of a partition of __transaction_state must not
// pass.
func (b *Broker) transactionsCleanUpTo(p *partition) func() int64 {
	view, source := transactionsView(p)
	return journal.CleanUpTo(b.store.View(view), source)
}

// offsetsPartition is the partition of __consumer_offsets that a group belongs to.
func (b *Broker) offsetsPartition(group string) transaction.TopicPartition {
	offsets, _ := b.topics.find(offsetsTopic, metadata.TopicID{}, false)
	return transaction.TopicPartition{Topic: offsetsTopic, Partition: coordinator.PartitionFor(group, int32(len(offsets.partitions())))}
}

// txnCode is the code for an error of the transaction coordinator. Before PRODUCER_FENCED
// there was INVALID_PRODUCER_EPOCH.
func (b *Broker) txnCode(err error, knowsFenced bool) int16 {
	if !knowsFenced && errors.Is(err, kerr.ProducerFenced) {
		return kerr.InvalidProducerEpoch.Code
	}
	return b.codeOf(err)
}

// txnMarkers writes the markers of transactions, as txncoordinator.Markers.
type txnMarkers struct{ b *Broker }

// Begin is part of txncoordinator.Markers. A partition that knows a newer epoch of the
// producer, or of its coordinator, has had its marker.
func (m txnMarkers) Begin(tp transaction.TopicPartition, marker protocol.EndTxnMarker, version int16) func(context.Context) error {
	wait := m.begin(tp, marker, version)
	return func(ctx context.Context) error {
		err := wait(ctx)
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			return nil // deleted meanwhile
		case errors.Is(err, commitlog.ErrInvalidProducerEpoch), errors.Is(err, commitlog.ErrCoordinatorFenced),
			errors.Is(err, kerr.InvalidProducerEpoch), errors.Is(err, kerr.TransactionCoordinatorFenced):
			m.b.log.Warn("a partition refuses the marker of an older transaction", zap.String("topic", tp.Topic),
				zap.Int32("partition", tp.Partition), zap.Int64("producer_id", marker.ProducerID), zap.Error(err))
			return nil
		}
		return err
	}
}

// begin begins to write a marker, and returns what waits for it.
func (m txnMarkers) begin(tp transaction.TopicPartition, marker protocol.EndTxnMarker, version int16) func(context.Context) error {
	if tp.Topic == offsetsTopic {
		return m.beginOffsets(tp.Partition, marker, version)
	}
	flush, err := m.append(tp, marker, version)
	return func(ctx context.Context) error {
		if err != nil || flush == nil {
			return err
		}
		select {
		case <-flush.Done():
			return flush.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m txnMarkers) append(tp transaction.TopicPartition, marker protocol.EndTxnMarker, version int16) (*commitlog.Flush, error) {
	t, refused := m.b.topics.find(tp.Topic, metadata.TopicID{}, false)
	if refused != nil {
		return nil, fmt.Errorf("topic %s: %w: %w", tp.Topic, kerr.UnknownTopicOrPartition, refused)
	}
	_, log, err := t.open(tp.Partition)
	if err != nil {
		return nil, err
	}
	var builder protocol.BatchBuilder
	batch, err := builder.AppendEndTxnMarker(nil, marker, m.b.nowMs())
	if err != nil {
		return nil, err
	}
	done, err := log.Append(batch, commitlog.AppendOptions{Internal: true, TransactionVersion: version})
	if err != nil {
		return nil, err
	}
	return done.Flush, nil
}

// beginOffsets ends a transaction in a partition of __consumer_offsets, and in the ledgers
// of the groups that belong to it.
func (m txnMarkers) beginOffsets(partition int32, marker protocol.EndTxnMarker, version int16) func(context.Context) error {
	ledgers := m.b.ledgers.BeginEnd(context.Background(), partition, marker.ProducerID, marker.Commit)
	offsets := m.b.groups.BeginEndTransaction(partition, marker, version)
	return func(ctx context.Context) error {
		return errors.Join(ledgers.Wait(ctx), offsets.Wait(ctx))
	}
}
