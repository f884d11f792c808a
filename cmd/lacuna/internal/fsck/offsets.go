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
}

// readOffsets replays the offsets topic.
func (c *check) readOffsets() (map[committedKey]committedOffset, error) {
	offsets := make(map[committedKey]committedOffset)
	err := c.replayTopic(offsetsTopic, func(where string, home int32, partitions int32, r journal.Record) {
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
			delete(offsets, key)
			return
		}
		v := kmsg.NewOffsetCommitValue()
		if err := v.ReadFrom(r.Value); err != nil {
			c.find(Error, where, "the offset of group %s, %s[%d] cannot be read: %v", k.Group, k.Topic, k.Partition, err)
			return
		}
		offsets[key] = committedOffset{offset: v.Offset, topicID: v.TopicID}
	})
	c.report.Offsets = len(offsets)
	return offsets, err
}

// replayTopic hands use the records of an internal topic, partition by partition, with the
// number of the partition and how many there are.
func (c *check) replayTopic(topic string, use func(where string, home, partitions int32, r journal.Record)) error {
	return c.eachLog(func(t *metadata.Topic, number int32, name string, log *commitlog.Log) error {
		if t.Name != topic {
			return nil
		}
		_, err := journal.Open(log, name).Replay(c.ctx, log.Bounds().Start, func(_ int64, r journal.Record) error {
			use(name, number, t.Partitions, r)
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
