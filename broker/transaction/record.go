package transaction

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The versions that are written, which are those of Kafka 4.4.
const (
	keyVersion   = 0
	valueVersion = 1
)

// initEpochTag is the tagged field of a value that keeps initEpoch. Kafka does not log it.
const initEpochTag = protocol.ExtensionTag

// ErrBadRecord marks a record of __transaction_state whose bytes are not what its version
// says, or whose version is not known.
var ErrBadRecord = errors.New("malformed record of __transaction_state")

// Record is one record of __transaction_state.
type Record struct {
	Key   []byte
	Value []byte // nil: a tombstone
}

// encodeRecord makes the record by which a transactional id becomes v, or is forgotten.
func encodeRecord(id string, v *value) Record {
	key := kmsg.TxnMetadataKey{Version: keyVersion, TransactionalID: id}
	r := Record{Key: key.AppendTo(nil)}
	if v == nil {
		return r
	}
	val := kmsg.NewTxnMetadataValue()
	val.Version = valueVersion
	val.ProducerID, val.ProducerEpoch = v.producer.ID, v.producer.Epoch
	val.PreviousProducerID, val.NextProducerID = v.previousID, v.nextID
	val.TimeoutMillis, val.State = v.timeoutMs, kmsg.TransactionState(v.status)
	val.LastUpdateTimestamp, val.StartTimestamp = v.updateMs, v.startMs
	val.ClientTransactionVersion = int16(v.version)
	if v.status != Empty {
		val.Topics = topics(v.partitions)
	}
	if v.initEpoch != noEpoch {
		val.UnknownTags.Set(initEpochTag, binary.BigEndian.AppendUint16(nil, uint16(v.initEpoch)))
	}
	r.Value = val.AppendTo(nil)
	return r
}

// topics groups partitions, which are in order.
func topics(partitions []TopicPartition) []kmsg.TxnMetadataValueTopic {
	list := []kmsg.TxnMetadataValueTopic{}
	for _, tp := range partitions {
		if n := len(list); n == 0 || list[n-1].Topic != tp.Topic {
			list = append(list, kmsg.TxnMetadataValueTopic{Topic: tp.Topic})
		}
		t := &list[len(list)-1]
		t.Partitions = append(t.Partitions, tp.Partition)
	}
	return list
}

// decodeRecord reads a record, and copies what it needs of it. The value is nil for a
// tombstone.
func decodeRecord(key, val []byte) (id string, v *value, err error) {
	k := kmsg.NewTxnMetadataKey()
	if err := k.ReadFrom(key); err != nil {
		return "", nil, fmt.Errorf("%w: key: %w", ErrBadRecord, err)
	}
	if k.Version != keyVersion {
		return "", nil, fmt.Errorf("%w: key of version %d", ErrBadRecord, k.Version)
	}
	if k.TransactionalID == "" {
		return "", nil, fmt.Errorf("%w: no transactional id", ErrBadRecord)
	}
	if val == nil {
		return k.TransactionalID, nil, nil
	}
	if v, err = decodeValue(val); err != nil {
		return "", nil, fmt.Errorf("%w: transactional id %q: %w", ErrBadRecord, k.TransactionalID, err)
	}
	return k.TransactionalID, v, nil
}

func decodeValue(b []byte) (*value, error) {
	k := kmsg.NewTxnMetadataValue()
	if err := k.ReadFrom(b); err != nil {
		return nil, err
	}
	v := &value{
		producer:   Producer{ID: k.ProducerID, Epoch: k.ProducerEpoch},
		previousID: k.PreviousProducerID, nextID: k.NextProducerID, initEpoch: noEpoch,
		version: int8(k.ClientTransactionVersion), status: Status(k.State), timeoutMs: k.TimeoutMillis,
		startMs: k.StartTimestamp, updateMs: k.LastUpdateTimestamp,
	}
	switch {
	case k.Version < 0 || k.Version > valueVersion:
		return nil, fmt.Errorf("value of version %d", k.Version)
	case v.producer.ID < 0 || v.producer.Epoch < 0 || v.previousID < noID || v.nextID < noID:
		return nil, fmt.Errorf("producer id %d, epoch %d, after %d, before %d", v.producer.ID, v.producer.Epoch, v.previousID, v.nextID)
	case v.status < Empty || v.status > CompleteAbort:
		return nil, fmt.Errorf("state %d", k.State)
	case k.ClientTransactionVersion < 0 || k.ClientTransactionVersion > math.MaxInt8:
		return nil, fmt.Errorf("transaction version %d", k.ClientTransactionVersion)
	case v.timeoutMs < 0 || !validTimestamp(v.startMs) || !validTimestamp(v.updateMs):
		return nil, fmt.Errorf("timeout of %d ms, started at %d, updated at %d", v.timeoutMs, v.startMs, v.updateMs)
	}
	if !v.status.ending() {
		v.nextID = noID
	}
	switch {
	case v.status == Empty:
		return v, readInitEpoch(v, &k.UnknownTags)
	case v.status.complete():
		return v, nil
	}
	for i := range k.Topics {
		for _, p := range k.Topics[i].Partitions {
			if p < 0 {
				return nil, fmt.Errorf("topic %q, partition %d", k.Topics[i].Topic, p)
			}
			v.partitions = append(v.partitions, TopicPartition{Topic: k.Topics[i].Topic, Partition: p})
		}
	}
	v.partitions = sorted(v.partitions)
	return v, nil
}

// validTimestamp leaves room to add a timeout.
func validTimestamp(ms int64) bool { return ms >= noTimestamp && ms <= math.MaxInt64/2 }

func readInitEpoch(v *value, tags *kmsg.Tags) error {
	var err error
	tags.Each(func(tag uint32, b []byte) {
		if tag != initEpochTag {
			return
		}
		if len(b) != 2 || binary.BigEndian.Uint16(b) > math.MaxInt16 {
			err = fmt.Errorf("epoch before InitProducerId of %d bytes", len(b))
			return
		}
		v.initEpoch = int16(binary.BigEndian.Uint16(b))
	})
	return err
}

func comparePartitions(a, b TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// sorted puts partitions in order, in place, and drops doubles.
func sorted(partitions []TopicPartition) []TopicPartition {
	slices.SortFunc(partitions, comparePartitions)
	return slices.Compact(partitions)
}
