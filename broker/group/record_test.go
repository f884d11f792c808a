package group

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	require.NoError(t, err)
	return b
}

// TestKafkaRecords holds that records are byte for byte those that Apache Kafka 4.4.0
// wrote into __consumer_offsets.
func TestKafkaRecords(t *testing.T) {
	topicID := [16]byte(unhex(t, "30aeb972ce8a4d0dbbbeb5a8932ae73d"))
	subscription := unhex(t, "0003 00000001 0001 74 ffffffff 00000000 ffffffff ffff")
	assignment := unhex(t, "0000 00000001 0001 74 00000004 00000000 00000001 00000002 00000003 ffffffff")
	for name, test := range map[string]struct {
		record     Record
		key, value string
	}{
		"offset": {
			offsetRecord("simple", TopicPartition{"t", 1}, &Committed{
				Offset: -7, LeaderEpoch: 2, CommitMs: 0x1a228750489, ExpireMs: -1, TopicID: topicID}),
			"0001 0006 73696d706c65 0001 74 00000001",
			"0004 fffffffffffffff9 00000002 01 000001a228750489 01 00 10 30aeb972ce8a4d0dbbbeb5a8932ae73d",
		},
		"offset removed": {
			offsetRecord("simple", TopicPartition{"t", 0}, nil), "0001 0006 73696d706c65 0001 74 00000000", "",
		},
		"new group": {
			groupRecord("g1", &groupValue{sinceMs: 0x1a22875010d}), "0002 0002 6731",
			"0003 0000 00000000 ffff ffff 000001a22875010d 00000000",
		},
		"stable group": {
			groupRecord("g1", &groupValue{
				protocolType: "consumer", protocol: "range", leader: "inst-1", generation: 1, sinceMs: 0x1a22875018f,
				members: []memberValue{{
					id: "inst-1", instanceID: "inst", clientID: "cid", clientHost: "/127.0.0.1",
					rebalanceTimeoutMs: 7000, sessionTimeoutMs: 6000, subscription: subscription, assignment: assignment,
				}},
			}), "0002 0002 6731",
			`0003 0008 636f6e73756d6572 00000001 0005 72616e6765 0006 696e73742d31 000001a22875018f
			00000001 0006 696e73742d31 0004 696e7374 0003 636964 000a 2f3132372e302e302e31 00001b58 00001770
			00000017 0003 00000001 0001 74 ffffffff 00000000 ffffffff ffff
			00000021 0000 00000001 0001 74 00000004 00000000 00000001 00000002 00000003 ffffffff`,
		},
		"group removed": {groupRecord("simple", nil), "0002 0006 73696d706c65", ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, unhex(t, test.key), test.record.Key)
			var value []byte
			if test.value != "" {
				value = unhex(t, test.value)
			}
			require.Equal(t, value, test.record.Value)
			back, err := DecodeRecord(test.record.Key, test.record.Value)
			require.NoError(t, err)
			if test.record.group != nil && test.record.group.value != nil && test.record.group.value.members == nil {
				test.record.group.value.members = []memberValue{}
			}
			require.Equal(t, test.record, back)
		})
	}
}

// TestOlderRecords reads what older brokers wrote.
func TestOlderRecords(t *testing.T) {
	offsetKey := unhex(t, "0000 0001 67 0001 74 00000000")
	for name, test := range map[string]struct {
		value string
		want  Committed
	}{
		"version 0":                         {"0000 0000000000000005 0001 6d 0000000000000064", Committed{Offset: 5, Metadata: "m", CommitMs: 100, LeaderEpoch: -1, ExpireMs: -1}},
		"version 1, which names its expiry": {"0001 0000000000000005 0001 6d 0000000000000064 00000000000000c8", Committed{Offset: 5, Metadata: "m", CommitMs: 100, LeaderEpoch: -1, ExpireMs: 200}},
		"version 2":                         {"0002 0000000000000005 0001 6d 0000000000000064", Committed{Offset: 5, Metadata: "m", CommitMs: 100, LeaderEpoch: -1, ExpireMs: -1}},
		"version 3":                         {"0003 0000000000000005 00000007 0001 6d 0000000000000064", Committed{Offset: 5, Metadata: "m", CommitMs: 100, LeaderEpoch: 7, ExpireMs: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := DecodeRecord(offsetKey, unhex(t, test.value))
			require.NoError(t, err)
			require.Equal(t, &test.want, r.offset.value)
		})
	}
	group, err := DecodeRecord(unhex(t, "0002 0001 67"), unhex(t,
		"0000 0008 636f6e73756d6572 00000001 0005 72616e6765 0001 6d 00000001 0001 6d 0001 63 0001 68 00001770 00000000 00000000"))
	require.NoError(t, err)
	require.EqualValues(t, -1, group.group.value.sinceMs)
	require.EqualValues(t, 6000, group.group.value.members[0].rebalanceTimeoutMs, "the session timeout stands for it")
}

