package group

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkCommit is one OffsetCommit of a member, with its records.
func BenchmarkCommit(b *testing.B) {
	for _, partitions := range []int{1, 100} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			s := NewState(DefaultConfig())
			req := &CommitRequest{Identity: Identity{Group: "g", Generation: -1}, RetentionMs: -1}
			for p := range partitions {
				req.Offsets = append(req.Offsets, CommitOffset{
					TopicPartition: TopicPartition{Topic: "topic", Partition: int32(p)}, Offset: 5})
			}
			var out Output
			now := time.UnixMilli(0)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Commit(now, req, &out); err != nil {
					b.Fatal(err)
				}
				out.Reset()
			}
		})
	}
}

// BenchmarkHeartbeat is one of many members, which moves its deadline.
func BenchmarkHeartbeat(b *testing.B) {
	for _, members := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			s, now := stable(members)
			req := &HeartbeatRequest{Group: "g", Generation: 1}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				req.MemberID = s.groups["g"].classic.members[i%members].id
				now = now.Add(time.Millisecond)
				if err := s.Heartbeat(now, req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRebalance is a whole rebalance: all members join, the leader assigns, all ask
// for their assignment.
func BenchmarkRebalance(b *testing.B) {
	for _, members := range []int{10, 1000} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			s, now := stable(members)
			b.ReportAllocs()
			for b.Loop() {
				rebalanceAll(s, now)
			}
		})
	}
}

// stable is a State with a stable group of that many members, in its first generation.
func stable(members int) (*State, time.Time) {
	config := DefaultConfig()
	config.InitialRebalanceDelay = 0
	s := NewState(config)
	now := time.UnixMilli(0)
	s.Loaded(now, &Output{})
	var out Output
	for i := range members {
		s.Join(now, Ticket(i+1), &JoinRequest{
			Group: "g", NewMemberID: fmt.Sprintf("m-%d", i), SessionTimeout: 10 * time.Minute, RebalanceTimeout: time.Minute,
			ProtocolType: ConsumerProtocolType, Protocols: []Protocol{{Name: "range", Metadata: subscriptionTo("t")}},
		}, &out)
	}
	s.Tick(now, &out)
	syncAll(s, now)
	return s, now
}

func rebalanceAll(s *State, now time.Time) {
	var out Output
	c := s.groups["g"].classic
	for i := range c.members { // the leader is the first
		m := c.members[i]
		s.Join(now, Ticket(i+1), &JoinRequest{
			Group: "g", MemberID: m.id, SessionTimeout: 10 * time.Minute, RebalanceTimeout: time.Minute,
			ProtocolType: ConsumerProtocolType, Protocols: m.protocols,
		}, &out)
	}
	syncAll(s, now)
}

func syncAll(s *State, now time.Time) {
	var out Output
	c := s.groups["g"].classic
	ids := make([]string, 0, len(c.members))
	for _, m := range c.members {
		ids = append(ids, m.id)
	}
	for i, id := range ids {
		s.Sync(now, Ticket(i+1), &SyncRequest{Group: "g", MemberID: id, Generation: c.generation}, &out)
	}
}
