package share

import (
	"fmt"
	"time"
)

// Cluster is what share groups see of the world around them, at one moment.
type Cluster interface {
	// Topic is the topic of that name now.
	Topic(name string) (Topic, bool)
	// Settings are those of a group.
	Settings(group string) Settings
}

// Topic is a topic as it is now.
type Topic struct {
	ID         [16]byte
	Partitions int32
}

// Settings are a group's settings, by Kafka's names.
type Settings struct {
	SessionTimeout    time.Duration // share.session.timeout.ms
	HeartbeatInterval time.Duration // share.heartbeat.interval.ms
	MaxSize           int           // group.share.max.size
	Mode              Mode          // share.delivery.mode
	// KeyRangeInitial is how many buckets a group begins with in the mode key-range. The
	// group remembers it (share.key.range.initial).
	KeyRangeInitial int32
}

// Mode is how records are dealt to the members of a group (share.delivery.mode).
type Mode int8

// The delivery modes, numbered as in records.
const (
	RoundRobin Mode = 0
	KeyOrdered Mode = 1
	KeyRange   Mode = 2
)

var modeNames = [...]string{"round-robin", "key-ordered", "key-range"}

// String is the mode as it is set.
func (m Mode) String() string {
	if m < 0 || int(m) >= len(modeNames) {
		return fmt.Sprintf("mode %d", int8(m))
	}
	return modeNames[m]
}

// ParseMode reads a mode as it is set.
func ParseMode(name string) (Mode, error) {
	for i, n := range modeNames {
		if n == name {
			return Mode(i), nil
		}
	}
	return RoundRobin, fmt.Errorf("no delivery mode %q", name)
}
