package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lacunamq/lacuna/broker/coordinator"
	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// openGroups opens the group coordinator over __consumer_offsets. The topics must be
// there.
func (b *Broker) openGroups(ctx context.Context) error {
	offsets, refused := b.topics.find(offsetsTopic, metadata.TopicID{}, false)
	if refused != nil {
		return fmt.Errorf("open the group coordinator: topic %s: %w", offsetsTopic, refused)
	}
	b.groups = coordinator.Open(coordinator.Options{
		Partitions: int32(len(offsets.partitions())),
		Open: func(index int32) (journal.Partition, error) {
			p, log, err := offsets.open(index)
			if err != nil {
				return journal.Partition{}, err
			}
			view, source := b.offsetsView(p)
			return journal.Partition{Log: log, View: b.store.View(view), Source: source}, nil
		},
		Written: func(index int32) bool { return offsets.partition(index).log.Load() != nil },
		Config:  b.settings().Groups,
		Logger:  b.log,
	})
	b.tellShareGroups(b.controller.image.Load())
	if b.dir.unclean {
		return b.clampCommitted(ctx)
	}
	return nil
}

// offsetsView names the view of a partition of __consumer_offsets, and its source there.
func (b *Broker) offsetsView(p *partition) (view, source string) {
	return "offsets-" + fmt.Sprint(p.index), fmt.Sprintf("%s/%s", p, p.topic.id)
}

// offsetsCleanUpTo is what compaction of a partition of __consumer_offsets must not pass.
func (b *Broker) offsetsCleanUpTo(p *partition) func() int64 {
	view, source := b.offsetsView(p)
	return journal.CleanUpTo(b.store.View(view), source)
}

// clampCommitted lowers committed offsets that a crash left past the end of their
// partition, so that no record that comes later is skipped.
func (b *Broker) clampCommitted(ctx context.Context) error {
	lowered, err := b.groups.Clamp(ctx, func(name string, id [16]byte, index int32) (int64, bool) {
		t, refused := b.topics.find(name, metadata.TopicID{}, false)
		if refused != nil || id != [16]byte{} && t.id != id || t.partition(index) == nil {
			return 0, false
		}
		_, log, err := t.open(index)
		if err != nil {
			return 0, false
		}
		return log.Bounds().End, true
	})
	if err != nil {
		return fmt.Errorf("clamp committed offsets to the ends that a crash left: %w", err)
	}
	if lowered > 0 {
		b.log.Warn("committed offsets were lowered to the ends of their partitions", zap.Int("offsets", lowered))
	}
	return nil
}

// groupUpkeep forgets offsets whose time is up, every offsets.retention.check.interval.ms.
func (b *Broker) groupUpkeep(ctx context.Context) {
	err := b.groups.Load(ctx) // sessions of members that were there before a restart
	for {
		if err != nil && ctx.Err() == nil {
			b.log.Error("groups need attention", zap.Error(err))
		}
		select {
		case <-time.After(b.settings().OffsetsRetentionCheck):
			err = b.expireGroups(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// topicGone tells whether a topic has been deleted, whatever has its name now.
func (b *Broker) topicGone(_ string, id [16]byte) bool {
	_, refused := b.topics.find("", metadata.TopicID(id), true)
	return refused != nil
}

// forgetTopic forgets what groups have committed of a deleted topic. What fails is made up
// for by a later groupUpkeep.
func (b *Broker) forgetTopic(t *topic) {
	if b.groups == nil {
		return // the broker is starting
	}
	if err := b.groups.DeleteTopic(context.Background(), t.name, t.id); err != nil {
		b.log.Warn("committed offsets of a deleted topic are still there", zap.String("topic", t.name), zap.Error(err))
	}
}

// groupSettings reads the settings of groups by Kafka's names. number gives a setting, or
// the default.
func groupSettings(number func(name string, def int64) int64) group.Config {
	c := group.DefaultConfig()
	ms := func(name string, def time.Duration) time.Duration {
		return time.Duration(number(name, def.Milliseconds())) * time.Millisecond
	}
	c.InitialRebalanceDelay = ms("group.initial.rebalance.delay.ms", c.InitialRebalanceDelay)
	c.MinSessionTimeout = ms("group.min.session.timeout.ms", c.MinSessionTimeout)
	c.MaxSessionTimeout = ms("group.max.session.timeout.ms", c.MaxSessionTimeout)
	c.MaxSize = int(number("group.max.size", int64(c.MaxSize)))
	c.OffsetMetadataMaxBytes = int(number("offset.metadata.max.bytes", int64(c.OffsetMetadataMaxBytes)))
	retention := int64(c.OffsetsRetention / time.Minute)
	c.OffsetsRetention = time.Duration(number("offsets.retention.minutes", retention)) * time.Minute
	return c
}

// code is that of an error which may be none.
func code(err *kerr.Error) int16 {
	if err == nil {
		return 0
	}
	return err.Code
}

// codeOf is the code for an error of the coordinator.
func (b *Broker) codeOf(err error) int16 {
	if err == nil {
		return 0
	}
	code, _ := b.coordinatorAnswer(err)
	return code
}

// coordinatorAnswer is errorAnswer for an error of the coordinator.
func (b *Broker) coordinatorAnswer(err error) (code int16, message *string) {
	if errors.Is(err, context.Canceled) {
		// The broker stops, or nobody is there to be told.
		return kerr.CoordinatorNotAvailable.Code, nil
	}
	code, message = b.errorAnswer(err)
	if code == kerr.KafkaStorageError.Code {
		// As Kafka says it: clients of a coordinator do not expect the other.
		code = kerr.NotCoordinator.Code
	}
	return code, message
}

// orEmpty is a string of the wire that may be null.
func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// orNull is the string for the wire where empty means none.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
