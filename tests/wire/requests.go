package wire

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The versions that the requests below are sent at: the last that names topics by name.
const (
	produceVersion  = 12
	fetchVersion    = 12
	metadataVersion = 12
	createVersion   = 7
)

// Versions are the APIs that a broker says it serves.
func (c *Conn) Versions() ([]kmsg.ApiVersionsResponseApiKey, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.SetVersion(3)
	req.ClientSoftwareName, req.ClientSoftwareVersion = "wire", "1"
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	versions := resp.(*kmsg.ApiVersionsResponse)
	return versions.ApiKeys, kerr.ErrorForCode(versions.ErrorCode)
}

// MakeTopic makes a topic of one partition by asking for it, where the broker makes
// topics on first use, and returns its id.
func (c *Conn) MakeTopic(name string) ([16]byte, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(metadataVersion)
	req.AllowAutoTopicCreation = true
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	resp, err := c.Do(req)
	if err != nil {
		return [16]byte{}, err
	}
	topics := resp.(*kmsg.MetadataResponse).Topics
	if len(topics) != 1 {
		return [16]byte{}, fmt.Errorf("metadata of topic %s: %d topics in the answer", name, len(topics))
	}
	if err := kerr.ErrorForCode(topics[0].ErrorCode); err != nil {
		return [16]byte{}, fmt.Errorf("metadata of topic %s: %w", name, err)
	}
	return topics[0].TopicID, nil
}

// CreateTopic creates a topic with settings by Kafka's names.
func (c *Conn) CreateTopic(name string, partitions int32, settings map[string]string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(createVersion)
	req.TimeoutMillis = int32(Patience.Milliseconds())
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, 1
	for key, value := range settings {
		s := kmsg.NewCreateTopicsRequestTopicConfig()
		s.Name, s.Value = key, &value
		t.Configs = append(t.Configs, s)
	}
	req.Topics = append(req.Topics, t)
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	topics := resp.(*kmsg.CreateTopicsResponse).Topics
	if len(topics) != 1 {
		return fmt.Errorf("create topic %s: %d topics in the answer", name, len(topics))
	}
	if err := kerr.ErrorForCode(topics[0].ErrorCode); err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return nil
}

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
