package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/processor/assignor"
	"github.com/lacunamq/lacuna/statestore"
)

// Changelog has the changes of the stores written to a topic, which a state is built up from
// instead of the inputs. So these need not be kept, and Process need not be deterministic. It
// is for AckAtProcess.
//
// The topic is made if there is none: compacted, with as many partitions as the group has
// initial buckets. It must be the group's own. A group that has processed records without a
// changelog cannot begin one, unless [EmptyState] says that nothing of it is wanted.
func Changelog(topic string) Option { return func(c *config) { c.changelog = topic } }

// EmptyState lets a state begin empty where a changelog holds nothing, although the group has
// committed records: for a group that was set to begin in the middle of its inputs.
func EmptyState() Option { return func(c *config) { c.emptyState = true } }

func (c *config) validateChangelog(t *Topology) error {
	switch {
	case c.changelog == "" && c.emptyState:
		return errors.New("processor.EmptyState is for a changelog: processor.Changelog")
	case c.changelog == "":
		return nil
	case t.Ack != AckAtProcess:
		return fmt.Errorf("a changelog with %v: its stores are made of what is open", t.Ack)
	case !t.hasStores():
		return errors.New("a changelog, and no store")
	case slices.Contains(t.Inputs, c.changelog) || slices.Contains(t.Sinks, c.changelog) || c.changelog == c.deadLetters:
		return fmt.Errorf("the changelog %s is an input, a sink or for dead letters too", c.changelog)
	}
	return nil
}

// logTopic is the topic of a changelog. The unit u is slot u%65536 of partition u/65536.
type logTopic struct {
	name       string
	id         [16]byte
	partitions int32
	// tombstones is how long a deleted entry stays in the log at least.
	tombstones time.Duration
}

// tombstonesStay is how long tombstones stay in a changelog that is made here: a store that
// was away for longer is restored whole.
const tombstonesStay = 7 * 24 * time.Hour

// logBounds are where the partitions of a changelog begin and end. Tombstones above stale
// are all there still.
type logBounds struct{ starts, ends, stale map[int32]int64 }

func (a *App) boundLog(ctx context.Context, t *logTopic) (b logBounds, err error) {
	list := func(all kadm.ListedOffsets, err error) (map[int32]int64, error) {
		if err != nil {
			return nil, fmt.Errorf("look where the changelog %s begins and ends: %w", t.name, err)
		}
		at := make(map[int32]int64, t.partitions)
		for p := range t.partitions {
			o, ok := all.Lookup(t.name, p)
			if !ok || o.Err != nil {
				return nil, fmt.Errorf("look where the changelog %s[%d] begins and ends: %w", t.name, p, errors.Join(o.Err, kerr.UnknownTopicOrPartition))
			}
			at[p] = o.Offset
		}
		return at, nil
	}
	if b.starts, err = list(a.admin.ListStartOffsets(ctx, t.name)); err != nil {
		return b, err
	}
	// Clocks may differ, and restoring takes a while: a quarter of the time is left for that.
	old := a.cfg.now().Add(-t.tombstones / 4 * 3)
	if b.stale, err = list(a.admin.ListOffsetsAfterMilli(ctx, old.UnixMilli(), t.name)); err != nil {
		return b, err
	}
	b.ends, err = list(a.admin.ListEndOffsets(ctx, t.name))
	return b, err
}

// checkLogBegun fails if the changelog is empty and the group has a state that is not in it.
func (a *App) checkLogBegun(ctx context.Context, t *logTopic, stored []statestore.Offset) error {
	if a.cfg.emptyState {
		return nil
	}
	done, err := a.admin.FetchOffsetsForTopics(ctx, a.group, a.topology.Inputs...)
	if err != nil {
		return fmt.Errorf("read what group %s has committed: %w", a.group, err)
	}
	processed := slices.ContainsFunc(stored, func(o statestore.Offset) bool { return o.Next > 0 })
	done.Each(func(o kadm.OffsetResponse) { processed = processed || o.Err == nil && o.At > 0 })
	if !processed {
		return nil
	}
	// What is committed is in the changelog before, so this is the later look.
	bounds, err := a.boundLog(ctx, t)
	if err != nil {
		return err
	}
	for _, end := range bounds.ends {
		if end > 0 {
			return nil
		}
	}
	return &fatalError{fmt.Errorf("the changelog %s is empty, and the group has processed records already: what it knows of them is not there (processor.EmptyState does without)", t.name)}
}

// units is the area of some slots of a partition of the changelog.
func (t *logTopic) units(partition int32, lo, hi uint16) assignor.Span {
	first := int64(partition) * assignor.UnitsPerBucket
	return assignor.Span{From: first + int64(lo), To: first + int64(hi) + 1}
}

// area is what of an offset's slots are units.
func (t *logTopic) area(o *statestore.Offset) assignor.Area {
	if o.Topic != t.name || o.TopicID != t.id {
		return nil
	}
	return assignor.NewArea(t.units(o.Partition, o.Slots.Lo, o.Slots.Hi))
}

// appendOffsets appends where a state is in the changelog, for an area: next says it for each
// partition.
func (t *logTopic) appendOffsets(dst []statestore.Offset, area assignor.Area, next func(partition int32) (int64, bool)) []statestore.Offset {
	for _, s := range area {
		for from := s.From; from < s.To; {
			p := int32(from / assignor.UnitsPerBucket)
			to := min(s.To, int64(p+1)*assignor.UnitsPerBucket)
			if at, ok := next(p); ok {
				slots := client.SlotRange{Lo: uint16(from % assignor.UnitsPerBucket), Hi: uint16((to - 1) % assignor.UnitsPerBucket)}
				dst = append(dst, statestore.Offset{Next: at, Source: statestore.Source{Topic: t.name, TopicID: t.id, Partition: p, Slots: slots}})
			}
			from = to
		}
	}
	return dst
}

// everywhere says the same of each partition.
func everywhere(next int64) func(int32) (int64, bool) {
	return func(int32) (int64, bool) { return next, true }
}

// logPartitioner puts the records of a changelog where they say, and others where the
// application wants them.
type logPartitioner struct {
	topic string
	other kgo.Partitioner
}

// ForTopic implements [kgo.Partitioner].
func (p logPartitioner) ForTopic(topic string) kgo.TopicPartitioner {
	if topic == p.topic {
		return kgo.ManualPartitioner().ForTopic(topic)
	}
	return p.other.ForTopic(topic)
}

// placingLog are the options of what produces, which places the records of a changelog.
func (a *App) placingLog() []kgo.Opt {
	if a.cfg.changelog == "" {
		return a.cfg.kafka
	}
	other := a.kafka.OptValue(kgo.RecordPartitioner).(kgo.Partitioner)
	return append(slices.Clone(a.cfg.kafka), kgo.RecordPartitioner(logPartitioner{a.cfg.changelog, other}))
}
