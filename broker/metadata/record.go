package metadata

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
)

// Record is one change: the whole new state of what its key names, or a tombstone when
// the value is nil. So the log may be compacted by key.
type Record struct{ Key, Value []byte }

// The keys, by what they name.
const (
	topicPrefix    = "topic/" // and the topic's id
	groupPrefix    = "group/" // and the group's id
	brokerKey      = "broker"
	producerIDsKey = "producer-ids"
)

// recordVersion is the version of every value.
const recordVersion = 1

// ErrBadRecord marks a record that this version does not understand.
var ErrBadRecord = errors.New("metadata record not understood")

type topicValue struct {
	Version int `json:"v"`
	*Topic
}

type configValue struct {
	Version int               `json:"v"`
	Config  map[string]string `json:"config"`
}

type producerIDsValue struct {
	Version int   `json:"v"`
	Next    int64 `json:"next"`
}

func put(key string, value any) Record {
	b, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("metadata record %s: %v", key, err)) // maps and strings always marshal
	}
	return Record{Key: []byte(key), Value: b}
}

func putTopic(t *Topic) Record {
	return put(topicPrefix+t.ID.String(), topicValue{Version: recordVersion, Topic: t})
}

// Draft is an image under change.
type Draft struct{ image *Image }

// NewDraft begins with a copy of image.
func NewDraft(image *Image) *Draft {
	return &Draft{&Image{
		topics: maps.Clone(image.topics), names: maps.Clone(image.names), collisions: maps.Clone(image.collisions),
		broker: maps.Clone(image.broker), groups: maps.Clone(image.groups), nextID: image.nextID,
	}}
}

// Image ends the draft and returns what it has become.
func (d *Draft) Image() *Image {
	image := d.image
	d.image = nil
	return image
}

// Apply applies one record. An error wraps ErrBadRecord and leaves the draft as it was.
func (d *Draft) Apply(key, value []byte) error {
	name := string(key)
	if id, ok := strings.CutPrefix(name, topicPrefix); ok {
		return d.applyTopic(id, value)
	}
	if group, ok := strings.CutPrefix(name, groupPrefix); ok {
		return d.applyConfig(name, value, func(config map[string]string) {
			if len(config) == 0 {
				delete(d.image.groups, group)
			} else {
				d.image.groups[group] = config
			}
		})
	}
	switch name {
	case brokerKey:
		return d.applyConfig(name, value, func(config map[string]string) { d.image.broker = config })
	case producerIDsKey:
		v := producerIDsValue{}
		if err := decode(name, value, &v, &v.Version); err != nil {
			return err
		}
		d.image.nextID = v.Next
		return nil
	}
	return fmt.Errorf("%w: key %q", ErrBadRecord, name)
}

func (d *Draft) applyTopic(idText string, value []byte) error {
	id, err := ParseTopicID(idText)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadRecord, err)
	}
	v := topicValue{Topic: &Topic{}}
	if value != nil {
		if err := decode(idText, value, &v, &v.Version); err != nil {
			return err
		}
	}
	if old := d.image.topics[id]; old != nil {
		delete(d.image.topics, id)
		delete(d.image.names, old.Name)
		delete(d.image.collisions, collisionKey(old.Name))
	}
	if value != nil {
		d.image.topics[id] = v.Topic
		d.image.names[v.Name] = v.Topic
		d.image.collisions[collisionKey(v.Name)] = v.Name
	}
	return nil
}

func (d *Draft) applyConfig(key string, value []byte, set func(map[string]string)) error {
	v := configValue{}
	if value != nil {
		if err := decode(key, value, &v, &v.Version); err != nil {
			return err
		}
	}
	if v.Config == nil {
		v.Config = map[string]string{}
	}
	set(v.Config)
	return nil
}

func decode(key string, value []byte, v any, version *int) error {
	if err := json.Unmarshal(value, v); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBadRecord, key, err)
	}
	if *version != recordVersion {
		return fmt.Errorf("%w: %s has version %d", ErrBadRecord, key, *version)
	}
	return nil
}
