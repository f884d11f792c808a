package broker_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ledger is a group's view of a partition, at the level of the wire.
type ledger struct {
	*wire
	group, topic string
}

// commit sends one OffsetCommit with the extension's field, and returns the error and the
// state that is answered.
func (l ledger) commit(offset int64, o protocol.IndividualOffsets) (protocol.IndividualState, error) {
	l.t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = l.group, -1
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = offset
	p.UnknownTags.Set(protocol.ExtensionTag, o.AppendTo(nil))
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: l.topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
	l.send(l.frame(req, 9))
	resp := kmsg.OffsetCommitResponse{Version: 9}
	l.receive(&resp)
	at := &resp.Topics[0].Partitions[0]
	var state protocol.IndividualState
	at.UnknownTags.Each(func(_ uint32, field []byte) {
		var err error
		state, err = protocol.ParseIndividualState(field)
		require.NoError(l.t, err)
	})
	return state, kerr.ErrorForCode(at.ErrorCode)
}

func runs(r ...protocol.Run) protocol.IndividualOffsets {
	return protocol.IndividualOffsets{Commit: r, Origin: protocol.NoOrigin}
}

// gaps fetches the committed offset and the gaps.
func (l ledger) gaps() (committed int64, gaps protocol.IndividualGaps) {
	l.t.Helper()
	return l.gapsAsked(protocol.GapsRequest{})
}

func (l ledger) gapsAsked(ask protocol.GapsRequest) (committed int64, gaps protocol.IndividualGaps) {
	l.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = l.group
	g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: l.topic, Partitions: []int32{0}}}
	g.UnknownTags.Set(protocol.ExtensionTag, ask.AppendTo(nil))
	req.Groups = []kmsg.OffsetFetchRequestGroup{g}
	l.send(l.frame(req, 9))
	resp := kmsg.OffsetFetchResponse{Version: 9}
	l.receive(&resp)
	require.Zero(l.t, resp.Groups[0].ErrorCode)
	at := &resp.Groups[0].Topics[0].Partitions[0]
	at.UnknownTags.Each(func(_ uint32, field []byte) {
		var err error
		gaps, err = protocol.ParseIndividualGaps(field)
		require.NoError(l.t, err)
	})
	return at.Offset, gaps
}

// ledgerOf makes a topic with n records and the ledger of a group for it.
func ledgerOf(t *testing.T, b *broker.Broker, topic string, n int) ledger {
	w := dial(t, b)
	makeTopic(t, w, topic)
	for range n {
		w.send(w.frame(produceRequest(topic, -1, batch(t, "x")), 9))
		w.receive(&kmsg.ProduceResponse{Version: 9})
	}
	return ledger{w, "g", topic}
}

func TestIndividualCommitsLeaveGaps(t *testing.T) {
	l := ledgerOf(t, start(t, nil), "gaps", 10)
	committed, gaps := l.gaps()
	require.Equal(t, int64(-1), committed)
	require.Equal(t, int64(-1), gaps.MaxCommit)

	state, err := l.commit(-1, runs(protocol.Run{Start: 5, End: 6}))
	require.NoError(t, err)
	require.Equal(t, protocol.IndividualState{Stable: 0, MaxCommit: 6}, state)
	committed, gaps = l.gaps()
	require.Zero(t, committed)
	require.Equal(t, []protocol.Run{{Start: 0, End: 5}}, gaps.Gaps)

	state, err = l.commit(-1, runs(protocol.Run{Start: 0, End: 3}, protocol.Run{Start: 8, End: 9}))
	require.NoError(t, err)
	require.Equal(t, protocol.IndividualState{Stable: 3, MaxCommit: 9}, state)

	_, err = l.commit(-1, runs(protocol.Run{Start: 9, End: 11}))
	require.ErrorIs(t, err, kerr.OffsetOutOfRange)
	_, gaps = l.gaps()
	require.Equal(t, []protocol.Run{{Start: 3, End: 5}, {Start: 6, End: 8}}, gaps.Gaps)

	state, err = l.commit(-1, protocol.IndividualOffsets{Reopen: []protocol.Run{{Start: 1, End: 2}}, Origin: protocol.NoOrigin})
	require.NoError(t, err)
	require.Equal(t, int64(1), state.Stable)

	state, err = l.commit(4, runs(protocol.Run{Start: 4, End: 6}))
	require.NoError(t, err)
	require.Equal(t, protocol.IndividualState{Stable: 6, MaxCommit: 9}, state, "a cumulative commit applies first")
}

func TestMalformedIndividualCommitsAreRefused(t *testing.T) {
	l := ledgerOf(t, start(t, nil), "bad", 3)
	_, err := l.commit(-1, runs())
	require.ErrorIs(t, err, kerr.InvalidRequest, "nothing is committed and no origin named")
	state, err := l.commit(-1, protocol.IndividualOffsets{Origin: 2})
	require.NoError(t, err, "an origin alone founds the ledger")
	require.Equal(t, protocol.IndividualState{Stable: 2, MaxCommit: 2}, state)
	_, err = l.commit(-1, protocol.IndividualOffsets{Commit: []protocol.Run{{Start: 0, End: 2}}, Reopen: []protocol.Run{{Start: 1, End: 2}}})
	require.ErrorIs(t, err, kerr.InvalidRequest, "an offset is in both lists")
}

