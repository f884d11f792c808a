package individualcommit

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// TopicName is the internal log's topic.
const TopicName = "__individual_commit_offsets"

// ErrUnknownVersion marks a record of a version or kind that a later Lacuna wrote. It is
// left in the log.
var ErrUnknownVersion = errors.New("unknown version of an individual commit record")

// ID names a ledger.
type ID struct {
	Group     string
	Topic     [16]byte // the topic id
	Partition int32
}

// String writes the topic's id as Kafka's tools do.
func (id ID) String() string {
	return fmt.Sprintf("group %q, topic id %s, partition %d", id.Group, base64.RawURLEncoding.EncodeToString(id.Topic[:]), id.Partition)
}

// KeyKind is what a record of the internal log is.
type KeyKind int8

const (
	KindSnapshot KeyKind = 0 // a whole ledger
	KindDelta    KeyKind = 1 // a change since the last snapshot
	KindPending  KeyKind = 2 // offsets that a transaction holds
	KindCounts   KeyKind = 3 // how often records of a block of offsets were delivered, and are not done
	KindOutcome  KeyKind = 4 // a transaction of which something is pending was committed
)

// RingSize is how many delta positions there are: compaction keeps at most one snapshot
// and that many deltas of a ledger.
const RingSize = 4096

const keyVersion = 0

// Key is the key of a record of the internal log:
//
//	Key => version INT16, owner_epoch INT32, group STRING, topic_id UUID, partition INT32,
//	       kind INT8, rest
//	rest of a delta   => position INT32
//	rest of a pending => producer_id INT64, counter INT32
//	rest of counts    => block INT64
//	rest of outcome   => producer_id INT64
//
// In the order of their bytes, the records of a ledger are its snapshot, its deltas as
// they were written since the last snapshot, what is pending, its counts and outcomes; so
// that order can be replayed as well as the log's own.
type Key struct {
	OwnerEpoch int32
	ID         ID
	Kind       KeyKind
	Position   int32 // of a delta
	ProducerID int64 // of what is pending, and of an outcome
	Counter    int32 // of what is pending: tells the records of one transaction apart
	Block      int64 // of counts: an offset divided by the size of a block (cooperative.BlockOffsets)
}

// AppendTo appends the key. The group's name has at most 32,767 bytes.
func (k *Key) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, keyVersion)
	dst = binary.BigEndian.AppendUint32(dst, uint32(k.OwnerEpoch))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(k.ID.Group)))
	dst = append(dst, k.ID.Group...)
	dst = append(dst, k.ID.Topic[:]...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(k.ID.Partition))
	dst = append(dst, byte(k.Kind))
	switch k.Kind {
	case KindDelta:
		dst = binary.BigEndian.AppendUint32(dst, uint32(k.Position))
	case KindPending:
		dst = binary.BigEndian.AppendUint64(dst, uint64(k.ProducerID))
		dst = binary.BigEndian.AppendUint32(dst, uint32(k.Counter))
	case KindCounts:
		dst = binary.BigEndian.AppendUint64(dst, uint64(k.Block))
	case KindOutcome:
		dst = binary.BigEndian.AppendUint64(dst, uint64(k.ProducerID))
	case KindSnapshot:
	}
	return dst
}

// ParseKey reads a key. The error is ErrCorrupt or ErrUnknownVersion.
func ParseKey(b []byte) (Key, error) {
	f := fields{b: b}
	if v := f.int16("version"); f.err == nil && v != keyVersion {
		return Key{}, fmt.Errorf("%w: key of version %d", ErrUnknownVersion, v)
	}
	k := Key{OwnerEpoch: f.int32("owner epoch")}
	k.ID.Group = string(f.bytes(int(f.int16("length of the group")), "group"))
	copy(k.ID.Topic[:], f.bytes(len(k.ID.Topic), "topic id"))
	k.ID.Partition = f.int32("partition")
	k.Kind = KeyKind(f.int8("kind"))
	switch {
	case f.err != nil:
	case k.Kind == KindDelta:
		k.Position = f.int32("position")
		f.check(k.Position >= 0 && k.Position < RingSize, "position %d", k.Position)
	case k.Kind == KindPending:
		k.ProducerID = f.int64("producer id")
		k.Counter = f.int32("counter")
	case k.Kind == KindCounts:
		k.Block = f.int64("block")
		f.check(k.Block >= 0, "block %d", k.Block)
	case k.Kind == KindOutcome:
		k.ProducerID = f.int64("producer id")
	case k.Kind != KindSnapshot:
		return Key{}, fmt.Errorf("%w: key of kind %d", ErrUnknownVersion, k.Kind)
	}
	f.check(k.OwnerEpoch >= 0 && k.ID.Partition >= 0, "owner epoch %d, partition %d", k.OwnerEpoch, k.ID.Partition)
	if err := f.end(); err != nil {
		return Key{}, fmt.Errorf("key: %w", err)
	}
	return k, nil
}

// fields reads the fields of a record one by one; the first fault sticks, after which all
// reads give zero values.
type fields struct {
	b   []byte
	err error
}

func (f *fields) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
	}
	f.b = nil
}

func (f *fields) check(ok bool, format string, args ...any) {
	if !ok {
		f.fail(format, args...)
	}
}

// bytes reads n bytes, which alias the record.
func (f *fields) bytes(n int, what string) []byte {
	if f.err != nil || n < 0 || n > len(f.b) {
		f.fail("%s does not fit", what)
		return nil
	}
	out := f.b[:n:n]
	f.b = f.b[n:]
	return out
}

func (f *fields) int8(what string) int8 {
	if b := f.bytes(1, what); b != nil {
		return int8(b[0])
	}
	return 0
}

func (f *fields) int16(what string) int16 {
	if b := f.bytes(2, what); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (f *fields) int32(what string) int32 {
	if b := f.bytes(4, what); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (f *fields) int64(what string) int64 {
	if b := f.bytes(8, what); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (f *fields) uvarint(what string) uint64 {
	v, n := binary.Uvarint(f.b)
	if f.err != nil || n <= 0 {
		f.fail("%s does not fit", what)
		return 0
	}
	f.b = f.b[n:]
	return v
}

// offset reads an offset, which is not below 0.
func (f *fields) offset(what string) int64 {
	v := f.uvarint(what)
	f.check(v <= math.MaxInt64, "%s %d", what, v)
	return int64(v)
}

// nullableString reads a COMPACT_NULLABLE_STRING.
func (f *fields) nullableString(what string) *string {
	n := f.uvarint(what)
	if n == 0 || f.err != nil {
		return nil
	}
	if n-1 > uint64(len(f.b)) {
		f.fail("%s does not fit", what)
		return nil
	}
	s := string(f.bytes(int(n-1), what))
	return &s
}

// runs reads packed runs and hands them to each.
func (f *fields) runs(each func(Run)) (base int64) {
	if f.err != nil {
		return 0
	}
	base, rest, err := unpackRuns(f.b, each)
	if err != nil {
		f.err = err
	}
	f.b = rest
	return base
}

// end checks that everything was read and gives the first fault.
func (f *fields) end() error {
	if f.err == nil && len(f.b) != 0 {
		f.fail("%d trailing bytes", len(f.b))
	}
	return f.err
}

func appendNullableString(dst []byte, s *string) []byte {
	if s == nil {
		return append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(len(*s))+1)
	return append(dst, *s...)
}
