package metadata

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Draft is an image under change.
type Draft struct{ image *Image }

// NewDraft begins with a copy of image.
func NewDraft(image *Image) *Draft { return &Draft{image.clone()} }

// Image ends the draft and returns what it has become.
func (d *Draft) Image() *Image {
	image := d.image
	d.image = nil
	return image
}

// Apply applies one record. An error wraps ErrBadRecord and leaves the draft as it was.
// A record of an unknown kind or a later version is kept for Snapshot and changes
// nothing else.
func (d *Draft) Apply(key, value []byte) error {
	name := string(key)
	delete(d.image.unknown, name)
	err := d.apply(name, value)
	if errors.Is(err, errLater) {
		if value != nil {
			d.image.unknown[name] = slices.Clone(value)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("metadata record %q: %w", name, err)
	}
	return nil
}

func (d *Draft) apply(key string, value []byte) error {
	if id, ok := strings.CutPrefix(key, topicPrefix); ok {
		return d.applyTopic(id, value)
	}
	if name, ok := strings.CutPrefix(key, featurePrefix); ok {
		return d.applyFeature(name, value)
	}
	if r, ok := resourceOf(key); ok {
		return d.applyConfig(r, value)
	}
	if key == producerIDsKey {
		return d.applyProducerIDs(value)
	}
	return errLater
}

func (d *Draft) applyTopic(idText string, value []byte) error {
	id, err := ParseTopicID(idText)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadRecord, err)
	}
	old := d.image.ids[id]
	if value == nil {
		d.remove(old)
		return nil
	}
	v := topicValue{Topic: &Topic{}}
	if err := decode(value, &v); err != nil {
		return err
	}
	t := v.Topic
	if ValidateTopicName(t.Name) != nil || t.ID != id || t.Partitions < 1 {
		return fmt.Errorf("%w: topic %q with id %s and %d partitions", ErrBadRecord, t.Name, t.ID, t.Partitions)
	}
	if other := d.image.TopicByName(t.Name); other != nil && other.ID != id {
		return fmt.Errorf("%w: topic %s has the id %s already", ErrBadRecord, t.Name, other.ID)
	}
	d.remove(old)
	d.insert(t)
	return nil
}

func (d *Draft) insert(t *Topic) {
	at, _ := d.image.search(t.Name)
	d.image.sorted = slices.Insert(d.image.sorted, at, t)
	d.image.ids[t.ID] = t
	d.image.collisions[collisionKey(t.Name)] = t.Name
}

// remove takes a topic out, if it is one.
func (d *Draft) remove(t *Topic) {
	if t == nil {
		return
	}
	at, _ := d.image.search(t.Name)
	d.image.sorted = slices.Delete(d.image.sorted, at, at+1)
	delete(d.image.ids, t.ID)
	delete(d.image.collisions, collisionKey(t.Name))
}

func (d *Draft) applyConfig(r Resource, value []byte) error {
	if value == nil {
		delete(d.image.configs, r)
		return nil
	}
	var v configValue
	if err := decode(value, &v); err != nil {
		return err
	}
	if d.image.configs[r] = v.Config; len(v.Config) == 0 {
		delete(d.image.configs, r)
	}
	return nil
}

func (d *Draft) applyFeature(name string, value []byte) error {
	if value == nil {
		delete(d.image.features, name)
		return nil
	}
	var v featureValue
	if err := decode(value, &v); err != nil {
		return err
	}
	d.image.features[name] = v.Level
	return nil
}

func (d *Draft) applyProducerIDs(value []byte) error {
	if value == nil {
		return fmt.Errorf("%w: the producer ids cannot be removed", ErrBadRecord)
	}
	var v producerIDsValue
	if err := decode(value, &v); err != nil {
		return err
	}
	if v.Next < d.image.nextID {
		return fmt.Errorf("%w: the next producer id falls from %d to %d", ErrBadRecord, d.image.nextID, v.Next)
	}
	d.image.nextID = v.Next
	return nil
}
