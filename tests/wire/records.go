package wire

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/protocol"
)

// The versions that requests are sent at: the last ones that name topics by name.
const (
	produceVersion = 12
	fetchVersion   = 12

	producerIDVersion  = 4
	listOffsetsVersion = 7
)

// maxDecoded is how large a batch may be that is decompressed.
const maxDecoded = 1 << 26

// ProduceRequest asks to append one batch to a partition.
func ProduceRequest(topic string, partition int32, acks int16, batch []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(produceVersion)
	req.Acks, req.TimeoutMillis = acks, int32(Patience.Milliseconds())
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, batch
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// ProducedAt is the offset that the answer to a ProduceRequest gives the batch.
func ProducedAt(resp kmsg.Response) (int64, error) {
	topics := resp.(*kmsg.ProduceResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("the answer to a produce request of one partition: %+v", topics)
	}
	p := &topics[0].Partitions[0]
	return p.BaseOffset, kerr.ErrorForCode(p.ErrorCode)
}

// FetchRequest asks for at most maxBytes of a partition from an offset on, outside of any
// session, and lets the broker wait for the first byte.
func FetchRequest(topic string, partition int32, offset int64, maxBytes int32, wait time.Duration) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(fetchVersion)
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(wait.Milliseconds()), 1, maxBytes
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, maxBytes
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// Fetched is the partition of the answer to a FetchRequest.
func Fetched(resp kmsg.Response) (*kmsg.FetchResponseTopicPartition, error) {
	fetched := resp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(fetched.ErrorCode); err != nil {
		return nil, err
	}
	if len(fetched.Topics) != 1 || len(fetched.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("the answer to a fetch of one partition: %d topics", len(fetched.Topics))
	}
	p := &fetched.Topics[0].Partitions[0]
	return p, kerr.ErrorForCode(p.ErrorCode)
}

// EachRecord calls f with each record of whole batches, control batches aside, until it
// returns an error.
func EachRecord(batches []byte, f func(*protocol.Record) error) error {
	for len(batches) > 0 {
		h, err := protocol.ParseBatchHeader(batches)
		if err != nil {
			return err
		}
		if len(batches) < h.Size() {
			return fmt.Errorf("the batch at offset %d has %d bytes of %d", h.BaseOffset, len(batches), h.Size())
		}
		records, err := protocol.DecompressRecords(nil, &h, batches[:h.Size()], maxDecoded)
		if err != nil {
			return err
		}
		batches = batches[h.Size():]
		it := protocol.IterateRecords(&h, records)
		for !h.Control() && it.Next() {
			if err := f(it.Record()); err != nil {
				return err
			}
		}
		if err := it.Err(); err != nil {
			return err
		}
	}
	return nil
}

// ProducerID gets an id for an idempotent producer.
func (c *Conn) ProducerID() (int64, error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.SetVersion(producerIDVersion)
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	answer := resp.(*kmsg.InitProducerIDResponse)
	return answer.ProducerID, kerr.ErrorForCode(answer.ErrorCode)
}

// StartOffset is the first offset of a partition.
func (c *Conn) StartOffset(topic string, partition int32) (int64, error) {
	const earliest = -2
	return c.offsetAt(topic, partition, earliest)
}

// EndOffset is one past the last offset of a partition.
func (c *Conn) EndOffset(topic string, partition int32) (int64, error) {
	const latest = -1
	return c.offsetAt(topic, partition, latest)
}

func (c *Conn) offsetAt(topic string, partition int32, timestamp int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.SetVersion(listOffsetsVersion)
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, timestamp
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	topics := resp.(*kmsg.ListOffsetsResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("the answer to a lookup in one partition: %+v", topics)
	}
	at := &topics[0].Partitions[0]
	return at.Offset, kerr.ErrorForCode(at.ErrorCode)
}
