package metadata

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Record is one change: the whole new state of what its key names, or a tombstone when
// the value is nil. So the log may be compacted by key.
type Record struct{ Key, Value []byte }

// The keys, by what they name. A Resource has its kind and its name.
const (
	topicPrefix    = "topic/" // and the topic's id
	featurePrefix  = "feature/"
	producerIDsKey = "producer-ids"
)

func (r Resource) key() string { return string(r.Kind) + "/" + r.Name }

// recordVersion is the version of every value.
const recordVersion = 1

// header begins every value. The owner epoch tells a stale writer's records where
// several nodes write one journal; a single node has the epoch 0.
type header struct {
	Version    int   `json:"v"`
	OwnerEpoch int32 `json:"owner_epoch"`
}

func (h *header) stamp() { h.Version = recordVersion }

type topicValue struct {
	header
	*Topic
}

type configValue struct {
	header
	Config map[string]string `json:"config"`
}

type producerIDsValue struct {
	header
	Next int64 `json:"next"`
}

type featureValue struct {
	header
	Level int16 `json:"level"`
}

// put makes a record of one of the values above.
func put[V any, P interface {
	*V
	stamp()
}](key string, value V) Record {
	P(&value).stamp()
	b, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("metadata record %s: %v", key, err)) // maps and strings always marshal
	}
	return Record{Key: []byte(key), Value: b}
}

func putTopic(t *Topic) Record { return put(topicPrefix+t.ID.String(), topicValue{Topic: t}) }

// errLater is a value of a version that came after this binary.
var errLater = errors.New("later record version")

// decode reads a value into v, which has a header.
func decode(value []byte, v any) error {
	var h header
	if err := json.Unmarshal(value, &h); err != nil {
		return fmt.Errorf("%w: %w", ErrBadRecord, err)
	}
	if h.Version > recordVersion {
		return errLater
	}
	if h.Version < 1 {
		return fmt.Errorf("%w: version %d", ErrBadRecord, h.Version)
	}
	if err := json.Unmarshal(value, v); err != nil {
		return fmt.Errorf("%w: %w", ErrBadRecord, err)
	}
	return nil
}

// resourceOf is the resource that a key names.
func resourceOf(key string) (Resource, bool) {
	kind, name, ok := strings.Cut(key, "/")
	switch k := Kind(kind); k {
	case Broker, Group, ClientMetrics:
		return Resource{k, name}, ok
	}
	return Resource{}, false
}
