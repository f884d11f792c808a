package wire

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/protocol"
)

// The versions that the requests below are sent at: the last that names topics by name.
const (
	produceVersion  = 12
	fetchVersion    = 12
	metadataVersion = 12
	createVersion   = 7
	commitVersion   = 9

	offsetFetchVersion = 9
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

// CommitIndividually commits and reopens single offsets of a partition for a group that
// has no members.
func (c *Conn) CommitIndividually(group, topic string, partition int32, offsets protocol.IndividualOffsets) (protocol.IndividualState, error) {
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = partition, -1
	p.UnknownTags.Set(protocol.ExtensionTag, offsets.AppendTo(nil))
	answer, err := c.commit(group, topic, p)
	if err != nil {
		return protocol.IndividualState{}, err
	}
	field, ok := ExtensionField(&answer.UnknownTags)
	if !ok {
		return protocol.IndividualState{}, errors.New("the answer to an individual commit has no IndividualState")
	}
	return protocol.ParseIndividualState(field)
}

// CommitCumulatively commits everything below an offset, as a stock client does.
func (c *Conn) CommitCumulatively(group, topic string, partition int32, offset int64) error {
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = partition, offset
	_, err := c.commit(group, topic, p)
	return err
}

func (c *Conn) commit(group, topic string, p kmsg.OffsetCommitRequestTopicPartition) (*kmsg.OffsetCommitResponseTopicPartition, error) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.SetVersion(commitVersion)
	req.Group, req.Generation = group, -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	topics := resp.(*kmsg.OffsetCommitResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("the answer to a commit of one partition: %+v", topics)
	}
	answer := &topics[0].Partitions[0]
	return answer, kerr.ErrorForCode(answer.ErrorCode)
}

// Ledger is what a group has committed of a partition.
type Ledger struct {
	Stable    int64 // -1: nothing
	MaxCommit int64
	Gaps      []protocol.Run
}

// Ledger reads the ledger of a group and partition, with all its gaps.
func (c *Conn) Ledger(group, topic string, partition int32) (Ledger, error) {
	var l Ledger
	for from := int64(0); ; {
		stable, page, err := c.gapsPage(group, topic, partition, from)
		if err != nil {
			return l, err
		}
		l.Stable, l.MaxCommit, l.Gaps = stable, page.MaxCommit, append(l.Gaps, page.Gaps...)
		if page.CompleteTo == protocol.GapsComplete {
			return l, nil
		}
		from = page.CompleteTo
	}
}

func (c *Conn) gapsPage(group, topic string, partition int32, from int64) (int64, protocol.IndividualGaps, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.SetVersion(offsetFetchVersion)
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: topic, Partitions: []int32{partition}}}
	g.UnknownTags.Set(protocol.ExtensionTag, (&protocol.GapsRequest{From: from}).AppendTo(nil))
	req.Groups = append(req.Groups, g)
	resp, err := c.Do(req)
	if err != nil {
		return 0, protocol.IndividualGaps{}, err
	}
	groups := resp.(*kmsg.OffsetFetchResponse).Groups
	if len(groups) != 1 || groups[0].ErrorCode != 0 || len(groups[0].Topics) != 1 || len(groups[0].Topics[0].Partitions) != 1 {
		return 0, protocol.IndividualGaps{}, fmt.Errorf("the answer to an offset fetch of one partition: %+v", groups)
	}
	p := &groups[0].Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return 0, protocol.IndividualGaps{}, err
	}
	field, ok := ExtensionField(&p.UnknownTags)
	if !ok {
		return 0, protocol.IndividualGaps{}, errors.New("the answer to an offset fetch has no IndividualGaps")
	}
	gaps, err := protocol.ParseIndividualGaps(field)
	return p.Offset, gaps, err
}

// ExtensionField is the extension's field among tags, if there is one.
func ExtensionField(tags *kmsg.Tags) (field []byte, ok bool) {
	tags.Each(func(tag uint32, content []byte) {
		if tag == protocol.ExtensionTag {
			field, ok = content, true
		}
	})
	return field, ok
}
