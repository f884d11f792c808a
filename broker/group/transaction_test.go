package group

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// txns is a State whose requests need few words. All offsets are of partition t-0.
type txns struct {
	t     *testing.T
	state *State
	now   time.Time
	out   Output
}

func newTxns(t *testing.T) *txns {
	config := DefaultConfig()
	config.InitialRebalanceDelay = 0
	config.OffsetsRetention = time.Hour
	x := &txns{t: t, state: NewState(config), now: time.UnixMilli(0)}
	x.state.Loaded(x.now, &x.out)
	t.Cleanup(func() { require.NoError(t, x.state.CheckInvariants()) })
	return x
}

var t0 = TopicPartition{Topic: "t"}

func (x *txns) plain(group string, offset int64) {
	x.t.Helper()
	errs, err := x.state.Commit(x.now, &CommitRequest{
		Identity: Identity{Group: group, Generation: -1}, RetentionMs: -1,
		Offsets: []CommitOffset{{TopicPartition: t0, Offset: offset}},
	}, &x.out)
	require.Nil(x.t, err)
	require.Nil(x.t, errs)
}

func (x *txns) inTransaction(producer int64, id Identity, offsets ...CommitOffset) *kerr.Error {
	records, errs, err := x.state.CommitInTransaction(x.now, &TxnCommitRequest{
		CommitRequest: CommitRequest{Identity: id, Offsets: offsets}, Producer: Producer{ID: producer},
	})
	for i := range records {
		require.Equal(x.t, &Producer{ID: producer}, records[i].Producer)
		x.state.Apply(&records[i])
	}
	if err == nil && errs != nil {
		return errs[0]
	}
	return err
}

func (x *txns) stage(producer int64, group string, offset int64) {
	x.t.Helper()
	id := Identity{Group: group, Generation: -1}
	require.Nil(x.t, x.inTransaction(producer, id, CommitOffset{TopicPartition: t0, Offset: offset, TopicID: [16]byte{1}}))
}

// requireCommitted checks the offset of t-0, -1 for none, and whether another is pending.
func (x *txns) requireCommitted(group string, offset int64, pending bool) {
	x.t.Helper()
	got := int64(-1)
	if c, ok := x.state.Committed(group, t0, [16]byte{}); ok {
		got = c.Offset
	}
	require.Equal(x.t, offset, got)
	require.Equal(x.t, pending, x.state.HasPending(group, t0, [16]byte{}))
	want := 0
	if offset >= 0 {
		want = 1
	}
	require.Len(x.t, x.state.AllCommitted(group), want)
}

