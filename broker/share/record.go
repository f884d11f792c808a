package share

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
)

// The keys of share groups in __consumer_offsets: the version that a record's key begins
// with is its kind.
const (
	keyMember         = 10 // ShareGroupMemberMetadata
	keyGroup          = 11 // ShareGroupMetadata
	keyAssignment     = 12 // ShareGroupTargetAssignmentMetadata
	keyTarget         = 13 // ShareGroupTargetAssignmentMember
	keyCurrent        = 14 // ShareGroupCurrentMemberAssignment
	valueVersion      = 0  // of each
	stateStable       = 0  // of a member in keyCurrent, the only one in share groups
	tagAssignmentTime = 0  // in keyAssignment (KIP-1263)
)

// ErrBadRecord marks a record of a share group whose bytes are not what its version says.
var ErrBadRecord = errors.New("malformed record of a share group")

// Change is one record of a share group: the bytes to log, and what they mean.
type Change struct {
	Key   []byte
	Value []byte // nil: a tombstone
	Group string // the group's id
	// what is one of the types below.
	what any
}

// EndsGroup tells that the group is gone with this record.
func (c *Change) EndsGroup() bool {
	g, ok := c.what.(*groupValue)
	return ok && g == nil
}

// Removes tells that the record is a tombstone.
func (c *Change) Removes() bool { return c.Value == nil }

// groupValue is the group itself.
type groupValue struct {
	epoch int32
	hash  int64 // of the topics that are subscribed to
	keyRangeValue
}

// keyRangeValue is the part of a group that Kafka does not have.
type keyRangeValue struct {
	mode    Mode
	initial int32  // buckets at first; 0: the mode was never key-range
	lines   []line // by topic id
}

// line says how many partitions the line of a topic has.
type line struct {
	topic      [16]byte
	name       string
	partitions int32
}

// memberValue is what a member says of itself.
type memberValue struct {
	rackID               *string
	clientID, clientHost string
	topics               []string // sorted, each once
}

// assignmentValue is the assignment that targets belong to.
type assignmentValue struct {
	epoch  int32
	madeMs int64
}

// targetValue is what a member is to have.
type targetValue struct {
	partitions []TopicPartitions // by topic id
	buckets    []int32           // rising
	idle       int32             // its place among those for whom there is no bucket, from 1; 0: none
}

// currentValue is what a member was told.
type currentValue struct {
	epoch, previousEpoch int32
	partitions           []TopicPartitions // by topic id
}

// Of a member: the record concerns the member with this id.
type (
	memberChange struct {
		id    string
		value *memberValue
	}
	targetChange struct {
		id    string
		value *targetValue
	}
	currentChange struct {
		id    string
		value *currentValue
	}
)

// TopicPartitions are partitions of one topic, in order. They are shared and read only.
type TopicPartitions struct {
	Topic      [16]byte
	Partitions []int32
}

// Decode reads a record of __consumer_offsets. It keeps key and value. A record that is not
// of a share group is nil.
func Decode(key, value []byte) (*Change, error) {
	if len(key) < 2 {
		return nil, nil
	}
	kind := int16(binary.BigEndian.Uint16(key))
	if kind < keyMember || kind > keyCurrent {
		return nil, nil
	}
	c := &Change{Key: key, Value: value}
	r := kbin.Reader{Src: key[2:]}
	c.Group = r.String()
	id := ""
	if kind == keyMember || kind == keyTarget || kind == keyCurrent {
		id = r.String()
	}
	if err := r.Complete(); err != nil || len(r.Src) > 0 {
		return nil, fmt.Errorf("%w: key of kind %d, %d bytes", ErrBadRecord, kind, len(key))
	}
	what, err := decodeValue(kind, id, value)
	if err != nil {
		return nil, fmt.Errorf("%w: group %q, member %q, kind %d: %w", ErrBadRecord, c.Group, id, kind, err)
	}
	c.what = what
	return c, nil
}

func decodeValue(kind int16, id string, value []byte) (any, error) {
	switch kind {
	case keyMember:
		v, err := decodeAs(value, readMember)
		return &memberChange{id, v}, err
	case keyGroup:
		return decodeAs(value, readGroup)
	case keyAssignment:
		return decodeAs(value, readAssignment)
	case keyTarget:
		v, err := decodeAs(value, readTarget)
		return &targetChange{id, v}, err
	default:
		v, err := decodeAs(value, readCurrent)
		return &currentChange{id, v}, err
	}
}

// decodeAs reads a value by its fields; a tombstone is nil.
func decodeAs[T any](value []byte, read func(*kbin.Reader, *T)) (*T, error) {
	if value == nil {
		return nil, nil
	}
	r := &kbin.Reader{Src: value}
	if version := r.Int16(); version != valueVersion {
		return nil, fmt.Errorf("version %d", version)
	}
	v := new(T)
	read(r, v)
	return v, r.Complete()
}

func key(kind int16, parts ...string) []byte {
	dst := kbin.AppendInt16(nil, kind)
	for _, p := range parts {
		dst = kbin.AppendString(dst, p)
	}
	return dst
}

// encode is a value in bytes, nil for none.
func encode[T any](v *T, appendTo func([]byte, *T) []byte) []byte {
	if v == nil {
		return nil
	}
	return appendTo(kbin.AppendInt16(nil, valueVersion), v)
}

func groupRecord(group string, v *groupValue) Change {
	return Change{Group: group, Key: key(keyGroup, group), Value: encode(v, appendGroup), what: v}
}

func memberRecord(group, id string, v *memberValue) Change {
	return Change{Group: group, Key: key(keyMember, group, id), Value: encode(v, appendMember), what: &memberChange{id, v}}
}

func assignmentRecord(group string, v *assignmentValue) Change {
	return Change{Group: group, Key: key(keyAssignment, group), Value: encode(v, appendAssignment), what: v}
}

func targetRecord(group, id string, v *targetValue) Change {
	return Change{Group: group, Key: key(keyTarget, group, id), Value: encode(v, appendTarget), what: &targetChange{id, v}}
}

func currentRecord(group, id string, v *currentValue) Change {
	return Change{Group: group, Key: key(keyCurrent, group, id), Value: encode(v, appendCurrent), what: &currentChange{id, v}}
}
