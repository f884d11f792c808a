// Package extension declares what Lacuna's extension sees of the broker that it runs in:
// interfaces as narrow as they can be, with topics named by id. Nothing above them
// assumes a local log, an offset that is known before the append, or a single node, so
// that the same extension can run as a gateway in front of another cluster.
package extension

import (
	"context"
	"errors"

	"github.com/lacunamq/lacuna/broker/journal"
)

// TopicPartition names a partition by its topic's id.
type TopicPartition struct {
	Topic     [16]byte
	Partition int32
}

// Bounds are the offsets between which a log is read.
type Bounds struct {
	Start         int64 // the first offset that may hold a record
	HighWatermark int64 // one past the last durable offset
	LSO           int64 // one past the last offset that no open transaction reaches
}

// ErrUnknownPartition is returned for a partition that does not exist, or not any more.
var ErrUnknownPartition = errors.New("unknown partition")

// Log reads the data's partitions.
type Log interface {
	// Bounds gives the bounds of a partition.
	Bounds(tp TopicPartition) (Bounds, error)
	// Read appends to dst the stored batches from the one that holds offset from, or the
	// next, on: at least one if there is one below the high watermark.
	Read(tp TopicPartition, dst []byte, from int64) ([]byte, error)
	// LeaderEpoch is that of the record at offset, -1 if that is not known.
	LeaderEpoch(tp TopicPartition, offset int64) int32
}

// Journal is the partitions of an internal topic.
type Journal interface {
	// Partitions is how many there are.
	Partitions() int32
	// Written tells whether a partition may hold records.
	Written(partition int32) bool
	// Recover brings state to what a partition holds and opens it for the owner of that
	// epoch, who alone appends to it from then on. With a *journal.CorruptError the
	// partition is there all the same, state has what could be read before, and what comes
	// to be appended can be read whatever is before it.
	Recover(ctx context.Context, partition, ownerEpoch int32, state journal.State) (JournalPartition, error)
}

// JournalPartition is one partition of a Journal, open for its owner.
type JournalPartition interface {
	// Append appends records that come to be together or not at all. It refuses an owner
	// of an older epoch.
	Append(records []journal.Record) (journal.Receipt, error)
	// Stage and Commit write the view of the state that was recovered; see
	// journal.Checkpointer.
	Stage(state journal.State) error
	Commit(ctx context.Context) error
}

// CommittedOffset is the offset that stock clients see as committed.
type CommittedOffset struct {
	TopicPartition
	Offset      int64 // the next to read; below 0: none
	LeaderEpoch int32
	Metadata    string
	// Pending says that a transaction may still change it.
	Pending bool
}

// Committed is the primary topic, __consumer_offsets.
type Committed interface {
	// Get gives the committed offsets of partitions, in their order.
	Get(ctx context.Context, group string, partitions []TopicPartition) ([]CommittedOffset, error)
	// Put sets committed offsets, and returns when they are durable.
	Put(ctx context.Context, group string, offsets []CommittedOffset) error
}

// Member is somebody who commits for a group.
type Member struct {
	Group, MemberID, InstanceID string
	Generation                  int32
	// Operator says that an administrator sets the offsets of a share group.
	Operator bool
	// InTransaction says that the member commits in a transaction, whose producer is fenced
	// on its own: a member may then commit in any phase of a rebalance.
	InTransaction bool
}

// Anonymous tells that no member commits but a standalone consumer or an operator.
func (m *Member) Anonymous() bool { return m.Generation < 0 && m.MemberID == "" }

// Members knows the members of groups.
type Members interface {
	// Check tells whether m may commit now. If so, then is called before anything else
	// happens to the group; it must not wait for the group.
	Check(ctx context.Context, m *Member, then func()) error
	// Empty tells whether a group has no members.
	Empty(ctx context.Context, group string) (bool, error)
}

// Owner knows who owns the partitions of the internal topic.
type Owner interface {
	// Epoch is the owner epoch of a partition that this node owns.
	Epoch(partition int32) (epoch int32, owned bool)
}
