package group

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/lacunamq/lacuna/broker/share"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Versions of the records written, those of Kafka 4.4.
const (
	offsetKeyVersion   = 1
	offsetValueVersion = 4 // with the topic id
	// expiringValueVersion is written for a commit that names its own retention, which
	// later versions have no room for.
	expiringValueVersion = 1
	groupKeyVersion      = 2
	groupValueVersion    = 3
)

// ErrBadRecord marks a record of __consumer_offsets whose bytes are not what its version
// says.
var ErrBadRecord = errors.New("malformed record of __consumer_offsets")

// Record is one record of __consumer_offsets: the bytes to log, and what they mean.
type Record struct {
	Key   []byte
	Value []byte // nil: a tombstone
	// Producer is whose transaction the record is part of, nil: of none. It is not in the
	// bytes; records of one transaction are appended as that producer's.
	Producer *Producer
	// One of them is set, or none when the key's version belongs to somebody else.
	offset *offsetChange
	group  *groupChange
	share  *share.Change
}

// Known tells whether the record concerns this package. Records of other kinds stay in
// the log and in views of it.
func (r *Record) Known() bool { return r.offset != nil || r.group != nil || r.share != nil }

// offsetChange sets or removes what a group has committed of a partition.
type offsetChange struct {
	group string
	tp    TopicPartition
	value *Committed // nil: removed; else own
	own   Committed
}

// groupChange sets or removes a classic group.
type groupChange struct {
	group string
	value *groupValue // nil: removed
}

// groupValue is a classic group as it is logged.
type groupValue struct {
	protocolType, protocol, leader string // empty: none
	generation                     int32
	sinceMs                        int64 // when the group came to its state; -1 unknown
	members                        []memberValue
}

// memberValue is a member as it is logged. Its slices are never written to.
type memberValue struct {
	id, instanceID, clientID, clientHost string
	rebalanceTimeoutMs, sessionTimeoutMs int32
	subscription, assignment             []byte
}

// DecodeRecord reads a record of the log or of a view. It keeps key and value, and
// copies what else it needs of them. A record of a version that is not this package's
// is returned with Known false.
func DecodeRecord(key, value []byte) (Record, error) {
	r := Record{Key: key, Value: value}
	if len(key) < 2 {
		return r, fmt.Errorf("%w: key of %d bytes", ErrBadRecord, len(key))
	}
	var err error
	switch version := binary.BigEndian.Uint16(key); version {
	case 0, offsetKeyVersion:
		r.offset, err = decodeOffset(key, value)
	case groupKeyVersion:
		r.group, err = decodeGroup(key, value)
	default:
		if r.share, err = share.Decode(key, value); err != nil {
			err = fmt.Errorf("%w: %w", ErrBadRecord, err)
		}
	}
	return r, err
}

func decodeOffset(key, value []byte) (*offsetChange, error) {
	k := kmsg.NewOffsetCommitKey()
	if err := k.ReadFrom(key); err != nil {
		return nil, fmt.Errorf("%w: offset key: %w", ErrBadRecord, err)
	}
	c := &offsetChange{group: k.Group, tp: TopicPartition{Topic: k.Topic, Partition: k.Partition}}
	if value == nil {
		return c, nil
	}
	v := kmsg.NewOffsetCommitValue()
	v.LeaderEpoch, v.ExpireTimestamp = -1, -1 // where the version has none
	if err := v.ReadFrom(value); err != nil || v.Version < 0 {
		return nil, fmt.Errorf("%w: offset of group %q, topic %q, partition %d: version %d: %w",
			ErrBadRecord, k.Group, k.Topic, k.Partition, v.Version, err)
	}
	if v.Version < 3 {
		v.LeaderEpoch = -1
	}
	if v.Version != expiringValueVersion {
		v.ExpireTimestamp = -1
	}
	c.own = Committed{
		Offset: v.Offset, LeaderEpoch: v.LeaderEpoch, Metadata: v.Metadata,
		CommitMs: v.CommitTimestamp, ExpireMs: v.ExpireTimestamp, TopicID: v.TopicID,
	}
	c.value = &c.own
	return c, nil
}

