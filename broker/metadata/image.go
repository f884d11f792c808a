package metadata

import (
	"cmp"
	"iter"
	"maps"
	"slices"
)

// Kind is what beside topics has settings.
type Kind string

// The kinds of resources. They are part of the keys of records.
const (
	Broker        Kind = "broker"         // named by the broker's id, or "" for all brokers
	Group         Kind = "group"          // named by the group's id
	ClientMetrics Kind = "client-metrics" // named by the subscription
)

// Resource is something with settings that is not a topic.
type Resource struct {
	Kind Kind
	Name string
}

// Image is one state of the metadata. It never changes, so any number of readers may
// hold it without a lock.
type Image struct {
	sorted     []*Topic // by name
	ids        map[TopicID]*Topic
	collisions map[string]string // collision key to the name that has it
	configs    map[Resource]map[string]string
	features   map[string]int16
	nextID     int64             // the first producer id not yet given away
	unknown    map[string][]byte // records of kinds and versions that came later
}

// NewImage is the state of a new cluster.
func NewImage() *Image {
	return &Image{
		ids: map[TopicID]*Topic{}, collisions: map[string]string{}, configs: map[Resource]map[string]string{},
		features: map[string]int16{}, unknown: map[string][]byte{},
	}
}

// clone copies the parts that a Draft changes in place.
func (i *Image) clone() *Image {
	return &Image{
		sorted: slices.Clone(i.sorted), ids: maps.Clone(i.ids), collisions: maps.Clone(i.collisions),
		configs: maps.Clone(i.configs), features: maps.Clone(i.features), nextID: i.nextID, unknown: maps.Clone(i.unknown),
	}
}

// Topics iterates all topics by name.
func (i *Image) Topics() iter.Seq[*Topic] { return slices.Values(i.sorted) }

// TopicsFrom iterates the topics by name from the first that is not below name.
func (i *Image) TopicsFrom(name string) iter.Seq[*Topic] {
	at, _ := i.search(name)
	return slices.Values(i.sorted[at:])
}

// TopicCount is the number of topics.
func (i *Image) TopicCount() int { return len(i.sorted) }

// TopicByName finds a topic, nil when there is none.
func (i *Image) TopicByName(name string) *Topic {
	if at, ok := i.search(name); ok {
		return i.sorted[at]
	}
	return nil
}

// TopicByID finds a topic, nil when there is none.
func (i *Image) TopicByID(id TopicID) *Topic { return i.ids[id] }

func (i *Image) search(name string) (at int, found bool) {
	return slices.BinarySearchFunc(i.sorted, name, func(t *Topic, name string) int { return cmp.Compare(t.Name, name) })
}

// Config is what was set for a resource, empty or nil for one that is as it was. Not to
// be changed.
func (i *Image) Config(r Resource) map[string]string { return i.configs[r] }

// Configured are the names of the resources of a kind that have settings, sorted.
func (i *Image) Configured(kind Kind) []string {
	var names []string
	for r := range i.configs {
		if r.Kind == kind {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Features are the finalized levels of features. Not to be changed.
func (i *Image) Features() map[string]int16 { return i.features }

// NextProducerID is the first producer id that was never given away.
func (i *Image) NextProducerID() int64 { return i.nextID }
