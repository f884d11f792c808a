package client

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/lacunamq/lacuna/protocol"
)

// What members and their leader tell each other about split partitions stands at the end
// of the user data of Kafka's own consumer protocol, behind whatever the balancer that was
// wrapped has put there:
//
//	user data => (the balancer's), splitData, length UINT32 of splitData, "LcnSplit"
//	splitData => version UINT8, generation UVARINT, topics
//	topic     => name, partitions UVARINT, buckets UVARINT, bucket UVARINT, ranges
//	range     => partition UVARINT, lo UINT16, hi UINT16
//
// Names and lists begin with their length, UVARINT. A member that joins says which buckets
// were its in which generation, and if its balancer is cooperative the ranges that it reads
// still. A leader says which buckets are a member's, and the ranges that it is to read now;
// of a topic that it does not mention, whole partitions. A reader that expects the
// balancer's data alone does not look behind it.
const (
	splitMagic   = "LcnSplit"
	splitVersion = 1
)

var errSplitData = errors.New("malformed data of a split assignment")

// splitData is what the end of the user data says.
type splitData struct {
	generation int32 // of what is held, -1: nothing; 0 in an assignment
	topics     []splitTopic
}

// splitTopic is what a member holds or gets of one topic.
type splitTopic struct {
	name   string
	slice  splitSlice
	ranges []AssignedSlots
}

// appendSplitData appends data and its end to the user data of a balancer.
func appendSplitData(userData []byte, d *splitData) []byte {
	b := append([]byte(nil), userData...)
	start := len(b)
	b = append(b, splitVersion)
	b = binary.AppendUvarint(b, uint64(d.generation+1))
	b = binary.AppendUvarint(b, uint64(len(d.topics)))
	for i := range d.topics {
		t := &d.topics[i]
		b = binary.AppendUvarint(b, uint64(len(t.name)))
		b = append(b, t.name...)
		for _, n := range []int32{t.slice.partitions, t.slice.buckets, t.slice.bucket, int32(len(t.ranges))} {
			b = binary.AppendUvarint(b, uint64(n))
		}
		for _, r := range t.ranges {
			b = binary.AppendUvarint(b, uint64(r.Partition))
			b = binary.BigEndian.AppendUint16(b, r.Slots.Lo)
			b = binary.BigEndian.AppendUint16(b, r.Slots.Hi)
		}
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(b)-start))
	return append(b, splitMagic...)
}

// cutSplitData divides user data into the balancer's and ours; ok is false if there is
// nothing of ours.
func cutSplitData(userData []byte) (balancer, ours []byte, ok bool) {
	end := len(userData) - len(splitMagic) - 4
	if end < 0 || string(userData[end+4:]) != splitMagic {
		return userData, nil, false
	}
	length := int64(binary.BigEndian.Uint32(userData[end:]))
	if length > int64(end) {
		return userData, nil, false
	}
	start := end - int(length)
	return userData[:start:start], userData[start:end], true
}

// parseSplitData reads what cutSplitData cut off. Its topics are copies.
func parseSplitData(b []byte) (splitData, error) {
	r := splitParser{rest: b}
	if version := r.bytes(1); r.failed || version[0] != splitVersion {
		return splitData{}, fmt.Errorf("%w: another version than %d", errSplitData, splitVersion)
	}
	d := splitData{generation: r.int32() - 1}
	for range r.count(5) {
		t := splitTopic{name: string(r.bytes(r.count(1)))}
		t.slice = splitSlice{partitions: r.int32(), buckets: r.int32(), bucket: r.int32()}
		for range r.count(5) {
			a := AssignedSlots{TopicPartition: TopicPartition{t.name, r.int32()}}
			if at := r.bytes(4); !r.failed {
				a.Slots = protocol.SlotRange{Lo: binary.BigEndian.Uint16(at), Hi: binary.BigEndian.Uint16(at[2:])}
			}
			r.failed = r.failed || a.Slots.Lo > a.Slots.Hi
			t.ranges = append(t.ranges, a)
		}
		d.topics = append(d.topics, t)
	}
	if r.failed || len(r.rest) > 0 {
		return splitData{}, errSplitData
	}
	return d, nil
}

// splitParser reads the fields one after the other. Once it has failed it gives zeros.
type splitParser struct {
	rest   []byte
	failed bool
}

// int32 is the next number, which is not negative.
func (r *splitParser) int32() int32 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > 1<<31-1 {
		r.failed = true
	}
	if r.failed {
		return 0
	}
	r.rest = r.rest[n:]
	return int32(v)
}

// count is the length of a list or string whose elements take at least so many bytes each,
// so that no more is made than the data can hold.
func (r *splitParser) count(each int) int {
	n := int(r.int32())
	if n > len(r.rest)/each {
		r.failed = true
	}
	if r.failed {
		return 0
	}
	return n
}

// bytes are the next n.
func (r *splitParser) bytes(n int) []byte {
	if r.failed = r.failed || n > len(r.rest); r.failed {
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}
