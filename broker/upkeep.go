package broker

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// upkeep does what time alone makes necessary: rolling segments by age, retention,
// compaction, checkpoints of the views. It runs in one goroutine, since none of it is
// urgent and all of it competes for the disk.
func (b *Broker) upkeep(ctx context.Context) {
	retention := time.NewTicker(b.upkeepEvery.retention)
	defer retention.Stop()
	cleaning := time.NewTimer(b.settings().CleanerBackoff)
	defer cleaning.Stop()
	checkpoint := time.NewTicker(b.upkeepEvery.checkpoint)
	defer checkpoint.Stop()
	for {
		select {
		case <-retention.C:
			b.retain(ctx, time.Now())
		case <-cleaning.C:
			b.clean(ctx, time.Now())
			cleaning.Reset(b.settings().CleanerBackoff)
		case <-checkpoint.C:
			b.checkpoint(ctx)
		case <-ctx.Done():
			b.filters.SaveIndexes(context.WithoutCancel(ctx)) // they would be built anew, otherwise
			return
		}
	}
}

// upkeepIntervals are how often each kind of upkeep runs.
type upkeepIntervals struct {
	retention  time.Duration // log.retention.check.interval.ms
	checkpoint time.Duration // log.flush.offset.checkpoint.interval.ms
}

// retain rolls segments that are old enough and deletes those past their retention, which on a
// full disk takes what is kept in reserve.
func (b *Broker) retain(ctx context.Context, now time.Time) {
	defer b.keepReserve()
	for log := range b.topics.logs() {
		if ctx.Err() != nil {
			return
		}
		if err := log.Roll(now); err != nil {
			b.log.Error("cannot roll a segment", zap.Error(err))
		}
		if err := log.ApplyRetention(now); err != nil {
			b.log.Error("cannot apply retention", zap.Error(err))
		}
	}
}

// keepReserve takes space in reserve again that was given up, or that a full disk did not have.
func (b *Broker) keepReserve() {
	if err := b.reserve.Keep(); err != nil {
		b.log.Warn("there is no space in reserve for what makes room on the disk", zap.Error(err))
	}
}

// clean compacts the logs that are dirty enough.
func (b *Broker) clean(ctx context.Context, now time.Time) {
	for log := range b.topics.logs() {
		if ctx.Err() != nil {
			return
		}
		if _, err := log.Clean(now); err != nil {
			b.log.Error("cannot compact a log", zap.Error(err))
		}
	}
}

// checkpoint writes the views.
func (b *Broker) checkpoint(ctx context.Context) {
	if err := b.controller.checkpoint(ctx); err != nil && ctx.Err() == nil {
		b.log.Error("cannot write the view of the metadata", zap.Error(err))
	}
	if err := b.groups.Checkpoint(ctx); err != nil && ctx.Err() == nil {
		b.log.Error("cannot write the views of committed offsets", zap.Error(err))
	}
	if err := b.ledgers.Checkpoint(ctx); err != nil && ctx.Err() == nil {
		b.log.Error("cannot write the views of ledgers", zap.Error(err))
	}
	if err := b.transactions.Checkpoint(ctx); err != nil && ctx.Err() == nil {
		b.log.Error("cannot write the views of transactions", zap.Error(err))
	}
	b.filters.SaveIndexes(ctx)
	if err := b.store.Sync(ctx); err != nil && ctx.Err() == nil {
		b.log.Error("cannot sync the views", zap.Error(err))
	}
}