func decodeGroup(key, value []byte) (*groupChange, error) {
	k := kmsg.NewGroupMetadataKey()
	if err := k.ReadFrom(key); err != nil {
		return nil, fmt.Errorf("%w: group key: %w", ErrBadRecord, err)
	}
	c := &groupChange{group: k.Group}
	if value == nil {
		return c, nil
	}
	v := kmsg.NewGroupMetadataValue()
	if err := v.ReadFrom(value); err != nil || v.Version < 0 {
		return nil, fmt.Errorf("%w: group %q: version %d: %w", ErrBadRecord, k.Group, v.Version, err)
	}
	if v.Version < 2 {
		v.CurrentStateTimestamp = -1
	}
	c.value = &groupValue{
		protocolType: v.ProtocolType, protocol: orEmpty(v.Protocol), leader: orEmpty(v.Leader),
		generation: v.Generation, sinceMs: v.CurrentStateTimestamp,
		members: make([]memberValue, 0, len(v.Members)),
	}
	for i := range v.Members {
		m := &v.Members[i]
		if v.Version < 1 || m.RebalanceTimeoutMillis == -1 {
			m.RebalanceTimeoutMillis = m.SessionTimeoutMillis
		}
		c.value.members = append(c.value.members, memberValue{
			id: m.MemberID, instanceID: orEmpty(m.InstanceID), clientID: m.ClientID, clientHost: m.ClientHost,
			rebalanceTimeoutMs: m.RebalanceTimeoutMillis, sessionTimeoutMs: m.SessionTimeoutMillis,
			subscription: bytes.Clone(m.Subscription), assignment: bytes.Clone(m.Assignment),
		})
	}
	return c, nil
}

// offsetRecord logs what a group has committed of a partition; nil removes it.
func offsetRecord(group string, tp TopicPartition, c *Committed) Record {
	k := kmsg.OffsetCommitKey{Version: offsetKeyVersion, Group: group, Topic: tp.Topic, Partition: tp.Partition}
	change := &offsetChange{group: group, tp: tp}
	if c == nil {
		return Record{Key: k.AppendTo(nil), offset: change}
	}
	change.own = *c
	change.value = &change.own
	v := kmsg.OffsetCommitValue{
		Version: offsetValueVersion, Offset: c.Offset, LeaderEpoch: c.LeaderEpoch, Metadata: c.Metadata,
		CommitTimestamp: c.CommitMs, ExpireTimestamp: c.ExpireMs, TopicID: c.TopicID,
	}
	if c.ExpireMs != noTimestamp {
		v.Version = expiringValueVersion
	}
	// Commits are many, so key and value share a piece of memory.
	b := make([]byte, 0, offsetRecordBytes+len(group)+len(tp.Topic)+len(c.Metadata))
	b = k.AppendTo(b)
	n := len(b)
	b = v.AppendTo(b)
	return Record{Key: b[:n:n], Value: b[n:], offset: change}
}

// offsetRecordBytes is at least what the fixed fields of an offset's key and value take.
const offsetRecordBytes = 64

// groupRecord logs a classic group; nil removes it.
func groupRecord(group string, g *groupValue) Record {
	k := kmsg.GroupMetadataKey{Version: groupKeyVersion, Group: group}
	r := Record{Key: k.AppendTo(nil), group: &groupChange{group: group, value: g}}
	if g == nil {
		return r
	}
	v := kmsg.GroupMetadataValue{
		Version: groupValueVersion, ProtocolType: g.protocolType, Generation: g.generation,
		Protocol: orNil(g.protocol), Leader: orNil(g.leader), CurrentStateTimestamp: g.sinceMs,
		Members: make([]kmsg.GroupMetadataValueMember, 0, len(g.members)),
	}
	for i := range g.members {
		m := &g.members[i]
		v.Members = append(v.Members, kmsg.GroupMetadataValueMember{
			MemberID: m.id, InstanceID: orNil(m.instanceID), ClientID: m.clientID, ClientHost: m.clientHost,
			RebalanceTimeoutMillis: m.rebalanceTimeoutMs, SessionTimeoutMillis: m.sessionTimeoutMs,
			Subscription: m.subscription, Assignment: m.assignment,
		})
	}
	r.Value = v.AppendTo(nil)
	return r
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
