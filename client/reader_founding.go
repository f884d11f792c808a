package client

import (
	"context"
	"slices"

	"github.com/lacunamq/lacuna/protocol"
)

// foundMissing founds the ledgers of partitions that have none: at reset, or where their logs
// begin if their topics have gained them since the group began, as they are new from their
// first record on. A partition was gained if one before it has a ledger. So that this can be
// told, who reads all of a topic, or is a member of a group that does, founds all of it at
// once.
func (r *Reader) foundMissing(ctx context.Context, partitions []*partition, reset Position) error {
	if reset.kind == positionEarliest || reset.kind == positionNone {
		return r.found(ctx, partitions, reset)
	}
	rest := slices.Clone(partitions)
	wholly := slices.DeleteFunc(slices.Clone(r.cfg.readWholly()), func(topic string) bool {
		return !slices.ContainsFunc(partitions, func(p *partition) bool { return p.tp.Topic == topic })
	})
	if len(wholly) > 0 {
		topics, err := findTopics(ctx, r.cl, wholly...)
		if err != nil {
			return err
		}
		rest = slices.DeleteFunc(rest, func(p *partition) bool { return slices.Contains(wholly, p.tp.Topic) })
		var gained []*partition
		for _, name := range wholly {
			missing, first, err := r.unfounded(ctx, topics[name])
			if err != nil {
				return err
			}
			for _, p := range missing {
				if first < p.tp.Partition {
					gained = append(gained, p)
				} else {
					rest = append(rest, p)
				}
			}
		}
		if err := r.found(ctx, gained, Earliest()); err != nil {
			return err
		}
	}
	return r.found(ctx, rest, reset)
}

// unfounded are the partitions of a topic without a ledger, and the first one that has one.
func (r *Reader) unfounded(ctx context.Context, t topicInfo) (missing []*partition, first int32, err error) {
	var all []*partition
	for _, n := range t.numbers() {
		all = append(all, r.cfg.newPartition(t, n))
	}
	views, err := r.readLedgers(ctx, all)
	if err != nil {
		return nil, 0, err
	}
	first = int32(len(all))
	for _, p := range all {
		if views[p.tp] == nil {
			missing = append(missing, p)
		} else {
			first = min(first, p.tp.Partition)
		}
	}
	return missing, first, nil
}

// beginnings are where partitions begin that the group has committed nothing of.
func (r *Reader) beginnings(ctx context.Context, partitions []*partition, reset Position) (map[TopicPartition]int64, error) {
	begins := make(map[TopicPartition]int64, len(partitions))
	var unknown []TopicPartition
	for _, p := range partitions {
		if at, ok := r.cfg.positions[p.tp]; ok {
			begins[p.tp] = at
		} else {
			unknown = append(unknown, p.tp)
		}
	}
	resolved, err := reset.resolve(ctx, r.kad, unknown)
	if err != nil {
		return nil, err
	}
	for _, tp := range unknown {
		at, ok := resolved[tp]
		if !ok {
			return nil, r.partitionError(tp, "position", ErrNoPosition)
		}
		begins[tp] = at
	}
	return begins, nil
}

// found founds ledgers where reading begins. If somebody else was faster, theirs stands.
func (r *Reader) found(ctx context.Context, partitions []*partition, reset Position) error {
	if len(partitions) == 0 {
		return nil
	}
	begins, err := r.beginnings(ctx, partitions, reset)
	if err != nil {
		return err
	}
	changes := make([]change, 0, len(partitions))
	for _, p := range partitions {
		changes = append(changes, change{tp: p.tp, id: p.id, offset: -1,
			individual: &protocol.IndividualOffsets{Origin: begins[p.tp]}})
	}
	answers, err := r.commitAs(ctx, changes)
	if err != nil {
		return err
	}
	for _, answer := range answers {
		if answer.err != nil {
			return r.partitionError(answer.tp, "found the ledger", answer.err)
		}
	}
	return nil
}
