package share

import (
	"bytes"
	"slices"
	"sort"

	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kbin"
)

// This file has the fields of the values, in the order of Kafka's schemas. Tagged fields of
// the extension are written only where there is something to say.

func appendMember(dst []byte, v *memberValue) []byte {
	dst = kbin.AppendCompactNullableString(dst, v.rackID)
	dst = kbin.AppendCompactString(dst, v.clientID)
	dst = kbin.AppendCompactString(dst, v.clientHost)
	dst = kbin.AppendCompactArrayLen(dst, len(v.topics))
	for _, t := range v.topics {
		dst = kbin.AppendCompactString(dst, t)
	}
	return noTags(dst)
}

func readMember(r *kbin.Reader, v *memberValue) {
	v.rackID = r.CompactNullableString()
	v.clientID = r.CompactString()
	v.clientHost = r.CompactString()
	for range r.CompactArrayLen() {
		v.topics = append(v.topics, r.CompactString())
	}
	slices.Sort(v.topics)
	v.topics = slices.Compact(v.topics)
	readTags(r, nil)
}

func appendGroup(dst []byte, v *groupValue) []byte {
	dst = kbin.AppendInt32(dst, v.epoch)
	dst = kbin.AppendInt64(dst, v.hash)
	if v.mode == RoundRobin && v.initial == 0 {
		return noTags(dst)
	}
	field := kbin.AppendInt8(nil, int8(v.mode))
	field = kbin.AppendInt32(field, v.initial)
	field = kbin.AppendCompactArrayLen(field, len(v.lines))
	for _, l := range v.lines {
		field = kbin.AppendUuid(field, l.topic)
		field = kbin.AppendCompactString(field, l.name)
		field = kbin.AppendInt32(field, l.partitions)
		field = noTags(field)
	}
	return oneTag(dst, protocol.ExtensionTag, noTags(field))
}

func readGroup(r *kbin.Reader, v *groupValue) {
	v.epoch = r.Int32()
	v.hash = r.Int64()
	readTags(r, map[uint32]func(*kbin.Reader){protocol.ExtensionTag: func(r *kbin.Reader) {
		v.mode = Mode(r.Int8())
		v.initial = min(max(r.Int32(), 0), keyfilter.Slots)
		for range r.CompactArrayLen() {
			l := line{topic: r.Uuid(), name: r.CompactString(), partitions: r.Int32()}
			readTags(r, nil)
			if l.partitions < 1 {
				continue
			}
			v.lines = append(v.lines, l)
		}
		readTags(r, nil)
	}})
	sort.Slice(v.lines, func(i, j int) bool { return bytes.Compare(v.lines[i].topic[:], v.lines[j].topic[:]) < 0 })
}

func appendAssignment(dst []byte, v *assignmentValue) []byte {
	dst = kbin.AppendInt32(dst, v.epoch)
	return oneTag(dst, tagAssignmentTime, kbin.AppendInt64(nil, v.madeMs))
}

func readAssignment(r *kbin.Reader, v *assignmentValue) {
	v.epoch = r.Int32()
	readTags(r, map[uint32]func(*kbin.Reader){tagAssignmentTime: func(r *kbin.Reader) { v.madeMs = r.Int64() }})
}

func appendTarget(dst []byte, v *targetValue) []byte {
	dst = appendPartitions(dst, v.partitions)
	if len(v.buckets) == 0 && v.idle == 0 {
		return noTags(dst)
	}
	field := appendInts(nil, v.buckets)
	field = kbin.AppendInt32(field, v.idle)
	return oneTag(dst, protocol.ExtensionTag, noTags(field))
}

func readTarget(r *kbin.Reader, v *targetValue) {
	v.partitions = readPartitions(r)
	readTags(r, map[uint32]func(*kbin.Reader){protocol.ExtensionTag: func(r *kbin.Reader) {
		v.buckets = readInts(r)
		v.idle = r.Int32()
		readTags(r, nil)
	}})
}

func appendCurrent(dst []byte, v *currentValue) []byte {
	dst = kbin.AppendInt32(dst, v.epoch)
	dst = kbin.AppendInt32(dst, v.previousEpoch)
	dst = kbin.AppendInt8(dst, stateStable)
	return noTags(appendPartitions(dst, v.partitions))
}

func readCurrent(r *kbin.Reader, v *currentValue) {
	v.epoch = r.Int32()
	v.previousEpoch = r.Int32()
	r.Int8() // the state
	v.partitions = readPartitions(r)
	readTags(r, nil)
}

func appendPartitions(dst []byte, list []TopicPartitions) []byte {
	dst = kbin.AppendCompactArrayLen(dst, len(list))
	for _, t := range list {
		dst = kbin.AppendUuid(dst, t.Topic)
		dst = noTags(appendInts(dst, t.Partitions))
	}
	return dst
}

func readPartitions(r *kbin.Reader) []TopicPartitions {
	var list []TopicPartitions
	for range r.CompactArrayLen() {
		t := TopicPartitions{Topic: r.Uuid(), Partitions: readInts(r)}
		readTags(r, nil)
		list = append(list, t)
	}
	sort.Slice(list, func(i, j int) bool { return bytes.Compare(list[i].Topic[:], list[j].Topic[:]) < 0 })
	return list
}

func appendInts(dst []byte, list []int32) []byte {
	dst = kbin.AppendCompactArrayLen(dst, len(list))
	for _, n := range list {
		dst = kbin.AppendInt32(dst, n)
	}
	return dst
}

func readInts(r *kbin.Reader) []int32 {
	var list []int32
	for range r.CompactArrayLen() {
		list = append(list, r.Int32())
	}
	slices.Sort(list)
	return list
}

func noTags(dst []byte) []byte { return kbin.AppendUvarint(dst, 0) }

func oneTag(dst []byte, tag uint32, field []byte) []byte {
	dst = kbin.AppendUvarint(dst, 1)
	dst = kbin.AppendUvarint(dst, tag)
	dst = kbin.AppendUvarint(dst, uint32(len(field)))
	return append(dst, field...)
}

// readTags reads the tagged fields that known names, and skips the others. A field that
// does not have the bytes it needs makes the reader fail.
func readTags(r *kbin.Reader, known map[uint32]func(*kbin.Reader)) {
	for range r.Uvarint() {
		tag, size := r.Uvarint(), r.Uvarint()
		field := kbin.Reader{Src: r.Span(int(size))}
		if !r.Ok() {
			return
		}
		if read := known[tag]; read != nil {
			if read(&field); !field.Ok() {
				r.Span(len(r.Src) + 1)
				return
			}
		}
	}
}
