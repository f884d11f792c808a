package fsck

import (
	"encoding/binary"
	"errors"

	"github.com/lacunamq/lacuna/broker/coordinator"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetsTopic holds what groups have committed, as in Kafka.
const offsetsTopic = "__consumer_offsets"

// committedKey names a committed offset as the offsets topic does.
type committedKey struct {
	group, topic string
	partition    int32
}

// committedOffset is the last record of one.
type committedOffset struct {
	offset  int64
	topicID metadata.TopicID // zero: unknown
	place   int              // among all records
}

// offsetsReading is what the offsets topic leads to: of the offsets of a partition that are
// committed, or in a committed transaction, the one that stands last.
type offsetsReading struct {
	c         *check
	committed map[committedKey]committedOffset
	pending   map[openTransaction]map[committedKey]committedOffset
	read      int // records
}

// openTransaction is a producer's in one partition of the offsets topic.
type openTransaction struct {
	home     int32
	producer int64
}

// readOffsets replays the offsets topic.
func (c *check) readOffsets() (map[committedKey]committedOffset, error) {
	r := offsetsReading{
		c: c, committed: make(map[committedKey]committedOffset),
		pending: make(map[openTransaction]map[committedKey]committedOffset),
	}
	err := c.replayTopic(offsetsTopic, r.record, r.end)
	c.report.Offsets = len(r.committed)
	return r.committed, err
}

func (o *offsetsReading) record(where string, home, partitions int32, r journal.Record) {
	c := o.c
	if len(r.Key) < 2 || binary.BigEndian.Uint16(r.Key) > 1 {
		return // a group, or of a version that is not ours
	}
	k := kmsg.NewOffsetCommitKey()
	if err := k.ReadFrom(r.Key); err != nil {
		c.find(Error, where, "a committed offset has a bad key: %v", err)
		return
	}
	if want := coordinator.PartitionFor(k.Group, partitions); want != home {
		c.find(Error, where, "holds an offset of group %s, which belongs in partition %d", k.Group, want)
	}
	key := committedKey{k.Group, k.Topic, k.Partition}
	if r.Value == nil {
		delete(o.committed, key)
		for _, transaction := range o.pending {
			delete(transaction, key)
		}
		return
	}
	v := kmsg.NewOffsetCommitValue()
	if err := v.ReadFrom(r.Value); err != nil {
		c.find(Error, where, "the offset of group %s, %s[%d] cannot be read: %v", k.Group, k.Topic, k.Partition, err)
		return
	}
	o.read++
	into := o.committed
	if r.Transaction != nil {
		t := openTransaction{home, r.Transaction.ProducerID}
		if into = o.pending[t]; into == nil {
			into = make(map[committedKey]committedOffset)
			o.pending[t] = into
		}
	}
	into[key] = committedOffset{offset: v.Offset, topicID: v.TopicID, place: o.read}
}

// end takes the marker of a transaction.
func (o *offsetsReading) end(home int32, producer int64, commit bool) {
	t := openTransaction{home, producer}
	for key, offset := range o.pending[t] {
		if commit && o.committed[key].place < offset.place {
			o.committed[key] = offset
		}
	}
	delete(o.pending, t)
}

// replayTopic hands use the records of an internal topic, partition by partition, with the
// number of the partition and how many there are, and end, which may be nil, the markers of
// transactions.
func (c *check) replayTopic(topic string, use func(where string, home, partitions int32, r journal.Record),
	end func(home int32, producer int64, commit bool),
) error {
	return c.eachLog(func(t *metadata.Topic, number int32, name string, log *commitlog.Log) error {
		if t.Name != topic {
			return nil
		}
		_, err := journal.Open(log, name).ReplayTransactions(c.ctx, log.Bounds().Start, func(_ int64, r journal.Record) error {
			use(name, number, t.Partitions, r)
			return nil
		}, func(_ int64, t journal.Transaction, commit bool) error {
			if end != nil {
				end(number, t.ProducerID, commit)
			}
			return nil
		})
		var corrupt *journal.CorruptError
		if errors.As(err, &corrupt) {
			c.find(Error, name, "%v", err)
			return nil
		}
		return err
	})
}
