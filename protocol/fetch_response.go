package protocol

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Part is bytes that are sent, from where they are, between bytes of a buffer.
type Part struct {
	At    int // the index in the buffer that they go before
	Bytes []byte
}

// AppendFetchResponse appends the body of resp, as its own AppendTo does, but for the
// RecordBatches of its partitions: these stay where they are, and for each that has
// bytes one Part is appended to parts, in order. So the records of an answer can be
// sent without being copied. Null RecordBatches are sent as empty ones, since not all
// clients take null.
//
// Unknown tags are appended where kmsg keeps them, but for the three structures of a
// partition that are tagged fields themselves. It allocates nothing beyond dst and
// parts unless there are such tags or Brokers.
func AppendFetchResponse(dst []byte, parts []Part, resp *kmsg.FetchResponse) ([]byte, []Part) {
	e := fetchEncoder{dst: dst, parts: parts, version: resp.Version, flexible: resp.IsFlexible()}
	if e.version >= 1 {
		e.int32(resp.ThrottleMillis)
	}
	if e.version >= 7 {
		e.int16(resp.ErrorCode)
		e.int32(resp.SessionID)
	}
	e.arrayLen(len(resp.Topics))
	for i := range resp.Topics {
		e.topic(&resp.Topics[i])
	}
	if e.flexible {
		n := 0
		if len(resp.Brokers) > 0 {
			n = 1
		}
		e.uvarint(n + resp.UnknownTags.Len())
		if n > 0 {
			e.brokers(resp.Brokers)
		}
		e.dst = resp.UnknownTags.AppendEach(e.dst)
	}
	return e.dst, e.parts
}

type fetchEncoder struct {
	dst      []byte
	parts    []Part
	version  int16
	flexible bool
}

func (e *fetchEncoder) topic(t *kmsg.FetchResponseTopic) {
	if e.version >= 13 {
		e.dst = append(e.dst, t.TopicID[:]...)
	} else {
		e.string(t.Topic)
	}
	e.arrayLen(len(t.Partitions))
	for i := range t.Partitions {
		e.partition(&t.Partitions[i])
	}
	e.tags(&t.UnknownTags)
}

func (e *fetchEncoder) partition(p *kmsg.FetchResponseTopicPartition) {
	e.int32(p.Partition)
	e.int16(p.ErrorCode)
	e.int64(p.HighWatermark)
	if e.version >= 4 {
		e.int64(p.LastStableOffset)
	}
	if e.version >= 5 {
		e.int64(p.LogStartOffset)
	}
	if e.version >= 4 {
		e.aborted(p.AbortedTransactions)
	}
	if e.version >= 11 {
		e.int32(p.PreferredReadReplica)
	}
	if e.flexible {
		e.uvarint(len(p.RecordBatches) + 1)
	} else {
		e.int32(int32(len(p.RecordBatches)))
	}
	if len(p.RecordBatches) > 0 {
		e.parts = append(e.parts, Part{At: len(e.dst), Bytes: p.RecordBatches})
	}
	if e.flexible {
		e.partitionTags(p)
	}
}

func (e *fetchEncoder) aborted(txns []kmsg.FetchResponseTopicPartitionAbortedTransaction) {
	if txns == nil {
		e.nullArray()
		return
	}
	e.arrayLen(len(txns))
	for i := range txns {
		e.int64(txns[i].ProducerID)
		e.int64(txns[i].FirstOffset)
		e.tags(&txns[i].UnknownTags)
	}
}

// partitionTags appends the tagged fields that differ from their defaults.
func (e *fetchEncoder) partitionTags(p *kmsg.FetchResponseTopicPartition) {
	d, l, s := &p.DivergingEpoch, &p.CurrentLeader, &p.SnapshotID
	diverging := d.Epoch != -1 || d.EndOffset != -1
	leader := l.LeaderID != -1 || l.LeaderEpoch != -1
	snapshot := s.EndOffset != -1 || s.Epoch != -1
	n := p.UnknownTags.Len()
	for _, set := range [...]bool{diverging, leader, snapshot} {
		if set {
			n++
		}
	}
	e.uvarint(n)
	if diverging {
		e.tag(0, 4+8+1)
		e.int32(d.Epoch)
		e.int64(d.EndOffset)
		e.dst = append(e.dst, noTags)
	}
	if leader {
		e.tag(1, 4+4+1)
		e.int32(l.LeaderID)
		e.int32(l.LeaderEpoch)
		e.dst = append(e.dst, noTags)
	}
	if snapshot {
		e.tag(2, 8+4+1)
		e.int64(s.EndOffset)
		e.int32(s.Epoch)
		e.dst = append(e.dst, noTags)
	}
	e.dst = p.UnknownTags.AppendEach(e.dst)
}

// brokers appends the tagged field of the endpoints of current leaders.
func (e *fetchEncoder) brokers(brokers []kmsg.FetchResponseBroker) {
	field := fetchEncoder{version: e.version, flexible: true}
	field.arrayLen(len(brokers))
	for i := range brokers {
		b := &brokers[i]
		field.int32(b.NodeID)
		field.string(b.Host)
		field.int32(b.Port)
		if b.Rack == nil {
			field.dst = append(field.dst, 0)
		} else {
			field.string(*b.Rack)
		}
		field.tags(&b.UnknownTags)
	}
	e.tag(0, len(field.dst))
	e.dst = append(e.dst, field.dst...)
}

func (e *fetchEncoder) int16(v int16) { e.dst = binary.BigEndian.AppendUint16(e.dst, uint16(v)) }
func (e *fetchEncoder) int32(v int32) { e.dst = binary.BigEndian.AppendUint32(e.dst, uint32(v)) }
func (e *fetchEncoder) int64(v int64) { e.dst = binary.BigEndian.AppendUint64(e.dst, uint64(v)) }
func (e *fetchEncoder) uvarint(v int) { e.dst = binary.AppendUvarint(e.dst, uint64(v)) }

func (e *fetchEncoder) string(s string) {
	if e.flexible {
		e.uvarint(len(s) + 1)
	} else {
		e.int16(int16(len(s)))
	}
	e.dst = append(e.dst, s...)
}

func (e *fetchEncoder) arrayLen(n int) {
	if e.flexible {
		e.uvarint(n + 1)
	} else {
		e.int32(int32(n))
	}
}

func (e *fetchEncoder) nullArray() {
	if e.flexible {
		e.uvarint(0)
	} else {
		e.int32(-1)
	}
}

// tag appends the start of a tagged field of size bytes.
func (e *fetchEncoder) tag(number, size int) {
	e.uvarint(number)
	e.uvarint(size)
}

// tags appends the tagged fields of a structure that has none of its own.
func (e *fetchEncoder) tags(t *kmsg.Tags) {
	if e.flexible {
		e.uvarint(t.Len())
		e.dst = t.AppendEach(e.dst)
	}
}