func TestStockClientsSeeTheStableOffset(t *testing.T) {
	b := start(t, nil)
	l := ledgerOf(t, b, "stock", 10)
	admin := kadm.NewClient(client(t, b))

	require.NoError(t, admin.CommitAllOffsets(t.Context(), "g", kadm.OffsetsFromRecords()))
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "stock", Partition: 0, At: 4, LeaderEpoch: -1, Metadata: "note"})
	require.NoError(t, admin.CommitAllOffsets(t.Context(), "g", offsets))

	state, err := l.commit(-1, runs(protocol.Run{Start: 6, End: 8}))
	require.NoError(t, err)
	require.Equal(t, protocol.IndividualState{Stable: 4, MaxCommit: 8}, state, "the ledger is founded at the committed offset")

	offsets = nil
	offsets.Add(kadm.Offset{Topic: "stock", Partition: 0, At: 5, LeaderEpoch: -1, Metadata: "new"})
	require.NoError(t, admin.CommitAllOffsets(t.Context(), "g", offsets))
	fetched, err := admin.FetchOffsets(t.Context(), "g")
	require.NoError(t, err)
	o, _ := fetched.Lookup("stock", 0)
	require.Equal(t, int64(5), o.At)
	require.Equal(t, "new", o.Metadata)
	_, gaps := l.gaps()
	require.Equal(t, []protocol.Run{{Start: 5, End: 6}}, gaps.Gaps, "a plain commit goes to the ledger")

	offsets = nil
	offsets.Add(kadm.Offset{Topic: "stock", Partition: 0, At: 2, LeaderEpoch: -1})
	require.NoError(t, admin.CommitAllOffsets(t.Context(), "g", offsets))
	_, gaps = l.gaps()
	require.Equal(t, int64(2), gaps.MaxCommit, "a rewind forgets what is above")
	require.Empty(t, gaps.Gaps)
}

func TestLedgersSurviveARestart(t *testing.T) {
	for _, how := range []string{"clean stop", "crash"} {
		t.Run(how, func(t *testing.T) {
			fs := vfs.NewCrashableMem()
			onDisk := func(c *broker.Config) { c.FS = fs }
			b := start(t, onDisk)
			l := ledgerOf(t, b, "kept", 100)
			for i := int64(0); i < 100; i += 2 {
				_, err := l.commit(-1, runs(protocol.Run{Start: i, End: i + 1}))
				require.NoError(t, err)
			}
			want, wantGaps := l.gaps()
			if how == "crash" {
				fs = fs.CrashClone(vfs.CrashCloneCfg{})
			} else {
				stop(t, b)
			}
			b = start(t, onDisk)
			l.wire = dial(t, b)
			got, gotGaps := l.gaps()
			require.Equal(t, want, got)
			require.Equal(t, wantGaps, gotGaps)
			require.Len(t, gotGaps.Gaps, 49)
		})
	}
}

func TestADeletedTopicTakesItsLedgersAlong(t *testing.T) {
	b := start(t, nil)
	l := ledgerOf(t, b, "again", 5)
	_, err := l.commit(-1, runs(protocol.Run{Start: 3, End: 4}))
	require.NoError(t, err)
	admin := kadm.NewClient(client(t, b))
	_, err = admin.DeleteTopic(t.Context(), "again")
	require.NoError(t, err)
	l = ledgerOf(t, b, "again", 5)
	committed, gaps := l.gaps()
	require.Equal(t, int64(-1), committed)
	require.Equal(t, int64(-1), gaps.MaxCommit)
}

func TestADeletedGroupTakesItsLedgersAlong(t *testing.T) {
	b := start(t, nil)
	l := ledgerOf(t, b, "left", 5)
	_, err := l.commit(-1, runs(protocol.Run{Start: 3, End: 4}))
	require.NoError(t, err)
	admin := kadm.NewClient(client(t, b))
	_, err = admin.DeleteGroup(t.Context(), "g")
	require.NoError(t, err)
	committed, _ := l.gaps()
	require.Equal(t, int64(-1), committed)
}

func TestTheSwitchesRefuseTheExtensionOnly(t *testing.T) {
	b := start(t, func(c *broker.Config) { c.Settings = map[string]string{"individual.commit.enable": "false"} })
	l := ledgerOf(t, b, "off", 5)
	_, err := l.commit(-1, runs(protocol.Run{Start: 3, End: 4}))
	require.Error(t, err)
	versions := kmsg.ApiVersionsResponse{Version: 3}
	l.send(l.frame(kmsg.NewPtrApiVersionsRequest(), 3))
	l.receive(&versions)
	for _, f := range versions.SupportedFeatures {
		require.NotEqual(t, protocol.FeatureIndividualCommit, f.Name)
	}
}
