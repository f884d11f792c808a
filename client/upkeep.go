package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// upkeep keeps what a Reader knows of the cluster and of its ledgers fresh: every refresh
// interval, and when somebody found out that something has changed.
type upkeep struct {
	r    *Reader
	wake chan struct{} // holds one signal when there is something to find out
	turn chan struct{} // held by whoever refreshes: refreshes do not overlap
}

func newUpkeep(r *Reader) *upkeep {
	return &upkeep{r: r, wake: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
}

func (u *upkeep) signal() {
	signal(u.wake)
}

// run refreshes until ctx ends. A refresh that failed is tried again with growing pauses.
func (u *upkeep) run(ctx context.Context) {
	ticker := time.NewTicker(u.r.cfg.refreshInterval)
	defer ticker.Stop()
	tries := 0
	for {
		ledgers := false
		select {
		case <-u.wake:
		case <-ticker.C:
			ledgers = true
		case <-ctx.Done():
			return
		}
		if err := u.refresh(ctx, ledgers, false); err != nil && ctx.Err() == nil {
			tries++
			u.r.noteTrouble(err)
			sleep(ctx, u.r.cfg.backoff(tries))
			u.signal()
			continue
		}
		tries = 0
	}
}

// refreshNow reads all ledgers for a caller who waits.
func (u *upkeep) refreshNow(ctx context.Context, openToo bool) error {
	u.r.mu.Lock()
	closed := u.r.mu.closed
	u.r.mu.Unlock()
	if closed {
		return ErrClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(u.r.ctx, cancel)()
	if u.r.cfg.stableLedger {
		if err := u.r.awaitPending(ctx, u.r.readable()); err != nil {
			return err
		}
	}
	return u.refresh(ctx, true, openToo)
}

// refresh looks at the cluster first, then at the logs that something happened to, then at
// the ledgers: all of them, or those known to be stale.
func (u *upkeep) refresh(ctx context.Context, allLedgers, openToo bool) error {
	select {
	case u.turn <- struct{}{}:
		defer func() { <-u.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	r := u.r
	if err := r.refreshTopics(ctx); err != nil {
		return err
	}
	if err := r.validateEpochs(ctx); err != nil {
		return err
	}
	if err := r.repositionAll(ctx); err != nil {
		return err
	}
	if r.cfg.group != "" {
		if err := r.refreshLedgers(ctx, allLedgers, openToo); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.assignSourcesLocked()
	return nil
}

func (r *Reader) noteTrouble(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.trouble = err
}

// refreshTopics learns of moved leaders, new partitions, and topics that are gone.
func (r *Reader) refreshTopics(ctx context.Context) error {
	topics, err := loadTopics(ctx, r.cl, r.cfg.topicNames()...)
	if err != nil {
		return err
	}
	r.mu.Lock()
	for _, p := range r.mu.partitions {
		r.followTopicLocked(p, topics[p.tp.Topic])
	}
	var added []*partition
	for _, name := range r.cfg.topics {
		t := topics[name]
		for _, n := range t.numbers() {
			if r.mu.partitions[TopicPartition{name, n}] == nil {
				added = append(added, r.cfg.newPartition(t, n))
			}
		}
	}
	r.mu.Unlock()
	if len(added) == 0 {
		return nil
	}
	// A partition that was added while reading is new from its first record on.
	if err := r.positionAll(ctx, added, Earliest()); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range added {
		r.mu.partitions[p.tp] = p
	}
	return nil
}

func (r *Reader) followTopicLocked(p *partition, t topicInfo) {
	info, ok := t.partitions[p.tp.Partition]
	switch {
	case p.broken != nil:
	case t.err != nil && !kerr.IsRetriable(t.err), errors.Is(t.err, kerr.UnknownTopicOrPartition):
		p.leader = -1
		r.reportLocked(p, "find", t.err)
	case t.err != nil || !ok:
		p.leader = -1
	case t.id != p.id:
		p.broken = ErrTopicRecreated
		r.reportLocked(p, "read", ErrTopicRecreated)
	default:
		if info.epoch > p.leaderEpoch && p.fetchedEpoch >= 0 {
			p.validate = true
		}
		p.leader, p.leaderEpoch = info.leader, max(info.epoch, p.leaderEpoch)
	}
}

// validateEpochs asks the logs of partitions with a new leader epoch where the epoch ends
// that was read last. If that is below what was read, the log has lost the rest.
func (r *Reader) validateEpochs(ctx context.Context) error {
	ask := make(kadm.OffsetForLeaderEpochRequest)
	var doubtful []*partition
	r.mu.Lock()
	for _, p := range r.mu.partitions {
		if p.validate && p.broken == nil {
			doubtful = append(doubtful, p)
			ask.Add(p.tp.Topic, p.tp.Partition, p.fetchedEpoch)
		}
	}
	r.mu.Unlock()
	if len(doubtful) == 0 {
		return nil
	}
	answers, err := r.kad.OffsetForLeaderEpoch(ctx, ask)
	if err != nil {
		return fmt.Errorf("look for the ends of leader epochs: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range doubtful {
		answer, ok := answers[p.tp.Topic][p.tp.Partition]
		if !ok || answer.Err != nil {
			return r.partitionError(p.tp, "look for the end of a leader epoch", answer.Err)
		}
		p.validate = false
		if answer.EndOffset >= 0 && answer.EndOffset < max(p.position, p.cursor) {
			r.truncateLocked(p, answer.EndOffset)
		}
	}
	return nil
}

// truncateLocked follows a log that has lost what it held from end on.
func (r *Reader) truncateLocked(p *partition, end int64) {
	if delivered := p.position; end < delivered {
		p.lost = truncation{epoch: p.fetchedEpoch, end: end}
		r.reportLocked(p, "read", fmt.Errorf("%w: offsets %d to %d", ErrTruncated, end, delivered-1))
	}
	p.truncate(end)
	p.fetchedEpoch, p.stale = -1, true
}

// repositionAll finds the bounds of logs that a position lies outside of.
func (r *Reader) repositionAll(ctx context.Context) error {
	var tps []TopicPartition
	r.mu.Lock()
	for _, p := range r.mu.partitions {
		if p.reposition && !p.validate && p.broken == nil {
			tps = append(tps, p.tp)
		}
	}
	r.mu.Unlock()
	if len(tps) == 0 {
		return nil
	}
	all, err := loadBounds(ctx, r.kad, tps)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, tp := range tps {
		p := r.mu.partitions[tp]
		p.reposition = false
		at, b := p.next(), all[tp]
		switch {
		case b.clamp(at) == at: // it came into range meanwhile
		case r.cfg.reset.kind == positionNone:
			p.broken = ErrNoPosition
			r.reportLocked(p, "read", fmt.Errorf("%w: offset %d is outside of the log, which holds %d to %d", ErrNoPosition, at, b.start, b.end-1))
		case at < b.start:
			p.advanceStart(b.start)
		default:
			r.truncateLocked(p, b.end)
		}
	}
	return nil
}

// refreshLedgers reads ledgers and takes them in.
func (r *Reader) refreshLedgers(ctx context.Context, all, openToo bool) error {
	var partitions []*partition
	r.mu.Lock()
	for _, p := range r.mu.partitions {
		if p.broken == nil && p.leader >= 0 && (all || p.stale) {
			p.stale = false
			p.beginRefresh()
			partitions = append(partitions, p)
		}
	}
	r.mu.Unlock()
	if len(partitions) == 0 {
		return nil
	}
	views, err := r.readLedgers(ctx, partitions)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range partitions {
		var doubted []Run
		if err == nil {
			doubted = p.takeDoubted()
		}
		p.endRefresh(views[p.tp], openToo)
		if len(doubted) > 0 {
			r.reopenLocked(p, doubted)
		}
		p.stale = p.stale || err != nil
	}
	return err
}
