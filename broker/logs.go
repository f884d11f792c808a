package broker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/statestore"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

// The internal topics.
const (
	offsetsTopic    = "__consumer_offsets"
	individualTopic = "__individual_commit_offsets"
	// transactionsTopic is what the transaction coordinator knows.
	transactionsTopic = "__transaction_state"
)

// logOptions are what every log of this broker is opened with.
func (b *Broker) logOptions(name, dir string) commitlog.Options {
	return commitlog.Options{
		FS: b.cfg.FS, Dir: dir, Name: name,
		Fsync: !b.cfg.NoFsync, Syncs: b.syncs, Reserve: b.reserve, FlushInterval: b.flushInterval,
		Unclean: b.dir.unclean, Now: time.Now, Logger: b.log,
		CleanerMemory: b.limits.cleanerMemory, Decoding: b.decoding,
	}
}

// openLog opens the log of a partition, making its directory if need be.
func (b *Broker) openLog(p *partition) (*commitlog.Log, error) {
	options := b.logOptions(p.String(), p.dir())
	options.Config = p.topic.settings.Load().log
	options.CleanUpTo = b.cleanUpTo(p)
	if err := b.makeTopicDir(p.topic); err != nil {
		return nil, err
	}
	log, err := commitlog.Open(options)
	if err != nil {
		return nil, err
	}
	for _, d := range log.Recovery().Dropped {
		b.log.Warn("bytes of a log could not be believed and are left out", zap.Stringer("partition", p),
			zap.Int64("segment", d.Segment), zap.Int64("offset", d.Offset), zap.Int64("bytes", d.Bytes), zap.String("reason", d.Reason))
	}
	return log, nil
}

// makeTopicDir makes the directory of a topic, durably: whoever comes second waits for it,
// and one that is there may be what a failure has left. commitlog makes those of
// partitions.
func (b *Broker) makeTopicDir(t *topic) error {
	t.made.Lock()
	defer t.made.Unlock()
	if t.made.durably {
		return nil
	}
	if err := b.cfg.FS.MkdirAll(t.dir(), 0o755); err != nil {
		return fmt.Errorf("make directory of topic %s: %w", t.name, err)
	}
	if err := b.syncTopicDirs(); err != nil {
		return err
	}
	t.made.durably = true
	return nil
}

// syncTopicDirs makes the directories durable that topics have so far.
func (b *Broker) syncTopicDirs() error { return errors.Join(b.dir.sync("topics"), b.dir.sync()) }

// parallelOpens is how many logs are opened at a time at the start.
const parallelOpens = 8

// openLogs opens every log that has files, so that a start after a crash recovers them
// all, and removes what deleted topics left behind.
func (b *Broker) openLogs(ctx context.Context) error {
	known, err := b.removeStrays()
	if err != nil {
		return err
	}
	if len(known) > 0 {
		if err := b.syncTopicDirs(); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelOpens)
	for _, t := range known {
		t.made.durably = true // nobody else is there yet
		names, err := b.cfg.FS.List(t.dir())
		if err != nil {
			return fmt.Errorf("list the partitions of topic %s: %w", t.name, err)
		}
		for _, name := range names {
			index, err := strconv.ParseInt(name, 10, 32)
			if err != nil {
				continue
			}
			if p := t.partition(int32(index)); p != nil {
				group.Go(func() error {
					if ctx.Err() != nil {
						return ctx.Err()
					}
					_, err := p.open()
					return err
				})
			}
		}
	}
	return group.Wait()
}

// removeStrays removes the directories of topics that are no more, and returns the
// topics that have one.
func (b *Broker) removeStrays() (known []*topic, err error) {
	root := b.dir.join("topics")
	names, err := b.cfg.FS.List(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", root, err)
	}
	for _, name := range names {
		id, err := metadata.ParseTopicID(name)
		if err != nil {
			continue // not ours
		}
		t, refused := b.topics.find("", id, true)
		if refused == nil {
			known = append(known, t)
			continue
		}
		b.log.Info("removing the files of a deleted topic", zap.String("id", name))
		if err := b.cfg.FS.RemoveAll(b.dir.join("topics", name)); err != nil {
			return nil, fmt.Errorf("remove the files of deleted topic %s: %w", name, err)
		}
	}
	return known, nil
}

// discard ends a deleted topic and removes its files. What fails is tried again by the
// next start, which finds a directory without a topic.
func (b *Broker) discard(t *topic) {
	err := t.end(errTopicGone, (*commitlog.Log).Remove)
	err = errors.Join(err, b.cfg.FS.RemoveAll(t.dir()), b.dir.sync("topics"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.log.Error("cannot remove the files of a deleted topic", zap.String("topic", t.name), zap.Stringer("id", t.id), zap.Error(err))
		return
	}
	b.log.Info("topic deleted", zap.String("topic", t.name), zap.Stringer("id", t.id))
}

// createInternalTopics makes those that are missing, so that the first client finds
// them.
func (b *Broker) createInternalTopics() error {
	s := b.settings()
	for _, internal := range []struct {
		name         string
		partitions   int32
		segmentBytes int
	}{
		{offsetsTopic, s.OffsetsTopicPartitions, s.OffsetsTopicSegmentBytes},
		{individualTopic, s.OffsetsTopicPartitions, s.OffsetsTopicSegmentBytes},
		{transactionsTopic, s.TransactionsTopicPartitions, s.TransactionsTopicSegmentBytes},
	} {
		if t, _ := b.topics.find(internal.name, metadata.TopicID{}, false); t != nil {
			continue
		}
		_, err := b.controller.createTopic(metadata.Topic{
			Name: internal.name, Partitions: internal.partitions, Internal: true,
			Config: map[string]string{
				"cleanup.policy":                      "compact",
				segmentSetting(internal.segmentBytes): strconv.Itoa(internal.segmentBytes),
			},
		})
		if err != nil {
			return fmt.Errorf("create internal topic %s: %w", internal.name, err)
		}
	}
	return nil
}

// segmentSetting names the setting that takes a size of segments: segment.bytes takes
// none that is small.
func segmentSetting(bytes int) string {
	if bytes < 1<<20 {
		return "internal.segment.bytes"
	}
	return "segment.bytes"
}

// openStore opens the store of the views. One that is damaged is begun anew: everything
// in it comes from the logs.
func (b *Broker) openStore() (*statestore.DB, error) {
	path := b.dir.join("state")
	store, damage, err := statestore.OpenOrReset(b.cfg.FS, path, statestore.Options{Logf: b.log.Sugar().Warnf})
	if damage != nil {
		b.log.Warn("the state store was damaged and is built anew from the logs", zap.String("path", path), zap.Error(damage))
	}
	return store, err
}

// cleanUpTo is what compaction of a partition must not pass, nil for no bound.
func (b *Broker) cleanUpTo(p *partition) func() int64 {
	if !p.topic.internal {
		return nil
	}
	switch p.topic.name {
	case offsetsTopic:
		return b.offsetsCleanUpTo(p)
	case individualTopic:
		view, source := ledgersView(p)
		return journal.CleanUpTo(b.store.View(view), source)
	case transactionsTopic:
		return b.transactionsCleanUpTo(p)
	}
	return nil
}
