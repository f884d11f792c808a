package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lacunamq/lacuna/broker/coordinator"
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/broker/ledgers"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// openLedgers opens the ledgers over __individual_commit_offsets. The group coordinator
// must be there.
func (b *Broker) openLedgers(ctx context.Context) (err error) {
	topic, refused := b.topics.find(individualTopic, metadata.TopicID{}, false)
	if refused != nil {
		return fmt.Errorf("open the ledgers: topic %s: %w", individualTopic, refused)
	}
	b.ledgers, err = ledgers.Open(ctx, ledgers.Options{
		Log: dataLogs{b}, Journal: ledgerJournal{b, topic},
		Committed: primaryOffsets{b}, Members: groupMembers{b}, Owner: onlyOwner{},
		MaxMemoryBytes: func() int64 { return b.settings().IndividualMaxMemoryBytes },
		Decode:         b.decoding.Records,
		PartitionFor:   coordinator.PartitionFor,
		Logger:         b.log,
	}, b.dir.unclean)
	return err
}

// dataLogs are the partitions of this broker as extension.Log.
type dataLogs struct{ b *Broker }

func (d dataLogs) open(tp extension.TopicPartition) (*commitlog.Log, error) {
	p := d.b.topics.partitionOf(tp.Topic, tp.Partition)
	if p == nil {
		return nil, fmt.Errorf("%w: topic id %s, partition %d", extension.ErrUnknownPartition, metadata.TopicID(tp.Topic), tp.Partition)
	}
	return p.open()
}

// Bounds is part of extension.Log.
func (d dataLogs) Bounds(tp extension.TopicPartition) (extension.Bounds, error) {
	log, err := d.open(tp)
	if err != nil {
		return extension.Bounds{}, err
	}
	b := log.Bounds()
	return extension.Bounds{Start: b.Start, HighWatermark: b.HighWatermark, LSO: b.LSO}, nil
}

// Read is part of extension.Log.
func (d dataLogs) Read(tp extension.TopicPartition, dst []byte, from int64) ([]byte, error) {
	log, err := d.open(tp)
	if err != nil {
		return dst, err
	}
	read, err := log.Read(dst, from, commitlog.ReadOptions{MaxBytes: 1, UpTo: log.Bounds().HighWatermark, MinOne: true})
	return read.Data, err
}

// LeaderEpoch is part of extension.Log.
func (d dataLogs) LeaderEpoch(tp extension.TopicPartition, offset int64) int32 {
	log, err := d.open(tp)
	if err != nil || offset < log.Bounds().Start {
		return -1
	}
	return log.EpochAt(offset)
}

// ledgerJournal is __individual_commit_offsets as extension.Journal.
type ledgerJournal struct {
	b     *Broker
	topic *topic
}

// Partitions is part of extension.Journal.
func (j ledgerJournal) Partitions() int32 { return int32(len(j.topic.partitions())) }

// Written is part of extension.Journal.
func (j ledgerJournal) Written(index int32) bool { return j.topic.partition(index).log.Load() != nil }

// Recover is part of extension.Journal.
func (j ledgerJournal) Recover(ctx context.Context, index, _ int32, state journal.State) (extension.JournalPartition, error) {
	p, log, err := j.topic.open(index)
	if err != nil {
		return nil, err
	}
	name, source := ledgersView(p)
	view := j.b.store.View(name)
	recovered, err := journal.Recover(ctx, view, source, log, state)
	if corrupt := (*journal.CorruptError)(nil); errors.As(err, &corrupt) {
		if sealed := log.Seal(); sealed != nil { // what follows is found without reading what is damaged
			return nil, errors.Join(err, sealed)
		}
	} else if err != nil {
		return nil, err
	}
	if recovered.Dropped != "" {
		j.b.log.Warn("the view of ledgers was dropped and built anew from their log: if the log has lost records, "+
			"groups go on at their stable offsets and read again what they had committed above",
			zap.Stringer("partition", p), zap.String("why", recovered.Dropped))
	}
	return &ledgerPartition{
		Journal:      journal.Open(log, p.String()),
		log:          log,
		Checkpointer: journal.NewCheckpointer(view, source, log),
	}, err
}

// ledgerPartition is a partition of __individual_commit_offsets.
type ledgerPartition struct {
	*journal.Journal
	*journal.Checkpointer
	log *commitlog.Log
}

// Stage is part of extension.JournalPartition.
func (p *ledgerPartition) Stage(state journal.State) error {
	return p.Checkpointer.Stage(state, p.log.Bounds().End)
}

// primaryOffsets is the group coordinator as extension.Committed.
type primaryOffsets struct{ b *Broker }

