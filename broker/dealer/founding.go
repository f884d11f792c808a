package dealer

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/lacunamq/lacuna/broker/extension"
	"go.uber.org/zap"
)

// founding are locks, by group, of who founds the ledgers of a topic: what is there already
// tells where the others begin, so nobody may see half of them.
type founding struct {
	seed  maphash.Seed
	locks [64]chan struct{} // each holds one token while it is taken
}

func (f *founding) init() {
	f.seed = maphash.MakeSeed()
	for i := range f.locks {
		f.locks[i] = make(chan struct{}, 1)
	}
}

func (f *founding) lock(ctx context.Context, group string) (unlock func(), err error) {
	lock := f.locks[maphash.String(f.seed, group)%uint64(len(f.locks))]
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// origin is where the ledger of a partition is to begin that is not there, 0 if it is. All
// of its topic are founded before, since what is written from the group's first member on is
// for the group.
func (d *Dealer) origin(ctx context.Context, k key, log Log) (int64, error) {
	if founded, err := d.opts.Ledgers.Founded(ctx, k.group, k.TopicPartition); err != nil || founded {
		return 0, err
	}
	d.found(ctx, k.group, k.Topic)
	missing, first, err := d.unfounded(ctx, k.group, k.Topic)
	if err != nil || !slices.Contains(missing, k.Partition) {
		return 0, err
	}
	return d.beginning(k, log, first < k.Partition)
}

// beginning is where a ledger begins, of a partition that was there from the beginning or
// that its topic has gained since.
func (d *Dealer) beginning(k key, log Log, gained bool) (int64, error) {
	if gained {
		return log.Bounds().Start, nil
	}
	origin, err := d.settingsOf(k.group).Origin(log)
	if err != nil {
		return 0, fmt.Errorf("%s: where to begin: %w", k, err)
	}
	return origin, nil
}

// found founds the ledgers of a topic that are missing: where the settings say, or if the
// topic has gained partitions since the group began with it, where their logs begin, as they
// are new from their first record on. They come last, so a partition was gained if one before
// it has a ledger; and the ledgers of a new topic are founded from the last to the first, so
// that those which a crash leaves out are not taken for gained.
func (d *Dealer) found(ctx context.Context, group string, topic [16]byte) {
	unlock, err := d.founding.lock(ctx, group)
	if err != nil {
		return
	}
	defer unlock()
	missing, first, err := d.unfounded(ctx, group, topic)
	if err != nil {
		d.cannotFound(ctx, key{group, extension.TopicPartition{Topic: topic}}, err)
		return
	}
	for i := len(missing) - 1; i >= 0; i-- {
		k := key{group, extension.TopicPartition{Topic: topic, Partition: missing[i]}}
		if err := d.foundOne(ctx, k, first < missing[i]); err != nil {
			d.cannotFound(ctx, k, err)
		}
	}
}

func (d *Dealer) cannotFound(ctx context.Context, k key, err error) {
	if ctx.Err() == nil {
		d.opts.Logger.Warn("a ledger cannot be founded yet, its share partition begins where the first fetch finds it",
			zap.Stringer("partition", k), zap.Error(err))
	}
}

// unfounded are the partitions of a topic without a ledger, and the first one that has one.
func (d *Dealer) unfounded(ctx context.Context, group string, topic [16]byte) (missing []int32, first int32, err error) {
	n := d.opts.Partitions(topic)
	first = n
	for i := range n {
		founded, err := d.opts.Ledgers.Founded(ctx, group, extension.TopicPartition{Topic: topic, Partition: i})
		switch {
		case err != nil:
			return nil, 0, err
		case !founded:
			missing = append(missing, i)
		default:
			first = min(first, i)
		}
	}
	return missing, first, nil
}

func (d *Dealer) foundOne(ctx context.Context, k key, gained bool) error {
	log, err := d.opts.Log(k.TopicPartition)
	if err != nil {
		return err
	}
	origin, err := d.beginning(k, log, gained)
	if err != nil {
		return err
	}
	_, err = d.opts.Ledgers.OpenShare(ctx, k.group, k.TopicPartition, origin, nil)
	return err
}
