package group

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/broker/share"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// shares is a State with share groups, its log, and a cluster around it.
type shares struct {
	t        *testing.T
	state    *State
	now      time.Time
	log      []Record
	topics   map[string]share.Topic
	settings share.Settings
	changes  []ShareChange // of the last operation
}

func newShares(t *testing.T) *shares {
	s := &shares{t: t, now: time.UnixMilli(0), topics: map[string]share.Topic{"t": {ID: [16]byte{1}, Partitions: 2}}}
	s.settings = noCluster{}.Settings("")
	s.load(false)
	return s
}

func (s *shares) Topic(name string) (share.Topic, bool) {
	t, ok := s.topics[name]
	return t, ok
}

func (s *shares) Settings(string) share.Settings { return s.settings }

// load builds the state from the log: in its order, or as a view has it, which keeps the
// last record of each key, by key.
func (s *shares) load(asView bool) {
	var out Output
	s.state = NewState(DefaultConfig())
	s.state.SetCluster(s.now, s, &out)
	records := s.log
	if asView {
		last := make(map[string]Record)
		for _, r := range s.log {
			last[string(r.Key)] = r
		}
		records = nil
		for _, r := range last {
			if r.Value != nil {
				records = append(records, r)
			}
		}
		slices.SortFunc(records, func(a, b Record) int { return bytes.Compare(a.Key, b.Key) })
	}
	for _, r := range records {
		decoded, err := DecodeRecord(r.Key, r.Value)
		require.NoError(s.t, err)
		s.state.Apply(&decoded)
	}
	s.state.Loaded(s.now, &out)
	s.settle(&out)
}

func (s *shares) settle(out *Output) {
	s.t.Helper()
	s.log = append(s.log, out.Records...)
	s.changes = out.Shares
	require.NoError(s.t, s.state.CheckInvariants())
}

func (s *shares) do(f func(out *Output)) {
	s.t.Helper()
	var out Output
	f(&out)
	s.settle(&out)
}

func (s *shares) heartbeat(group, member string, epoch int32, topics ...string) (a share.Answer, err error) {
	s.t.Helper()
	s.do(func(out *Output) {
		a, err = s.state.ShareHeartbeat(s.now, &share.Heartbeat{Group: group, MemberID: member, Epoch: epoch, Topics: topics}, out)
	})
	return a, err
}

func (s *shares) join(group, member string) share.Answer {
	s.t.Helper()
	a, err := s.heartbeat(group, member, 0, "t")
	require.NoError(s.t, err)
	return a
}

func (s *shares) pass(d time.Duration) {
	s.t.Helper()
	s.now = s.now.Add(d)
	s.do(func(out *Output) { s.state.Tick(s.now, out) })
}

func (s *shares) put(group, topic string) {
	s.t.Helper()
	s.do(func(out *Output) {
		s.state.Put(s.now, group, []PutOffset{{CommitOffset: CommitOffset{TopicPartition: TopicPartition{Topic: topic}, Offset: 5}}}, out)
	})
}

func TestAnIDBelongsToOneKind(t *testing.T) {
	s := newShares(t)
	s.join("shared", "m")
	s.put("offsets", "t")

	_, err := s.heartbeat("offsets", "m", 0, "t")
	require.ErrorIs(t, err, kerr.GroupIDNotFound)
	require.EqualError(t, err, "Group offsets is not a share group.")
	_, err = s.heartbeat("nobody", "m", 1)
	require.ErrorIs(t, err, kerr.GroupIDNotFound)

	s.do(func(out *Output) {
		s.state.Join(s.now, 1, &JoinRequest{Group: "shared", SessionTimeout: 10 * time.Second, ProtocolType: "consumer", Protocols: []Protocol{{Name: "range"}}}, out)
		require.ErrorIs(t, out.Replies[0].Join.Err, kerr.InconsistentGroupProtocol)
	})
	require.ErrorIs(t, s.state.Heartbeat(s.now, &HeartbeatRequest{Group: "shared", MemberID: "m", Generation: 1}), kerr.UnknownMemberID)
	d, found := s.state.Describe("shared")
	require.False(t, found)
	require.Equal(t, Dead, d.State)
	_, err = s.state.DescribeShare("offsets")
	require.ErrorIs(t, err, kerr.GroupIDNotFound)

	// Plain clients may not commit; an operator may while there is no member.
	s.do(func(out *Output) {
		_, refused := s.state.Commit(s.now, &CommitRequest{Identity: Identity{Group: "shared", Generation: -1}}, out)
		require.ErrorIs(t, refused, ErrShareGroup)
	})
	require.ErrorIs(t, s.state.CheckCommit(&Identity{Group: "shared", Generation: -1, Operator: true}), kerr.NonEmptyGroup)
	_, refused := s.state.DeleteOffsets("shared", nil, &Output{})
	require.ErrorIs(t, refused, kerr.GroupIDNotFound)

	require.Equal(t, []Listed{{ID: "shared", Kind: Share, State: "Stable", ProtocolType: "share"}}, s.state.List(Filter{Kinds: []string{"SHARE"}}))
	require.Equal(t, []Listed{{ID: "offsets", Kind: Classic, State: "Empty"}}, s.state.List(Filter{States: []string{"empty"}}))
	require.False(t, s.state.Empty("shared"))
	_, err = s.heartbeat("shared", "m", -1)
	require.NoError(t, err)
	require.True(t, s.state.Empty("shared"))
	require.Nil(t, s.state.CheckCommit(&Identity{Group: "shared", Generation: -1, Operator: true}))
}

