package broker

import (
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/broker/share"
)

// shareCluster is what share groups see of the broker: an image of its metadata, with the
// settings of that moment.
type shareCluster struct {
	image    *metadata.Image
	settings *brokerSettings
}

// Topic is part of share.Cluster. The broker's own topics are for nobody.
func (c shareCluster) Topic(name string) (share.Topic, bool) {
	t := c.image.TopicByName(name)
	if t == nil || t.Internal {
		return share.Topic{}, false
	}
	return share.Topic{ID: t.ID, Partitions: t.Partitions}, true
}

// Settings is part of share.Cluster.
func (c shareCluster) Settings(group string) share.Settings {
	v := c.settings.configs.Group(c.image.Config(metadata.Resource{Kind: metadata.Group, Name: group}))
	mode, err := share.ParseMode(v.Text("share.delivery.mode"))
	if err != nil {
		mode = share.RoundRobin // it is checked when it is set
	}
	return share.Settings{
		SessionTimeout:    millis(v, "share.session.timeout.ms"),
		HeartbeatInterval: millis(v, "share.heartbeat.interval.ms"),
		MaxSize:           int(c.settings.configs.Values().Int("group.share.max.size")),
		Mode:              mode,
		KeyRangeInitial:   int32(v.Int("share.key.range.initial")),
	}
}

// tellShareGroups lets share groups follow the metadata and the settings.
func (b *Broker) tellShareGroups(image *metadata.Image) {
	if b.groups != nil {
		b.groups.SetCluster(shareCluster{image, b.settings()})
	}
	if b.dealer != nil {
		b.dealer.SettingsChanged()
	}
}