// TestForeignRecords holds that records of other kinds of groups are left alone.
func TestForeignRecords(t *testing.T) {
	r, err := DecodeRecord(unhex(t, "0003 0001 67"), unhex(t, "0000"))
	require.NoError(t, err)
	require.False(t, r.Known())
	s := NewState(DefaultConfig())
	s.Apply(&r)
	require.Zero(t, s.Len())
}

func FuzzDecodeRecord(f *testing.F) {
	for _, r := range []Record{
		offsetRecord("g", TopicPartition{"t", 1}, &Committed{Offset: 5, Metadata: "m", ExpireMs: -1}),
		offsetRecord("g", TopicPartition{"t", 1}, &Committed{Offset: 5, Metadata: "m", ExpireMs: 7}),
		groupRecord("g", &groupValue{protocolType: "consumer", protocol: "range", members: []memberValue{{id: "m"}}}),
		groupRecord("g", nil),
	} {
		f.Add(r.Key, r.Value, r.Value == nil)
	}
	f.Fuzz(func(t *testing.T, key, value []byte, tombstone bool) {
		if tombstone {
			value = nil
		}
		r, err := DecodeRecord(key, value)
		if err != nil {
			require.ErrorIs(t, err, ErrBadRecord)
			return
		}
		s := NewState(DefaultConfig())
		s.Apply(&r)
		again := r
		switch {
		case r.offset != nil:
			again = offsetRecord(r.offset.group, r.offset.tp, r.offset.value)
		case r.group != nil:
			again = groupRecord(r.group.group, r.group.value)
		}
		_, err = DecodeRecord(again.Key, again.Value)
		require.NoError(t, err)
	})
}

func FuzzSubscription(f *testing.F) {
	f.Add(subscriptionTo("a", "b"))
	f.Add(unhexMust("0003 00000001 0001 74 ffffffff 00000000 ffffffff ffff"))
	f.Add(unhexMust("0000 7fffffff 0001 74"))
	f.Fuzz(func(t *testing.T, metadata []byte) {
		topics := make(map[string]struct{})
		if subscription(metadata, topics) {
			require.LessOrEqual(t, len(topics), len(metadata)/2)
		}
	})
}

func unhexMust(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

func TestSubscription(t *testing.T) {
	topics := make(map[string]struct{})
	require.True(t, subscription(subscriptionTo("a", "b"), topics))
	require.Equal(t, map[string]struct{}{"a": {}, "b": {}}, topics)
	for n := range len(subscriptionTo("a", "b")) {
		require.False(t, subscription(subscriptionTo("a", "b")[:n], topics), "cut after %d bytes", n)
	}
}

// A member that was in a generation of another protocol has in the log the one of the latest
// generation, also where it says nothing in it.
func TestAMemberHasTheProtocolOfTheLatestGeneration(t *testing.T) {
	s := NewState(DefaultConfig())
	for generation, protocol := range []string{"sticky", "range"} {
		logged := groupRecord("g", &groupValue{
			protocolType: "consumer", protocol: protocol, leader: "m", generation: int32(generation),
			members: []memberValue{{id: "m", subscription: []byte{}}},
		})
		r, err := DecodeRecord(logged.Key, logged.Value)
		require.NoError(t, err)
		s.Apply(&r)
		require.NoError(t, s.CheckInvariants())
		c := s.groups["g"].classic
		require.True(t, c.supports("consumer", []Protocol{{Name: protocol}}))
		d, _ := s.Describe("g")
		require.Equal(t, []byte{}, d.Members[0].Metadata)
	}
}
