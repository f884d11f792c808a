package broker

import (
	"fmt"
	"strconv"

	"github.com/lacunamq/lacuna/broker/configs"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// resourceKey names something with settings in a request.
type resourceKey struct {
	kind kmsg.ConfigResourceType
	name string
}

// settable is something whose settings can be changed.
type settable struct {
	table *configs.Table
	// current is what an image says was set for it.
	current func(*metadata.Image) (map[string]string, error)
	// validate checks what is to be set instead.
	validate func(before, after map[string]string) error
	// records are those that set it.
	records func(image *metadata.Image, after map[string]string) ([]metadata.Record, error)
}

// settable finds what a request wants to change.
func (b *Broker) settable(key resourceKey) (*settable, error) {
	switch key.kind {
	case kmsg.ConfigResourceTypeTopic:
		return b.settableTopic(key.name)
	case kmsg.ConfigResourceTypeBroker:
		return b.settableBroker(key.name)
	case kmsg.ConfigResourceTypeGroupConfig:
		if key.name == "" {
			return nil, refusal(kerr.InvalidRequest, "Default group resources are not allowed.")
		}
		validate := func(_, after map[string]string) error { return b.settings().configs.ValidateGroup(after) }
		return settableResource(configs.Groups, metadata.Resource{Kind: metadata.Group, Name: key.name}, validate), nil
	case kmsg.ConfigResourceTypeClientMetrics:
		if key.name == "" {
			return nil, refusal(kerr.InvalidRequest, "Default client metrics resources are not allowed.")
		}
		validate := func(_, after map[string]string) error { return configs.ValidateClientMetrics(after) }
		return settableResource(configs.ClientMetrics, metadata.Resource{Kind: metadata.ClientMetrics, Name: key.name}, validate), nil
	case kmsg.ConfigResourceTypeBrokerLogger:
		return nil, refusal(kerr.InvalidRequest, "The level of the log is set when the broker is started.")
	}
	return nil, refusal(kerr.InvalidRequest, "Unknown resource type %d", key.kind)
}

func (b *Broker) settableTopic(name string) (*settable, error) {
	if name == "" {
		return nil, refusal(kerr.InvalidRequest, "Default topic resources are not allowed.")
	}
	if err := metadata.ValidateTopicName(name); err != nil {
		return nil, err
	}
	find := func(image *metadata.Image) (*metadata.Topic, error) {
		t := image.TopicByName(name)
		if t == nil {
			return nil, refusal(kerr.UnknownTopicOrPartition, "The topic '%s' does not exist.", name)
		}
		return t, nil
	}
	return &settable{
		table: configs.Topics,
		current: func(image *metadata.Image) (map[string]string, error) {
			t, err := find(image)
			if err != nil {
				return nil, err
			}
			return t.Config, nil
		},
		validate: func(before, after map[string]string) error {
			if t := b.controller.image.Load().TopicByName(name); t != nil && t.Internal && before["cleanup.policy"] != after["cleanup.policy"] {
				return refusal(kerr.InvalidConfig, "Topic '%s' is internal: other than compacted it would lose what it is there for.", name)
			}
			return b.settings().configs.ValidateTopic(after)
		},
		records: func(image *metadata.Image, after map[string]string) ([]metadata.Record, error) {
			t, err := find(image)
			if err != nil {
				return nil, err
			}
			return image.SetTopicConfig(t.ID, after)
		},
	}, nil
}

// settableBroker is this broker, or all brokers if the name is empty.
func (b *Broker) settableBroker(name string) (*settable, error) {
	if err := b.checkBrokerName(name, "Node id must be an integer, but it is: "); err != nil {
		return nil, err
	}
	validate := func(before, after map[string]string) error {
		return configs.ValidateBroker(before, after, name != "")
	}
	return settableResource(configs.Brokers, metadata.Resource{Kind: metadata.Broker, Name: name}, validate), nil
}

// checkBrokerName admits this broker's id, and nothing for all brokers.
func (b *Broker) checkBrokerName(name, notANumber string) error {
	if name == "" {
		return nil
	}
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return refusal(kerr.InvalidRequest, "%s%s", notANumber, name)
	}
	if int32(id) != b.nodeID {
		return refusal(kerr.InvalidRequest, "Unexpected broker id, expected %d or empty string, but received %s", b.nodeID, name)
	}
	return nil
}

func settableResource(table *configs.Table, r metadata.Resource, validate func(before, after map[string]string) error) *settable {
	return &settable{
		table:    table,
		current:  func(image *metadata.Image) (map[string]string, error) { return image.Config(r), nil },
		validate: validate,
		records: func(image *metadata.Image, after map[string]string) ([]metadata.Record, error) {
			return image.SetConfig(r, after), nil
		},
	}
}

// alterSettings changes the settings of a resource to what change makes of them, or only
// checks that it could.
func (b *Broker) alterSettings(key resourceKey, validateOnly bool, change func(*configs.Table, map[string]string) (map[string]string, error)) error {
	target, err := b.settable(key)
	if err != nil {
		return err
	}
	decide := func(image *metadata.Image) ([]metadata.Record, error) {
		before, err := target.current(image)
		if err != nil {
			return nil, err
		}
		after, err := change(target.table, before)
		if err == nil {
			err = target.validate(before, after)
		}
		if err != nil {
			return nil, err
		}
		return target.records(image, after)
	}
	if validateOnly {
		_, err := decide(b.controller.image.Load())
		return err
	}
	return b.controller.do(decide)
}

// onceEach refuses resources that are named more than once.
type onceEach map[resourceKey]int

func (o onceEach) check(key resourceKey) error {
	if o[key] > 1 {
		return refusal(kerr.InvalidRequest, "Each resource must appear at most once.")
	}
	return nil
}

// derivedSettings are the broker's settings that follow from how it was started.
func (b *Broker) derivedSettings() map[string]string {
	var listen, advertise string
	for i, l := range b.listeners.all {
		if i > 0 {
			listen, advertise = listen+",", advertise+","
		}
		listen += "PLAINTEXT://" + l.ln.Addr().String()
		advertise += fmt.Sprintf("PLAINTEXT://%s:%d", l.host, l.port)
	}
	return map[string]string{
		"listeners": listen, "advertised.listeners": advertise,
		"broker.id": strconv.Itoa(int(b.nodeID)), "log.dirs": b.dir.path, "log.dir": b.dir.path,
	}
}
