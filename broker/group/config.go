package group

import "time"

// Config holds the broker settings that decide about groups, by Kafka's names.
type Config struct {
	// InitialRebalanceDelay is how long an empty group waits for more members after its
	// first (group.initial.rebalance.delay.ms).
	InitialRebalanceDelay time.Duration
	// MinSessionTimeout and MaxSessionTimeout bound what members may ask for
	// (group.min.session.timeout.ms, group.max.session.timeout.ms).
	MinSessionTimeout, MaxSessionTimeout time.Duration
	// MaxSize is how many members a group may have (group.max.size).
	MaxSize int
	// NewMemberJoinTimeout is how long the JoinGroup of a member that has not been in a
	// generation yet may stay parked before the member is taken for gone. Kafka has no
	// setting for it.
	NewMemberJoinTimeout time.Duration
	// OffsetMetadataMaxBytes is how long the metadata of a commit may be, in UTF-16 units
	// like Java's strings (offset.metadata.max.bytes).
	OffsetMetadataMaxBytes int
	// OffsetsRetention is how long offsets outlive their group's last member, or their
	// commit where there are no members (offsets.retention.minutes).
	OffsetsRetention time.Duration
}

// DefaultConfig is Kafka's.
func DefaultConfig() Config {
	return Config{
		InitialRebalanceDelay:  3 * time.Second,
		MinSessionTimeout:      6 * time.Second,
		MaxSessionTimeout:      30 * time.Minute,
		MaxSize:                1<<31 - 1,
		NewMemberJoinTimeout:   5 * time.Minute,
		OffsetMetadataMaxBytes: 4096,
		OffsetsRetention:       7 * 24 * time.Hour,
	}
}
