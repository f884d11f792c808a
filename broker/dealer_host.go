package broker

import (
	"time"

	"github.com/lacunamq/lacuna/broker/configs"
	"github.com/lacunamq/lacuna/broker/dealer"
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/cooperative"
)

// openDealer opens the dealing of records to share groups. The ledgers must be there.
func (b *Broker) openDealer() {
	b.dealer = dealer.Open(dealer.Options{
		Ledgers: b.ledgers, Groups: b.groups,
		Partitions: func(topic [16]byte) int32 {
			t, refused := b.topics.find("", topic, true)
			if refused != nil {
				return 0
			}
			return int32(len(t.partitions()))
		},
		Log: func(tp extension.TopicPartition) (dealer.Log, error) {
			log, err := dataLogs{b}.open(tp)
			if err != nil {
				return nil, err
			}
			return log, nil
		},
		Settings:    b.dealerSettings,
		DeadLetters: deadLetters{b},
		Decode:      b.decoding,
		Filters:     b.filters,
		Logger:      b.log,
	})
	b.groups.WatchShares(b.dealer)
}

// groupValues are the settings of a group.
func (b *Broker) groupValues(group string) configs.Values {
	return b.settings().configs.Group(b.controller.image.Load().Config(metadata.Resource{Kind: metadata.Group, Name: group}))
}

// dealerSettings are those settings of a group that are about dealing.
func (b *Broker) dealerSettings(group string) dealer.Settings {
	v := b.groupValues(group)
	return dealer.Settings{
		Limits: cooperative.Limits{
			LockMs:          v.Int("share.record.lock.duration.ms"),
			Deliveries:      int(v.Int("share.delivery.count.limit")),
			Acquired:        int(v.Int("share.partition.max.record.locks")),
			BackoffMs:       v.Int("share.retry.backoff.ms"),
			BackoffMaxMs:    v.Int("share.retry.backoff.max.ms"),
			WaitingMaxBytes: v.Int("share.key.waiting.max.bytes"),
			DeadLetters:     v.Text("errors.deadletterqueue.topic.name") != "",
		},
		ReadCommitted: v.Text("share.isolation.level") == "read_committed",
		Renew:         v.Bool("share.renew.acknowledge.enable"),
		Origin:        origin(v.Text("share.auto.offset.reset")),
	}
}

// origin is where a group begins to read (share.auto.offset.reset): latest, earliest, or
// by_duration:PnDTnHnMn.nS.
func origin(reset string) func(dealer.Log) (int64, error) {
	return func(log dealer.Log) (int64, error) {
		bounds := log.Bounds()
		switch reset {
		case "earliest":
			return bounds.Start, nil
		case "latest":
			return bounds.HighWatermark, nil
		}
		ago, err := configs.ResetDuration(reset)
		if err != nil {
			return 0, err
		}
		found, ok, err := log.OffsetForTimestamp(time.Now().Add(-ago).UnixMilli())
		if err != nil || !ok {
			return bounds.HighWatermark, err
		}
		return found.Offset, nil
	}
}
