package wire

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The versions that requests are sent at: the last ones that name topics by name.
const (
	metadataVersion      = 12
	createVersion        = 7
	deleteVersion        = 5
	deleteRecordsVersion = 2
	alterConfigsVersion  = 1
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

// DeleteTopic deletes a topic.
func (c *Conn) DeleteTopic(name string) error {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.SetVersion(deleteVersion)
	req.TimeoutMillis = int32(Patience.Milliseconds())
	req.TopicNames = []string{name}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	topics := resp.(*kmsg.DeleteTopicsResponse).Topics
	if len(topics) != 1 {
		return fmt.Errorf("delete topic %s: %d topics in the answer", name, len(topics))
	}
	if err := kerr.ErrorForCode(topics[0].ErrorCode); err != nil {
		return fmt.Errorf("delete topic %s: %w", name, err)
	}
	return nil
}

// Topics describes all topics.
func (c *Conn) Topics() ([]kmsg.MetadataResponseTopic, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(metadataVersion)
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	topics := resp.(*kmsg.MetadataResponse).Topics
	for i := range topics {
		if name := topics[i].Topic; name != nil {
			topics[i].Topic = kmsg.StringPtr(strings.Clone(*name))
		}
	}
	return topics, nil
}

// DeleteRecords deletes the records of a partition below an offset, and returns where the
// log begins then.
func (c *Conn) DeleteRecords(topic string, partition int32, before int64) (int64, error) {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.SetVersion(deleteRecordsVersion)
	req.TimeoutMillis = int32(Patience.Milliseconds())
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{
		Topic:      topic,
		Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: partition, Offset: before}},
	}}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	topics := resp.(*kmsg.DeleteRecordsResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("the answer to a deletion of records of one partition: %+v", topics)
	}
	p := &topics[0].Partitions[0]
	return p.LowWatermark, kerr.ErrorForCode(p.ErrorCode)
}

// Configure sets settings of a topic or a group by Kafka's names.
func (c *Conn) Configure(kind kmsg.ConfigResourceType, name string, settings map[string]string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.SetVersion(alterConfigsVersion)
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	for key, value := range settings {
		s := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		s.Name, s.Value = key, &value
		r.Configs = append(r.Configs, s)
	}
	req.Resources = append(req.Resources, r)
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	for i := range resp.(*kmsg.IncrementalAlterConfigsResponse).Resources {
		r := &resp.(*kmsg.IncrementalAlterConfigsResponse).Resources[i]
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return fmt.Errorf("configure %s: %w", name, err)
		}
	}
	return nil
}