func TestARefusedJoinLeavesNothing(t *testing.T) {
	s := newShares(t)
	s.settings.MaxSize = 0
	_, err := s.heartbeat("g", "m", 0, "t")
	require.ErrorIs(t, err, kerr.GroupMaxSizeReached)
	require.Zero(t, s.state.Len())
	require.Empty(t, s.log)
}

func TestSilentMembersOfShareGroupsAreGone(t *testing.T) {
	s := newShares(t)
	s.join("g", "a")
	s.pass(20 * time.Second)
	b := s.join("g", "b")
	require.EqualValues(t, 3, b.Epoch)
	require.Equal(t, []string{"a", "b"}, s.changes[0].View.Members())

	s.pass(24 * time.Second)
	require.Empty(t, s.changes)
	s.pass(time.Second)
	require.Equal(t, []string{"a"}, s.changes[0].Gone)
	require.Equal(t, []string{"b"}, s.changes[0].View.Members())
	_, err := s.heartbeat("g", "a", 2)
	require.ErrorIs(t, err, kerr.UnknownMemberID)

	// Sessions begin anew with the broker, and one that is shortened counts from the next
	// heartbeat.
	s.load(false)
	s.pass(44 * time.Second)
	s.settings.SessionTimeout = time.Second
	_, err = s.heartbeat("g", "b", 3)
	require.NoError(t, err)
	s.pass(time.Second)
	require.Equal(t, []string{"b"}, s.changes[0].Gone)
	require.True(t, s.state.Empty("g"))
}

func TestAMemberThatComesBackAtOnceWasGone(t *testing.T) {
	s := newShares(t)
	s.join("g", "a")
	s.do(func(out *Output) {
		_, err := s.state.ShareHeartbeat(s.now, &share.Heartbeat{Group: "g", MemberID: "a", Epoch: -1}, out)
		require.NoError(t, err)
		_, err = s.state.ShareHeartbeat(s.now, &share.Heartbeat{Group: "g", MemberID: "a", Topics: []string{"t"}}, out)
		require.NoError(t, err)
	})
	require.Equal(t, []string{"a"}, s.changes[0].Gone)
	require.True(t, s.changes[1].View.Member("a"))
}

func TestWhatShareGroupsFetchFollowsTheCluster(t *testing.T) {
	s := newShares(t)
	s.join("g", "a")
	id := s.topics["t"].ID
	require.False(t, s.state.ShareView("g").MayFetch("a", id, 2))
	s.topics["t"] = share.Topic{ID: id, Partitions: 3}
	s.do(func(out *Output) { s.state.SetCluster(s.now, s, out) })
	require.Len(t, s.changes, 1)
	require.True(t, s.state.ShareView("g").MayFetch("a", id, 2), "at once, not with the next heartbeat")
	s.do(func(out *Output) { s.state.SetCluster(s.now, s, out) })
	require.Empty(t, s.changes, "nothing that concerns the group has changed")

	// What changed while the broker was down counts, too.
	s.topics["t"] = share.Topic{ID: id, Partitions: 4}
	s.load(false)
	require.True(t, s.changes[0].View.MayFetch("a", id, 3))
}

