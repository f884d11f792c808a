package broker

import (
	"slices"

	"github.com/lacunamq/lacuna/broker/configs"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeConfigs (32), versions 1 to 4: the settings of topics, brokers, groups, client
// metrics and loggers, with where each value comes from.
//
// v1 added synonyms and sources, v3 types and documentation, v4 flexible versions.
func (b *Broker) describeConfigs(c *call, req *kmsg.DescribeConfigsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	image := b.controller.image.Load()
	for i := range req.Resources {
		r := &req.Resources[i]
		at := kmsg.NewDescribeConfigsResponseResource()
		at.ResourceType, at.ResourceName = r.ResourceType, r.ResourceName
		names := r.ConfigNames
		if len(names) == 0 {
			names = nil // all
		}
		described, err := b.describeSettings(image, resourceKey{r.ResourceType, r.ResourceName}, names)
		if err != nil {
			at.ErrorCode, at.ErrorMessage = b.errorAnswer(err)
		}
		if !c.take(len(described) * settingAnswerBytes) {
			return nil
		}
		for j := range described {
			at.Configs = append(at.Configs, describedConfig(&described[j], req))
		}
		resp.Resources = append(resp.Resources, at)
	}
	return resp
}

// settingAnswerBytes is what a setting takes in an answer, decoded and encoded, with its
// documentation and synonyms.
const settingAnswerBytes = 1000

// describeSettings describes the settings of a resource that are asked for, all if names
// is nil.
func (b *Broker) describeSettings(image *metadata.Image, key resourceKey, names []string) ([]configs.Entry, error) {
	settings := b.settings().configs
	switch key.kind {
	case kmsg.ConfigResourceTypeTopic:
		if err := metadata.ValidateTopicName(key.name); err != nil {
			return nil, err
		}
		t := image.TopicByName(key.name)
		if t == nil {
			return nil, kerr.UnknownTopicOrPartition
		}
		return settings.Topic(t.Config).Describe(names), nil
	case kmsg.ConfigResourceTypeBroker:
		if err := b.checkBrokerName(key.name, "Broker id must be an integer, but it is: "); err != nil {
			return nil, err
		}
		if key.name == "" {
			return settings.DescribeCluster(names), nil
		}
		return settings.WithDerived(b.derivedSettings()).Values().Describe(names), nil
	case kmsg.ConfigResourceTypeBrokerLogger:
		return b.describeLogger(key.name, names)
	case kmsg.ConfigResourceTypeGroupConfig:
		if key.name == "" {
			return nil, refusal(kerr.InvalidRequest, "Group name must not be empty")
		}
		return settings.Group(image.Config(metadata.Resource{Kind: metadata.Group, Name: key.name})).Describe(names), nil
	case kmsg.ConfigResourceTypeClientMetrics:
		if key.name == "" {
			return nil, refusal(kerr.InvalidRequest, "Client metrics subscription name must not be empty")
		}
		return configs.DescribeClientMetrics(image.Config(metadata.Resource{Kind: metadata.ClientMetrics, Name: key.name}), names), nil
	}
	return nil, refusal(kerr.InvalidRequest, "Unknown resource type %d", key.kind)
}

// rootLogger is the one logger that there is.
var rootLogger = &configs.Def{Name: "root", Doc: "The level of the broker's log. It is set when the broker is started."}

// describeLogger describes the level of the log.
func (b *Broker) describeLogger(name string, names []string) ([]configs.Entry, error) {
	if name == "" {
		return nil, refusal(kerr.InvalidRequest, "Broker id must not be empty")
	}
	if err := b.checkBrokerName(name, "Broker id must be an integer, but it is: "); err != nil {
		return nil, err
	}
	if names != nil && !slices.Contains(names, rootLogger.Name) {
		return nil, nil
	}
	level := b.log.Level().CapitalString()
	return []configs.Entry{{Def: rootLogger, Value: &level, Source: configs.SourceLogger, ReadOnly: true}}, nil
}

// describedConfig is a setting as the answer has it.
func describedConfig(e *configs.Entry, req *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.Value, c.ReadOnly = e.Def.Name, e.Value, e.ReadOnly
	c.Source, c.ConfigType = kmsg.ConfigSource(e.Source), kmsg.ConfigType(e.Def.Type)
	if req.IncludeSynonyms {
		for _, s := range e.Synonyms {
			synonym := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			synonym.Name, synonym.Value, synonym.Source = s.Name, &s.Value, kmsg.ConfigSource(s.Source)
			c.ConfigSynonyms = append(c.ConfigSynonyms, synonym)
		}
	}
	if req.IncludeDocumentation {
		doc := e.Def.Documentation()
		c.Documentation = &doc
	}
	return c
}

// newTopicConfig checks the settings that a topic is to be made with.
func (b *Broker) newTopicConfig(req []kmsg.CreateTopicsRequestTopicConfig) (map[string]string, error) {
	config := make(map[string]string, len(req))
	for _, c := range req {
		if c.Value == nil {
			return nil, refusal(kerr.InvalidConfig, "Null value not supported for topic configs: %s", c.Name)
		}
		config[c.Name] = *c.Value
	}
	return config, b.settings().configs.ValidateTopic(config)
}

// describeNewTopic lists the settings of a topic just made, as CreateTopics answers them.
func (b *Broker) describeNewTopic(t *metadata.Topic) []kmsg.CreateTopicsResponseTopicConfig {
	entries := b.settings().configs.Topic(t.Config).Describe(nil)
	list := make([]kmsg.CreateTopicsResponseTopicConfig, len(entries))
	for i, e := range entries {
		list[i] = kmsg.NewCreateTopicsResponseTopicConfig()
		list[i].Name, list[i].Value, list[i].ReadOnly, list[i].Source = e.Def.Name, e.Value, e.ReadOnly, int8(e.Source)
	}
	return list
}
