package group

import (
	"cmp"
)

// noTimestamp stands for a point in time that is not given.
const noTimestamp = -1

// TopicPartition names a partition by its topic's name, as __consumer_offsets does.
type TopicPartition struct {
	Topic     string
	Partition int32
}

func (tp TopicPartition) compare(other TopicPartition) int {
	return cmp.Or(cmp.Compare(tp.Topic, other.Topic), cmp.Compare(tp.Partition, other.Partition))
}

// Committed is what a group has committed of a partition.
type Committed struct {
	Offset      int64 // the next to read
	LeaderEpoch int32 // of the record before it, as the client said; -1 unknown
	Metadata    string
	CommitMs    int64    // when it was committed, in ms since 1970
	ExpireMs    int64    // when it expires, for a commit that said so; -1 otherwise
	TopicID     [16]byte // of the topic at that time; zero unknown
}

// Concerns tells whether the offset belongs to the topic with the given id, and not to
// one that had the same name before. A zero id on either side is any.
func (c *Committed) Concerns(topicID [16]byte) bool {
	return c.TopicID == topicID || c.TopicID == [16]byte{} || topicID == [16]byte{}
}