func TestPendingOffsets(t *testing.T) {
	for name, test := range map[string]struct {
		do      func(x *txns)
		offset  int64
		pending bool
	}{
		"not seen before the marker":   {func(x *txns) { x.stage(1, "g", 5) }, -1, true},
		"committed":                    {func(x *txns) { x.stage(1, "g", 5); x.state.EndTransaction(1, true) }, 5, false},
		"aborted":                      {func(x *txns) { x.stage(1, "g", 5); x.state.EndTransaction(1, false) }, -1, false},
		"the last of a transaction":    {func(x *txns) { x.stage(1, "g", 5); x.stage(1, "g", 4); x.state.EndTransaction(1, true) }, 4, false},
		"over an earlier one":          {func(x *txns) { x.plain("g", 9); x.stage(1, "g", 5); x.state.EndTransaction(1, true) }, 5, false},
		"overtaken by a plain one":     {func(x *txns) { x.stage(1, "g", 5); x.plain("g", 3); x.state.EndTransaction(1, true) }, 3, false},
		"overtaken, and pending still": {func(x *txns) { x.stage(1, "g", 5); x.plain("g", 3) }, 3, true},
		"once more behind the plain one": {func(x *txns) {
			x.stage(1, "g", 5)
			x.plain("g", 3)
			x.stage(1, "g", 6)
			x.state.EndTransaction(1, true)
		}, 6, false},
		"the marker of another producer": {func(x *txns) { x.stage(1, "g", 5); x.state.EndTransaction(2, true) }, -1, true},
		"a marker once more":             {func(x *txns) { x.stage(1, "g", 5); x.state.EndTransaction(1, true); x.state.EndTransaction(1, false) }, 5, false},
		"one that changes nothing":       {func(x *txns) { x.stage(1, "g", -1); x.state.EndTransaction(1, true) }, -1, false},
		"the order of writing counts": {func(x *txns) {
			x.stage(1, "g", 5)
			x.stage(2, "g", 6)
			x.state.EndTransaction(2, true)
			x.state.EndTransaction(1, true)
		}, 6, false},
		"also when they end in turn": {func(x *txns) {
			x.stage(1, "g", 5)
			x.stage(2, "g", 6)
			x.state.EndTransaction(1, true)
			x.state.EndTransaction(2, true)
		}, 6, false},
		"an abort overtakes nothing": {func(x *txns) {
			x.stage(1, "g", 5)
			x.stage(2, "g", 6)
			x.state.EndTransaction(2, false)
			x.state.EndTransaction(1, true)
		}, 5, false},
		"of another group": {func(x *txns) {
			x.stage(1, "g", 5)
			x.stage(1, "h", 7)
			x.plain("h", 1)
			x.state.EndTransaction(1, true)
		}, 5, false},
		"forgotten with its topic": {func(x *txns) {
			x.stage(1, "g", 5)
			x.state.DeleteTopic("t", [16]byte{1}, &x.out)
			x.state.EndTransaction(1, true)
		}, -1, false},
		"of another topic of that name": {func(x *txns) {
			x.stage(1, "g", 5)
			x.state.DeleteTopic("t", [16]byte{2}, &x.out)
			x.state.EndTransaction(1, true)
		}, 5, false},
		"forgotten with its group": {func(x *txns) { x.stage(1, "g", 5); x.deleteGroup("g"); x.state.EndTransaction(1, true) }, -1, false},
		"forgotten as an offset": {func(x *txns) {
			x.plain("g", 2)
			x.stage(1, "g", 5)
			x.deleteOffset("g")
			x.state.EndTransaction(1, true)
		}, -1, false},
		"forgotten though none committed": {func(x *txns) { x.stage(1, "g", 5); x.deleteOffset("g") }, -1, false},
		"dropped": {func(x *txns) {
			x.plain("g", 2)
			x.stage(1, "g", 5)
			require.Equal(x.t, 1, x.state.DropPending())
			x.state.EndTransaction(1, true)
		}, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTxns(t)
			test.do(x)
			x.requireCommitted("g", test.offset, test.pending)
		})
	}
}

func (x *txns) deleteGroup(id string) { require.Nil(x.t, x.state.DeleteGroup(id, &x.out)) }

func (x *txns) deleteOffset(id string) {
	errs, err := x.state.DeleteOffsets(id, []TopicPartition{t0, {Topic: "other"}}, &x.out)
	require.Nil(x.t, err)
	require.Equal(x.t, []*kerr.Error{nil, nil}, errs)
}

// TestPendingOffsetOfAnotherTopic holds that a topic made anew is not unstable on account
// of the old one.
func TestPendingOffsetOfAnotherTopic(t *testing.T) {
	x := newTxns(t)
	x.stage(1, "g", 5)
	require.True(t, x.state.HasPending("g", t0, [16]byte{1}))
	require.False(t, x.state.HasPending("g", t0, [16]byte{2}))
	require.False(t, x.state.HasPending("nobody", t0, [16]byte{}))
}

// TestPendingKeepsGroup holds that neither an offset nor its group goes while a
// transaction may set it.
func TestPendingKeepsGroup(t *testing.T) {
	x := newTxns(t)
	x.plain("g", 2)
	x.stage(1, "g", 5)
	x.stage(1, "h", 7)
	x.now = x.now.Add(2 * time.Hour)
	x.state.Expire(x.now, nil, &x.out)
	x.requireCommitted("g", 2, true)
	x.requireCommitted("h", -1, true)
	gone := groupRecord("h", nil) // as another broker may have written it
	x.state.Apply(&gone)
	x.requireCommitted("h", -1, true)
	x.state.EndTransaction(1, false)
	x.state.Expire(x.now, nil, &x.out)
	require.Zero(t, x.state.Len())
}