// Get is part of extension.Committed.
func (o primaryOffsets) Get(ctx context.Context, groupID string, partitions []extension.TopicPartition) ([]extension.CommittedOffset, error) {
	asked := make([]coordinator.PartitionOf, len(partitions))
	for i, tp := range partitions {
		t, refused := o.b.topics.find("", metadata.TopicID(tp.Topic), true)
		if refused != nil {
			return nil, refused
		}
		asked[i] = coordinator.PartitionOf{TopicPartition: group.TopicPartition{Topic: t.name, Partition: tp.Partition}, TopicID: tp.Topic}
	}
	found, err := o.b.groups.Committed(ctx, groupID, asked)
	if err != nil {
		return nil, err
	}
	offsets := make([]extension.CommittedOffset, len(partitions))
	for i, tp := range partitions {
		offsets[i] = extension.CommittedOffset{TopicPartition: tp, Offset: -1, LeaderEpoch: -1, Pending: found[i].Pending}
		if f := &found[i]; f.OK {
			offsets[i].Offset, offsets[i].LeaderEpoch, offsets[i].Metadata = f.Offset, f.LeaderEpoch, f.Metadata
		}
	}
	return offsets, nil
}

// Put is part of extension.Committed.
func (o primaryOffsets) Put(ctx context.Context, groupID string, offsets []extension.CommittedOffset) error {
	puts := make([]group.PutOffset, 0, len(offsets))
	for _, c := range offsets {
		t, refused := o.b.topics.find("", metadata.TopicID(c.Topic), true)
		if refused != nil {
			continue // deleted meanwhile, and its ledger goes, too
		}
		puts = append(puts, group.PutOffset{CommitOffset: group.CommitOffset{
			TopicPartition: group.TopicPartition{Topic: t.name, Partition: c.Partition},
			TopicID:        c.Topic, Offset: c.Offset, LeaderEpoch: c.LeaderEpoch, Metadata: c.Metadata,
		}})
	}
	return o.b.groups.Put(ctx, groupID, puts)
}

// groupMembers is the group coordinator as extension.Members.
type groupMembers struct{ b *Broker }

// Check is part of extension.Members.
func (g groupMembers) Check(ctx context.Context, m *extension.Member, then func()) error {
	return g.b.groups.CheckCommit(ctx, &group.Identity{
		Group: m.Group, MemberID: m.MemberID, InstanceID: m.InstanceID, Generation: m.Generation, Operator: m.Operator,
		InTransaction: m.InTransaction,
	}, then)
}

// Empty is part of extension.Members.
func (g groupMembers) Empty(ctx context.Context, groupID string) (bool, error) {
	return g.b.groups.Empty(ctx, groupID)
}

// onlyOwner is extension.Owner on one node.
type onlyOwner struct{}

// Epoch is part of extension.Owner.
func (onlyOwner) Epoch(int32) (int32, bool) { return 0, true }

// ledgersView names the view of a partition of __individual_commit_offsets, and its source
// there.
func ledgersView(p *partition) (view, source string) {
	return fmt.Sprintf("ledgers-%d", p.index), fmt.Sprintf("%s/%s", p, p.topic.id)
}

// keepLedgers tells whether the committed offset of a partition has a ledger, which keeps
// it; a ledger that nobody has committed to for as long is noted in idle.
func (b *Broker) keepLedgers(idle map[string][]extension.TopicPartition) group.Keep {
	return func(groupID string, tp group.TopicPartition, _ time.Time) bool {
		t, refused := b.topics.find(tp.Topic, metadata.TopicID{}, false)
		if refused != nil {
			return false
		}
		at := extension.TopicPartition{Topic: t.id, Partition: tp.Partition}
		last, founded := b.ledgers.LastCommit(groupID, at)
		if founded && time.Since(last) >= b.settings().Groups.OffsetsRetention {
			idle[groupID] = append(idle[groupID], at)
		}
		return founded
	}
}

// expireGroups forgets committed offsets and ledgers whose time is up. An idle ledger goes
// first, its committed offset at the next call, so that a crash between leaves no ledger
// without an offset to fall back to.
func (b *Broker) expireGroups(ctx context.Context) error {
	idle := make(map[string][]extension.TopicPartition)
	err := b.groups.Upkeep(ctx, b.keepLedgers(idle), b.topicGone)
	for groupID, partitions := range idle {
		err = errors.Join(err, b.ledgers.DeletePartitions(ctx, groupID, partitions))
	}
	return err
}

// forgetLedgers forgets the ledgers of a deleted topic. What fails is made up for by the
// next start.
func (b *Broker) forgetLedgers(t *topic) {
	if b.ledgers == nil {
		return // the broker is starting
	}
	if err := b.ledgers.DeleteTopic(context.Background(), t.id); err != nil && !errors.Is(err, kerr.CoordinatorNotAvailable) {
		b.log.Warn("ledgers of a deleted topic are still there", zap.String("topic", t.name), zap.Error(err))
	}
}
