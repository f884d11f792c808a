package client

import (
	"fmt"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kgo"
)

// GroupReaderHooks are called when something happens inside a [GroupReader], for metrics and
// logs. Any of them may be nil. They hold the GroupReader up while they run, and must not
// call Close.
type GroupReaderHooks struct {
	// Assigned: a generation of the group has begun, and these ranges are all that the member
	// holds in it. In a cooperative group some of them may be those it held before.
	Assigned func(generation int32, ranges []AssignedSlots)
	// Revoked: the handlers of these ranges have returned and their commits are answered, or
	// too late for that. Only now does the member give them up. A range whose bounds change
	// is among them too.
	Revoked func(ranges []AssignedSlots)
	// Failed: something went wrong that no caller waits for. The GroupReader goes on.
	Failed func(err error)
}

// memberConfig is what a Member or GroupReader is told beyond its Readers.
type memberConfig struct {
	given      bool // by any option
	kafka      []kgo.Opt
	hooks      GroupReaderHooks
	maxRecords int  // of a call of the handler
	handles    bool // an option of the handler is given
}

func memberOpt(set func(*memberConfig)) ReaderOpt {
	return readerOpt(func(cfg *readerConfig) {
		cfg.member.given = true
		set(&cfg.member)
	})
}

// MemberOpts are options of the kgo client with which a [GroupReader] or [Member] is a member
// of its group, such as kgo.SessionTimeout, kgo.RebalanceTimeout or kgo.InstanceID, beyond those of
// [KafkaOpts].
func MemberOpts(opts ...kgo.Opt) ReaderOpt {
	return memberOpt(func(cfg *memberConfig) { cfg.kafka = append(cfg.kafka, opts...) })
}

// GroupHooks tells what happens inside a [GroupReader].
func GroupHooks(h GroupReaderHooks) ReaderOpt {
	return memberOpt(func(cfg *memberConfig) { cfg.hooks, cfg.handles = h, true })
}

// HandleAtMost bounds the records that one call of the handler of a [GroupReader] gets. A
// range is given up only between two calls. The default is 500.
func HandleAtMost(records int) ReaderOpt {
	return memberOpt(func(cfg *memberConfig) { cfg.maxRecords, cfg.handles = records, true })
}

// groupReaderConfig checks the options of a GroupReader.
func groupReaderConfig(opts []ReaderOpt) (readerConfig, error) {
	cfg, err := memberReaderConfig(append([]ReaderOpt{HandleAtMost(500)}, opts...))
	if err == nil && cfg.member.maxRecords <= 0 {
		err = fmt.Errorf("at most %d records to handle is not positive", cfg.member.maxRecords)
	}
	return cfg, err
}

// reading is the configuration of the Reader of ranges that have the same slots.
func (cfg *readerConfig) reading(as *membership, ranges []AssignedSlots) readerConfig {
	c := cfg.readingAs(as)
	for _, r := range ranges {
		c.partitions[r.Topic] = append(c.partitions[r.Topic], r.Partition)
	}
	if slots := ranges[0].Slots; slots != allSlots {
		c.filter = protocol.KeyFilter{Ranges: []SlotRange{slots}}
	}
	return c
}