func TestCommitInTransactionByWhom(t *testing.T) {
	x := newTxns(t)
	member := func(id, instance string, generation int32) Identity {
		return Identity{Group: "g", MemberID: id, InstanceID: instance, Generation: generation}
	}
	try := func(id Identity) *kerr.Error {
		return x.inTransaction(1, id, CommitOffset{TopicPartition: t0, Offset: 1})
	}
	nobody := Identity{Group: "g", Generation: -1}
	require.Equal(t, kerr.IllegalGeneration, try(member("m", "", 1)), "of a group that is not there")
	require.Nil(t, try(nobody))
	require.Nil(t, try(member("m", "", -1)), "the group is empty")

	x.state.Join(x.now, 1, &JoinRequest{
		Group: "g", InstanceID: "i", NewMemberID: "m", ProtocolType: ConsumerProtocolType,
		Protocols: []Protocol{{Name: "range"}}, SessionTimeout: time.Minute, RebalanceTimeout: time.Minute,
	}, &x.out)
	x.state.Tick(x.now, &x.out)
	d, _ := x.state.Describe("g")
	require.Equal(t, CompletingRebalance, d.State, "the phase does not matter")
	for _, test := range []struct {
		id   Identity
		want *kerr.Error
	}{
		{nobody, nil}, // an old client; its producer's epoch fences it
		{member("m", "i", 1), nil},
		{member("m", "", 1), nil},
		{member("m", "i", 0), kerr.IllegalGeneration},
		{member("m", "", -1), kerr.IllegalGeneration},
		{member("x", "", 1), kerr.UnknownMemberID},
		{member("", "", 1), kerr.UnknownMemberID},
		{member("x", "i", 1), kerr.FencedInstanceID},
		{member("m", "j", 1), kerr.UnknownMemberID},
	} {
		require.Equal(t, test.want, try(test.id), "%+v", test.id)
	}
	x.state.config.OffsetMetadataMaxBytes = 3
	require.Equal(t, kerr.OffsetMetadataTooLarge, x.inTransaction(1, nobody, CommitOffset{TopicPartition: t0, Metadata: "long"}))

	require.NoError(t, x.state.FoundShare(x.now, "s", true, &x.out))
	require.Equal(t, ErrShareGroup, try(Identity{Group: "s", Generation: -1}))
}

// TestClampPending holds that what a transaction commits after a crash is not past the end
// either, and that clamping changes nothing about which offset counts.
func TestClampPending(t *testing.T) {
	end := func(string, [16]byte, int32) (int64, bool) { return 50, true }
	for name, test := range map[string]struct {
		do   func(x *txns)
		want map[int64]int64 // by the producer that commits alone, 0 for none of them
	}{
		"only pending":         {func(x *txns) { x.plain("g", 9); x.stage(1, "g", 60) }, map[int64]int64{0: 9, 1: 50}},
		"both":                 {func(x *txns) { x.plain("g", 70); x.stage(1, "g", 60) }, map[int64]int64{0: 50, 1: 50}},
		"only the plain one":   {func(x *txns) { x.plain("g", 70); x.stage(1, "g", 30) }, map[int64]int64{0: 50, 1: 30}},
		"an overtaken one":     {func(x *txns) { x.stage(1, "g", 30); x.plain("g", 70) }, map[int64]int64{0: 50, 1: 50}},
		"the last one counts":  {func(x *txns) { x.stage(1, "g", 80); x.stage(2, "g", 40) }, map[int64]int64{0: -1, 1: 50, 2: 40, 3: 40}},
		"nothing to do at all": {func(x *txns) { x.plain("g", 3); x.stage(1, "g", 50) }, map[int64]int64{0: 3, 1: 50}},
	} {
		t.Run(name, func(t *testing.T) {
			for commits, want := range test.want {
				x := newTxns(t)
				test.do(x)
				x.out.Reset()
				lowered := x.state.Clamp(end, &x.out)
				require.Equal(t, len(x.out.Records) > 0, len(lowered) > 0)
				require.False(t, slices.ContainsFunc(lowered["g"], func(o PartitionOffset) bool { return o.Offset <= 50 }))
				for id := int64(2); id > 0; id-- {
					x.state.EndTransaction(id, commits&id != 0)
				}
				x.requireCommitted("g", want, false)
				require.Empty(t, x.state.Clamp(end, &x.out))
			}
		})
	}
}