func TestShareGroupsAreLoadedInAnyOrder(t *testing.T) {
	s := newShares(t)
	s.settings.Mode = share.KeyRange
	for _, m := range []string{"a", "b", "c"} {
		s.join("g", m)
	}
	_, err := s.heartbeat("g", "b", -1)
	require.NoError(t, err)
	s.put("g", "t") // the ledger's stable offset; its key comes before those of the group
	n := len(s.log)
	before, err := s.state.DescribeShare("g")
	require.NoError(t, err)
	view := s.state.ShareView("g")
	for _, asView := range []bool{false, true} {
		s.load(asView)
		after, err := s.state.DescribeShare("g")
		require.NoError(t, err)
		require.Equal(t, before, after)
		require.Equal(t, view, s.state.ShareView("g"))
		require.Len(t, s.log, n, "nothing is left to be mended")
		require.Equal(t, []ShareChange{{Group: "g", View: view}}, clean(s.changes))
		c, ok := s.state.Committed("g", TopicPartition{Topic: "t"}, [16]byte{})
		require.True(t, ok)
		require.EqualValues(t, 5, c.Offset)
	}
}

func clean(changes []ShareChange) []ShareChange {
	list := slices.Clone(changes)
	for i := range list {
		if len(list[i].Gone) == 0 {
			list[i].Gone = nil
		}
	}
	return list
}

func TestShareGroupsStayUntilTheyAreDeleted(t *testing.T) {
	s := newShares(t)
	s.join("g", "a")
	require.ErrorIs(t, s.state.CheckDelete("g"), kerr.NonEmptyGroup)
	_, err := s.heartbeat("g", "a", -1)
	require.NoError(t, err)
	s.put("g", "t")
	s.put("g", "u")
	s.now = s.now.Add(1000 * time.Hour)
	s.do(func(out *Output) { s.state.Expire(s.now, nil, out) })
	require.Len(t, s.state.AllCommitted("g"), 2, "share groups do not expire, nor what they have done")

	s.do(func(out *Output) { require.NoError(t, s.state.DeleteShareOffsets("g", "t", out)) })
	require.Len(t, s.state.AllCommitted("g"), 1)
	s.do(func(out *Output) { require.Nil(t, s.state.DeleteGroup("g", out)) })
	require.Zero(t, s.state.Len())
	require.Equal(t, []ShareChange{{Group: "g"}}, s.changes)
	for _, asView := range []bool{false, true} {
		s.load(asView)
		require.Zero(t, s.state.Len())
	}
	// The id is free for another kind.
	s.put("g", "t")
	require.Equal(t, Classic, s.state.List(Filter{})[0].Kind)
}

func TestAnOperatorFoundsAShareGroup(t *testing.T) {
	s := newShares(t)
	s.do(func(out *Output) { require.NoError(t, s.state.FoundShare(s.now, "g", false, out)) })
	require.Empty(t, s.log, "there is nothing to set")
	s.do(func(out *Output) { require.NoError(t, s.state.FoundShare(s.now, "g", true, out)) })
	require.NotEmpty(t, s.log)
	n := len(s.log)
	s.do(func(out *Output) { require.NoError(t, s.state.FoundShare(s.now, "g", true, out)) })
	require.Len(t, s.log, n)
	s.load(false)
	require.NoError(t, s.state.CheckShareEmpty("g"))
	require.EqualValues(t, 2, s.join("g", "a").Epoch)
	s.do(func(out *Output) { require.ErrorIs(t, s.state.FoundShare(s.now, "g", true, out), kerr.NonEmptyGroup) })
	require.ErrorIs(t, s.state.CheckShareEmpty("g"), kerr.NonEmptyGroup)
	s.put("offsets", "t")
	s.do(func(out *Output) {
		require.ErrorIs(t, s.state.FoundShare(s.now, "offsets", true, out), kerr.GroupIDNotFound)
	})
	s.do(func(out *Output) { require.ErrorIs(t, s.state.FoundShare(s.now, "", true, out), kerr.InvalidGroupID) })
	require.ErrorIs(t, s.state.CheckShareEmpty("none"), kerr.GroupIDNotFound)
}
