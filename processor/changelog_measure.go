package processor

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/processor/assignor"
)

// tailFirst is how many offsets of a changelog are looked at first.
const tailFirst = 256

// measureLog finds out by what a group has divided its inputs, if all disks that kept its plan
// are lost: the units of a changelog count by that. Nil: this disk has the plan, or the
// changelog does not say.
//
// A unit of work ends with its progress in the inputs, so the end of the log is where to look.
func (a *App) measureLog(ctx context.Context) (*assignor.Group, error) {
	if a.cfg.changelog == "" {
		return nil, nil
	}
	if _, err := a.readPlan(); err == nil {
		return nil, nil
	}
	t, err := a.lookUpLog(ctx)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the changelog %s: %w", a.cfg.changelog, err)
	}
	b, err := a.boundLog(ctx, &t)
	if err != nil {
		return nil, err
	}
	found := make(map[string]int32) // by what each topic was divided
	for back, to := int64(tailFirst), b.ends; ; back *= 8 {
		from, whole := make(map[int32]int64), true
		for p, end := range b.ends {
			if from[p] = max(b.starts[p], end-back); from[p] > b.starts[p] {
				whole = false
			}
		}
		if err := a.measureBetween(ctx, &t, from, to, found); err != nil {
			return nil, fmt.Errorf("look by what the inputs were divided: %w", err)
		}
		switch {
		case len(found) == 0 && whole:
			return nil, nil
		case len(found) == len(a.topics) || whole:
			return a.groupOf(ctx, t.partitions, found)
		}
		to = from
	}
}

// groupOf is the group with so many initial buckets that divides topics so. One that has
// another number of partitions now, whose keys have moved, it does not know.
func (a *App) groupOf(ctx context.Context, initial int32, folds map[string]int32) (*assignor.Group, error) {
	now, err := a.lookUp(ctx, a.topology.Inputs)
	if err != nil {
		return nil, err
	}
	g := &assignor.Group{Initial: initial, Topics: make(map[string]assignor.Topic)}
	for name, fold := range folds {
		if in := now[name]; in.Partitions > 0 && in.Partitions%fold == 0 {
			g.Topics[name] = assignor.Topic{ID: in.ID, Partitions: in.Partitions, Fold: fold}
		}
	}
	return g, nil
}

// measureBetween reads a part of each partition of the changelog. What is written last
// counts, but nothing that was found behind it.
func (a *App) measureBetween(ctx context.Context, t *logTopic, from, to map[int32]int64, found map[string]int32) error {
	opts := []client.ReaderOpt{client.KafkaOpts(a.cfg.kafka...)}
	ends := make(map[int32]int64)
	for p, at := range from {
		if at < to[p] {
			opts, ends[p] = append(opts, client.StartAt(t.name, p, at)), to[p]
		}
	}
	if len(ends) == 0 {
		return nil
	}
	reader, err := client.OpenReader(ctx, opts...)
	if err != nil {
		return err
	}
	f := follower{reader: reader, topic: t.name, failed: a.report}
	now := make(map[string]int32)
	for past := false; !past && err == nil; err = errors.Join(err, ctx.Err()) {
		records, failed := f.poll(ctx)
		for _, r := range records {
			if len(r.Key) == 0 || r.Key[0] != changeProgress || r.Offset >= to[r.Partition] {
				continue
			}
			p, err := decodeProgress(r.Key, r.Value)
			if err != nil {
				return errors.Join(fmt.Errorf("%s[%d] offset %d: %w", r.Topic, r.Partition, r.Offset, err), reader.Close(ctx))
			}
			for name, id := range a.topics {
				if id == p.topic {
					now[name] = p.partitions
				}
			}
		}
		past, err = true, failed
		for p, at := range f.positions() {
			past = past && at >= ends[p]
		}
	}
	for name, partitions := range now {
		if found[name] == 0 {
			found[name] = partitions
		}
	}
	return errors.Join(err, reader.Close(ctx))
}
