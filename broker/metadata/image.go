package metadata

import (
	"iter"
	"maps"
	"slices"
)

// Image is one state of the metadata. It never changes, so any number of readers may
// hold it without a lock.
type Image struct {
	topics     map[TopicID]*Topic
	names      map[string]*Topic
	collisions map[string]string // collision key to the name that has it
	broker     map[string]string
	groups     map[string]map[string]string
	nextID     int64 // the first producer id not yet given away
}

// NewImage is the state of a new cluster.
func NewImage() *Image {
	return &Image{
		topics: map[TopicID]*Topic{}, names: map[string]*Topic{}, collisions: map[string]string{},
		broker: map[string]string{}, groups: map[string]map[string]string{},
	}
}

// Topics iterates all topics, in no order.
func (i *Image) Topics() iter.Seq[*Topic] { return maps.Values(i.topics) }

// TopicByName finds a topic, nil when there is none.
func (i *Image) TopicByName(name string) *Topic { return i.names[name] }

// TopicByID finds a topic, nil when there is none.
func (i *Image) TopicByID(id TopicID) *Topic { return i.topics[id] }

// BrokerConfig is what was set for the broker while it ran. Not to be changed.
func (i *Image) BrokerConfig() map[string]string { return i.broker }

// GroupConfig is what was set for a group. Not to be changed.
func (i *Image) GroupConfig(group string) map[string]string { return i.groups[group] }

// ConfiguredGroups are the groups with settings of their own, sorted.
func (i *Image) ConfiguredGroups() []string { return slices.Sorted(maps.Keys(i.groups)) }

// NextProducerID is the first producer id that was never given away.
func (i *Image) NextProducerID() int64 { return i.nextID }
