package metadata

import (
	"errors"
	"fmt"
	"maps"
)

// The errors of operations.
var (
	ErrTopicExists       = errors.New("topic already exists")
	ErrUnknownTopic      = errors.New("unknown topic")
	ErrInvalidPartitions = errors.New("invalid number of partitions")
)

// MaxPartitions is the most partitions that a topic may have: more is a slip of the
// hand on one node.
const MaxPartitions = 100_000

// CreateTopic returns the records that make a topic. Its id is the caller's to draw.
func (i *Image) CreateTopic(t *Topic) ([]Record, error) {
	if err := ValidateTopicName(t.Name); err != nil {
		return nil, err
	}
	if i.names[t.Name] != nil {
		return nil, fmt.Errorf("%w: %s", ErrTopicExists, t.Name)
	}
	if other, ok := i.collisions[collisionKey(t.Name)]; ok {
		return nil, fmt.Errorf("%w: %s collides with topic %s, since '.' and '_' are one in metrics", ErrInvalidTopicName, t.Name, other)
	}
	if t.Partitions < 1 || t.Partitions > MaxPartitions {
		return nil, fmt.Errorf("%w: topic %s with %d partitions, allowed are 1 to %d", ErrInvalidPartitions, t.Name, t.Partitions, MaxPartitions)
	}
	return []Record{putTopic(t)}, nil
}

// DeleteTopic returns the records that remove a topic.
func (i *Image) DeleteTopic(id TopicID) ([]Record, error) {
	if i.topics[id] == nil {
		return nil, fmt.Errorf("%w: id %s", ErrUnknownTopic, id)
	}
	return []Record{{Key: []byte(topicPrefix + id.String())}}, nil
}

// AddPartitions returns the records that raise a topic's number of partitions to total.
func (i *Image) AddPartitions(id TopicID, total int32) ([]Record, error) {
	t := i.topics[id]
	if t == nil {
		return nil, fmt.Errorf("%w: id %s", ErrUnknownTopic, id)
	}
	if total <= t.Partitions || total > MaxPartitions {
		return nil, fmt.Errorf("%w: topic %s has %d partitions, and is to have %d", ErrInvalidPartitions, t.Name, t.Partitions, total)
	}
	grown := *t
	grown.Partitions = total
	return []Record{putTopic(&grown)}, nil
}

// SetTopicConfig returns the records that replace the settings of a topic.
func (i *Image) SetTopicConfig(id TopicID, config map[string]string) ([]Record, error) {
	t := i.topics[id]
	if t == nil {
		return nil, fmt.Errorf("%w: id %s", ErrUnknownTopic, id)
	}
	changed := *t
	changed.Config = maps.Clone(config)
	return []Record{putTopic(&changed)}, nil
}

// SetBrokerConfig returns the records that replace the broker's settings.
func (i *Image) SetBrokerConfig(config map[string]string) []Record {
	return []Record{put(brokerKey, configValue{Version: recordVersion, Config: config})}
}

// SetGroupConfig returns the records that replace the settings of a group.
func (i *Image) SetGroupConfig(group string, config map[string]string) []Record {
	if len(config) == 0 {
		return []Record{{Key: []byte(groupPrefix + group)}}
	}
	return []Record{put(groupPrefix+group, configValue{Version: recordVersion, Config: config})}
}

// ReserveProducerIDs returns the first of n producer ids and the records that give them
// away.
func (i *Image) ReserveProducerIDs(n int64) (first int64, records []Record) {
	return i.nextID, []Record{put(producerIDsKey, producerIDsValue{Version: recordVersion, Next: i.nextID + n})}
}

// Snapshot returns records that make this image from a new one.
func (i *Image) Snapshot() []Record {
	var records []Record
	for _, t := range i.topics {
		records = append(records, putTopic(t))
	}
	if len(i.broker) > 0 {
		records = append(records, i.SetBrokerConfig(i.broker)...)
	}
	for group, config := range i.groups {
		records = append(records, i.SetGroupConfig(group, config)...)
	}
	if i.nextID > 0 {
		_, ids := i.ReserveProducerIDs(0)
		records = append(records, ids...)
	}
	return records
}
