package dealer

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/stretchr/testify/require"
)

// beginnings are where the ledgers of the topic begin, -1 where there is none.
func (r *rig) beginnings() (at []int64) {
	r.t.Helper()
	for i := range r.groups.partitions(tp.Topic) {
		one := extension.TopicPartition{Topic: tp.Topic, Partition: i}
		founded, err := r.ledgers.Founded(ctx, "g", one)
		require.NoError(r.t, err)
		if !founded {
			at = append(at, -1)
			continue
		}
		views, err := r.ledgers.Fetch(ctx, "g", []extension.TopicPartition{one}, nil)
		require.NoError(r.t, err)
		at = append(at, views[0].Offset)
	}
	return at
}

// grow adds partitions to the topic. The group hears of it with the next change.
func (r *rig) grow(partitions int32) {
	r.groups.mu.Lock()
	defer r.groups.mu.Unlock()
	r.groups.topic.Partitions = partitions
}

// appendAll appends n records to each partition.
func (r *rig) appendAll(n int) {
	for i := range r.groups.partitions(tp.Topic) {
		log, err := r.Data(extension.TopicPartition{Topic: tp.Topic, Partition: i})
		require.NoError(r.t, err)
		r.appendTo(log, n)
	}
}

// latest lets ledgers begin at the end of the log.
func (r *rig) latest() {
	r.change(func(s *Settings) {
		s.Origin = func(l Log) (int64, error) { return l.Bounds().HighWatermark, nil }
	})
}

// The first member has all partitions founded where the settings say, whoever comes first to
// one of them.
func TestAllPartitionsAreFoundedAtOnce(t *testing.T) {
	for who, first := range map[string]func(r *rig){
		"the member":    func(r *rig) { r.groups.join("a") },
		"a fetch":       func(r *rig) { r.groups.joinQuietly("a"); r.fetch("a", 1) },
		"both":          func(r *rig) { r.groups.join("a"); r.fetch("a", 1) },
		"after a crash": func(r *rig) { r.foundAndCrash(1); r.groups.join("a") },
	} {
		t.Run(who, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.latest()
				r.grow(4)
				r.appendAll(3)
				first(r)
				synctest.Wait()
				require.Equal(t, []int64{3, 3, 3, 3}, r.beginnings())
			})
		})
	}
}

// foundAndCrash founds the ledgers of the topic, and crashes after so many.
func (r *rig) foundAndCrash(after int) {
	ctx, cancel := context.WithCancel(ctx)
	open := r.d.opts.Log
	r.d.opts.Log = func(tp extension.TopicPartition) (Log, error) {
		if after--; after < 0 {
			cancel()
			return nil, ctx.Err()
		}
		return open(tp)
	}
	r.d.found(ctx, "g", tp.Topic)
	topic := r.groups.topic
	r.crash()
	r.groups.topic = topic
}

// A topic gains partitions while nobody of the group runs, and records come in: they are
// for the group, like those of the partitions that it had.
func TestGainedPartitionsBeginWithTheirFirstRecord(t *testing.T) {
	for who, comes := range map[string]func(r *rig){
		"the member": func(r *rig) { r.groups.join("b") },
		"a fetch": func(r *rig) {
			r.groups.joinQuietly("b")
			q := query("b", 1)
			q.Partitions[0].Partition = 3
			require.Equal(r.t, []int64{0}, r.begin(q).offsets())
		},
	} {
		t.Run(who, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.latest()
				r.appendAll(3)
				r.groups.join("a")
				synctest.Wait()
				r.groups.leave("a")
				r.grow(4)
				r.appendAll(2)
				comes(r)
				synctest.Wait()
				require.Equal(t, []int64{3, 3, 0, 0}, r.beginnings())
			})
		})
	}
}
