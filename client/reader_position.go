package client

import (
	"context"
	"math"

	"github.com/lacunamq/lacuna/protocol"
)

// assignment makes the partitions that the options name, without a position yet.
func (cfg *readerConfig) assignment(topics map[string]topicInfo) ([]*partition, error) {
	var found []*partition
	for _, name := range cfg.topics {
		for _, n := range topics[name].numbers() {
			found = append(found, cfg.newPartition(topics[name], n))
		}
	}
	for name, numbers := range cfg.partitions {
		seen := make(map[int32]bool)
		for _, n := range numbers {
			if _, ok := topics[name].partitions[n]; !ok {
				return nil, noSuchPartition(TopicPartition{name, n}, topics[name])
			}
			if !seen[n] {
				found = append(found, cfg.newPartition(topics[name], n))
			}
			seen[n] = true
		}
	}
	return found, nil
}

func (cfg *readerConfig) newPartition(t topicInfo, number int32) *partition {
	p, tp := t.partitions[number], TopicPartition{t.name, number}
	end, ok := cfg.ends[tp]
	if !ok {
		end = math.MaxInt64
	}
	return &partition{tp: tp, id: t.id, origin: protocol.NoOrigin, end: end,
		leader: p.leader, leaderEpoch: p.epoch, fetchedEpoch: -1, highWatermark: -1, lastStable: -1}
}

// positionAll finds out where to begin in partitions: where the options say, else in the
// ledger, else at the reset position, where the ledger is founded. It is founded now and
// not with the first commit, since until then the log end of others may be another.
func (r *Reader) positionAll(ctx context.Context, partitions []*partition, reset Position) error {
	if r.cfg.group == "" {
		return r.positionUngrouped(ctx, partitions, reset)
	}
	views, err := r.readLedgers(ctx, partitions)
	if err != nil {
		return err
	}
	var unfounded []*partition
	for _, p := range partitions {
		if views[p.tp] == nil {
			unfounded = append(unfounded, p)
		}
	}
	if len(unfounded) > 0 {
		if err := r.foundMissing(ctx, unfounded, reset); err != nil {
			return err
		}
		founded, err := r.readLedgers(ctx, unfounded)
		if err != nil {
			return err
		}
		for tp, view := range founded {
			views[tp] = view
		}
	}
	for _, p := range partitions {
		if err := r.positionInLedger(p, views[p.tp]); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) positionInLedger(p *partition, view *ledgerView) error {
	if view == nil { // founded and gone again: somebody deletes the group all the time
		return r.partitionError(p.tp, "position", ErrNoPosition)
	}
	p.origin = view.stable
	if at, ok := r.cfg.positions[p.tp]; ok {
		p.startWithin(view, at)
	} else {
		p.startFrom(view)
		p.position = min(p.position, p.end)
		p.again.Remove(Run{Start: p.end, End: math.MaxInt64})
	}
	return nil
}

func (r *Reader) positionUngrouped(ctx context.Context, partitions []*partition, reset Position) error {
	begins, err := r.beginnings(ctx, partitions, reset)
	if err != nil {
		return err
	}
	for _, p := range partitions {
		p.startAt(begins[p.tp])
	}
	return nil
}

// readLedgers reads the whole ledgers of partitions, page by page. Its result lacks those
// of which the group has committed nothing.
func (r *Reader) readLedgers(ctx context.Context, partitions []*partition) (map[TopicPartition]*ledgerView, error) {
	// The first pages of all come in one answer, which has to stay small.
	pageSize := min(gapsPerPage, max(100, 10*gapsPerPage/max(len(partitions), 1)))
	pages, err := fetchLedgers(ctx, r.cl, r.cfg.group, asked(partitions), protocol.GapsRequest{MaxRuns: int32(pageSize)})
	if err != nil {
		return nil, err
	}
	views := make(map[TopicPartition]*ledgerView, len(pages))
	for _, page := range pages {
		if page.err == nil && page.stable < 0 {
			continue
		}
		view := &ledgerView{stable: page.stable}
		at := page.stable
		err := walkLedger(ctx, r.cl, r.cfg.group, page, func(page *ledgerPage) error {
			to := page.completeTo
			if to < 0 {
				to = page.maxCommit
			}
			view.add(at, to, page.gaps)
			at = to
			return nil
		})
		if err != nil {
			return nil, err
		}
		views[page.tp] = view
	}
	return views, nil
}

func (r *Reader) partitionError(tp TopicPartition, doing string, err error) error {
	return &PartitionError{Topic: tp.Topic, Partition: tp.Partition, Group: r.cfg.group, Doing: doing, Err: err}
}
