package metadata

import (
	"fmt"
	"maps"
	"sort"
)

// MaxPartitions is the most partitions that a topic may have: more is a slip of the
// hand on one node.
const MaxPartitions = 100_000

// reservedTopic is the name of Kafka's own log of metadata, which clients may not take.
const reservedTopic = "__cluster_metadata"

// CreateTopic returns the records that make a topic. Its id is the caller's to draw, and
// its settings have been checked.
func (i *Image) CreateTopic(t *Topic) ([]Record, error) {
	if err := ValidateTopicName(t.Name); err != nil {
		return nil, err
	}
	if t.Name == reservedTopic {
		return nil, refuse(ErrInternalTopic, "Creation of internal topic %s is prohibited.", t.Name)
	}
	if i.TopicByName(t.Name) != nil {
		return nil, refuse(ErrTopicExists, "Topic '%s' already exists.", t.Name)
	}
	if other, ok := i.collisions[collisionKey(t.Name)]; ok {
		return nil, refuse(ErrInvalidTopicName, "Topic '%s' collides with existing topic: %s", t.Name, other)
	}
	if t.Partitions < 1 {
		return nil, refuse(ErrInvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	}
	if err := checkPartitions(t.Name, t.Partitions); err != nil {
		return nil, err
	}
	if t.ID == (TopicID{}) || i.ids[t.ID] != nil {
		return nil, fmt.Errorf("topic id %s cannot be given to topic %s", t.ID, t.Name)
	}
	return []Record{putTopic(t)}, nil
}

func checkPartitions(name string, n int32) error {
	if n > MaxPartitions {
		return refuse(ErrInvalidPartitions, "Topic '%s' cannot have %d partitions, at most %d are allowed.", name, n, MaxPartitions)
	}
	return nil
}

// topic finds the topic of an operation.
func (i *Image) topic(id TopicID) (*Topic, error) {
	t := i.ids[id]
	if t == nil {
		return nil, refuse(ErrUnknownTopic, "This server does not host topic ID %s.", id)
	}
	return t, nil
}

// DeleteTopic returns the records that remove a topic.
func (i *Image) DeleteTopic(id TopicID) ([]Record, error) {
	t, err := i.topic(id)
	if err != nil {
		return nil, err
	}
	if t.Internal {
		return nil, refuse(ErrInternalTopic, "Topic '%s' is internal and cannot be deleted.", t.Name)
	}
	return []Record{{Key: []byte(topicPrefix + id.String())}}, nil
}

// AddPartitions returns the records that raise a topic's number of partitions to total.
func (i *Image) AddPartitions(id TopicID, total int32) ([]Record, error) {
	t, err := i.topic(id)
	switch {
	case err != nil:
		return nil, err
	case t.Internal:
		return nil, refuse(ErrInternalTopic, "Topic '%s' is internal: its number of partitions places groups and cannot change.", t.Name)
	case total == t.Partitions:
		return nil, refuse(ErrInvalidPartitions, "Topic already has %d partition(s).", total)
	case total < t.Partitions:
		return nil, refuse(ErrInvalidPartitions, "The topic %s currently has %d partition(s); %d would not be an increase.",
			t.Name, t.Partitions, total)
	}
	if err := checkPartitions(t.Name, total); err != nil {
		return nil, err
	}
	grown := *t
	grown.Partitions = total
	return []Record{putTopic(&grown)}, nil
}

// SetTopicConfig returns the records that replace the settings of a topic, none if they
// are the same.
func (i *Image) SetTopicConfig(id TopicID, config map[string]string) ([]Record, error) {
	t, err := i.topic(id)
	if err != nil || maps.Equal(t.Config, config) {
		return nil, err
	}
	changed := *t
	changed.Config = maps.Clone(config)
	return []Record{putTopic(&changed)}, nil
}

// SetConfig returns the records that replace the settings of a resource, none if they
// are the same.
func (i *Image) SetConfig(r Resource, config map[string]string) []Record {
	switch {
	case maps.Equal(i.configs[r], config):
		return nil
	case len(config) == 0:
		return []Record{{Key: []byte(r.key())}}
	}
	return []Record{put(r.key(), configValue{Config: config})}
}

// ReserveProducerIDs returns the first of n producer ids and the records that give them
// away. The ids may be used once the records are durable.
func (i *Image) ReserveProducerIDs(n int64) (first int64, records []Record) {
	return i.nextID, []Record{put(producerIDsKey, producerIDsValue{Next: i.nextID + n})}
}

// SetFeature returns the records that finalize a level of a feature; 0 removes it.
func (i *Image) SetFeature(name string, level int16) []Record {
	switch {
	case i.features[name] == level:
		return nil
	case level == 0:
		return []Record{{Key: []byte(featurePrefix + name)}}
	}
	return []Record{put(featurePrefix+name, featureValue{Level: level})}
}

// Snapshot returns records that make this image from a new one, by key.
func (i *Image) Snapshot() []Record {
	var records []Record
	for _, t := range i.sorted {
		records = append(records, putTopic(t))
	}
	for r, config := range i.configs {
		records = append(records, put(r.key(), configValue{Config: config}))
	}
	for name, level := range i.features {
		records = append(records, put(featurePrefix+name, featureValue{Level: level}))
	}
	if i.nextID > 0 {
		records = append(records, put(producerIDsKey, producerIDsValue{Next: i.nextID}))
	}
	for key, value := range i.unknown {
		records = append(records, Record{Key: []byte(key), Value: value})
	}
	sort.Slice(records, func(i, j int) bool { return string(records[i].Key) < string(records[j].Key) })
	return records
}
