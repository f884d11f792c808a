package ledgers

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/extension/extensiontest"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

func TestFounding(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 20)

	r.requireNoLedger("g", tp)
	r.mustCommit("g", commitOf(tp, 5), 0, 6) // at the log start
	require.Zero(t, r.primary.at("g", tp), "the primary topic follows before the answer")

	origin := commitOf(tp, 12)
	origin.Origin = 10
	r.mustCommit("with origin", origin, 10, 13)
	r.mustCommit("g", origin, 0, 13) // of a ledger that there is, it is ignored

	require.NoError(t, r.primary.Put(ctx, "stock", []extension.CommittedOffset{{TopicPartition: tp, Offset: 7, Metadata: "kept"}}))
	r.mustCommit("stock", origin, 7, 13)
	require.Equal(t, "kept", r.fetch("stock", tp).Metadata)

	only := commitOf(tp)
	only.Origin = 20
	r.mustCommit("origin only", only, 20, 20)
	only.Origin = 21
	r.refused(kerr.OffsetOutOfRange, "origin past the end", only)
	r.requireNoLedger("origin past the end", tp)

	require.NoError(t, r.primary.Put(ctx, "ahead", []extension.CommittedOffset{{TopicPartition: tp, Offset: 25}}))
	r.mustCommit("ahead", only, 25, 25)
	r.produce(tp, 10)
	r.mustCommit("ahead", commitOf(tp, 22), 20, 23) // what was appended since is open
}

func TestAFailedFirstCommitFoundsNothing(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 5)
	r.refused(kerr.OffsetOutOfRange, "g", commitOf(tp, 1, 5))
	r.requireNoLedger("g", tp)
	r.restart()
	r.requireNoLedger("g", tp)
	require.Equal(t, int64(-1), r.primary.at("g", tp))
}

// TestPartitionsAreJudgedOneByOne: each is done whole or not at all.
func TestPartitionsAreJudgedOneByOne(t *testing.T) {
	r := newRig(t)
	a, b, gone := part(1, 0), part(1, 1), part(2, 0)
	r.Gone[gone] = extension.ErrUnknownPartition
	r.produce(a, 10)
	r.produce(b, 10)
	results := r.commit("g", commitOf(a, 3, 4), commitOf(b, 1, 10), commitOf(gone, 0))
	require.Equal(t, Result{Stable: 0, MaxCommit: 5}, results[0])
	require.ErrorIs(t, results[1].Err, kerr.OffsetOutOfRange)
	require.ErrorIs(t, results[2].Err, kerr.UnknownTopicOrPartition)
	r.requireLedger("g", a, 0, 5, run(0, 3))
	r.requireNoLedger("g", b)
}

func TestPlainCommitsOfAFoundedLedger(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 20)
	r.mustCommit("g", commitOf(tp, 5, 9), 0, 10)
	r.mustCommit("g", plainOf(tp, 6, "one"), 6, 10)
	r.requireLedger("g", tp, 6, 10, run(6, 9))
	require.Equal(t, "one", r.fetch("g", tp).Metadata)

	r.mustCommit("g", commitOf(tp, 7), 6, 10) // keeps the metadata
	require.Equal(t, "one", r.fetch("g", tp).Metadata)

	r.mustCommit("g", plainOf(tp, 2, "back"), 2, 2)
	require.EqualValues(t, 2, r.primary.at("g", tp), "the primary topic falls before the answer")

	nothing := plainOf(tp, individualcommit.NoOffset, "")
	nothing.Metadata = nil
	r.mustCommit("g", nothing, 2, 2)

	// One of a ledger that is gone may go elsewhere now.
	require.NoError(t, r.c.DeleteGroup(ctx, "g"))
	r.refused(kerr.CoordinatorLoadInProgress, "g", plainOf(tp, 4, ""))
}

func TestRouteTellsWhichHaveALedger(t *testing.T) {
	r := newRig(t)
	a, b := part(1, 0), part(1, 1)
	r.produce(a, 5)
	has, release, err := r.c.Route(ctx, "g")
	require.NoError(t, err)
	require.False(t, has(a))
	founded := make(chan struct{})
	go func() {
		defer close(founded)
		r.commit("g", commitOf(a, 0))
	}()
	// Once the founder waits, nobody else may route either.
	for s := r.c.shardOf("g"); s.founding.TryRLock(); {
		s.founding.RUnlock()
		select {
		case <-founded:
			t.Fatal("a ledger was founded while plain commits were routed")
		default:
			runtime.Gosched()
		}
	}
	release()
	<-founded
	has, release, err = r.c.Route(ctx, "g")
	require.NoError(t, err)
	defer release()
	require.True(t, has(a))
	require.False(t, has(b))

	// Where nobody knows, a plain commit does not go by the ledger.
	s := r.c.shardOf("g")
	s.mu.Lock()
	s.dropLocked()
	s.mu.Unlock()
	require.True(t, has(a))
	r.refused(kerr.CoordinatorLoadInProgress, "g", plainOf(b, 3, ""))
	r.mustCommit("g", plainOf(a, 3, ""), 3, 3)
}

// TestReopeningFoundsALedger of a group that has committed in the primary topic only.
func TestReopeningFoundsALedger(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 20)
	require.NoError(t, r.primary.Put(ctx, "g", []extension.CommittedOffset{{TopicPartition: tp, Offset: 10}}))
	all := reopenOf(tp)
	all.Reopen = []protocol.Run{run(4, 6), run(8, 1<<40)}
	r.mustCommit("g", all, 4, 8)
	r.requireLedger("g", tp, 4, 8, run(4, 6))
	require.EqualValues(t, 4, r.primary.at("g", tp))
}

// reposition is a cumulative commit that founds a ledger.
func reposition(tp extension.TopicPartition, offset int64) PartitionCommit {
	p := commitOf(tp)
	p.Offset = offset
	return p
}

func TestAGroupsNameMustFitIntoARecord(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 5)
	r.mustCommit(strings.Repeat("g", 32767), commitOf(tp, 1), 0, 2)
	r.refused(kerr.InvalidGroupID, strings.Repeat("g", 32768), commitOf(tp, 1))
	r.restart()
	r.requireLedger(strings.Repeat("g", 32767), tp, 0, 2, run(0, 1))
}

func TestReopening(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 20)
	r.mustCommit("g", reposition(tp, 15), 15, 15)
	r.mustCommit("g", reopenOf(tp, 3, 4), 3, 15)
	require.EqualValues(t, 3, r.primary.at("g", tp), "before the answer")
	r.requireLedger("g", tp, 3, 15, run(3, 5))

	log, err := r.Open(extensiontest.DataDir(tp))
	require.NoError(t, err)
	_, err = log.DeleteRecords(4)
	require.NoError(t, err)
	r.requireLedger("g", tp, 4, 15, run(4, 5))
	r.mustCommit("g", reopenOf(tp, 2, 3), 4, 15) // below the log start: nothing
}

func TestWhoMayCommit(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 10)
	r.mustCommit("g", reposition(tp, 8), 8, 8)
	r.members.refuse = kerr.UnknownMemberID
	r.refused(kerr.UnknownMemberID, "g", commitOf(tp, 9))
	r.refused(kerr.UnknownMemberID, "other", commitOf(tp, 9))
	r.requireNoLedger("other", tp)

	// An operator reopens while the group works, but not together with a commit.
	r.mustCommit("g", reopenOf(tp, 2), 2, 8)
	both := reopenOf(tp, 3)
	both.Commit = offsets(9)
	r.refused(kerr.UnknownMemberID, "g", both)
	results := r.commit("g", reopenOf(tp, 3), commitOf(tp, 9))
	require.ErrorIs(t, results[0].Err, kerr.UnknownMemberID)
	m := &extension.Member{Group: "g", MemberID: "m", Generation: 3}
	require.ErrorIs(t, r.c.Begin(ctx, m, []PartitionCommit{reopenOf(tp, 3)}).Wait(ctx)[0].Err, kerr.UnknownMemberID)
	r.requireLedger("g", tp, 2, 8, run(2, 3))
}

// TestMemoryIsBounded: a commit that would take the ledgers past their memory is refused,
// and no gap is forgotten; one that closes gaps is not.
func TestMemoryIsBounded(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 10_000)
	r.limit = 2000
	r.mustCommit("g", commitOf(tp, 1), 0, 2)
	var refused error
	committed := []int64{1}
	for x := int64(3); refused == nil; x += 100 {
		require.Less(t, x, int64(9000), "never refused")
		if refused = r.commit("g", commitOf(tp, x))[0].Err; refused == nil {
			committed = append(committed, x)
		}
	}
	require.ErrorIs(t, refused, kerr.PolicyViolation)
	require.LessOrEqual(t, r.c.MemoryBytes(), r.limit+1024, "a ledger grows by up to a leaf at a time")
	require.Len(t, r.fetch("g", tp).Gaps, len(committed))
	r.refused(kerr.PolicyViolation, "another group", commitOf(tp, 1))

	r.mustCommit("g", commitOf(tp, 0), 2, committed[len(committed)-1]+1)
	r.mustCommit("g", commitOf(tp, 2), 4, committed[len(committed)-1]+1)
	r.limit = 1 << 20
	r.mustCommit("g", commitOf(tp, 9990), 4, 9991)

	require.NoError(t, r.c.DeleteGroup(ctx, "g"))
	require.Zero(t, r.c.MemoryBytes())
}

func TestGapsAreListedInParts(t *testing.T) {
	r := newRig(t)
	a, b := part(1, 0), part(1, 1)
	r.produce(a, 100)
	r.produce(b, 100)
	var odd []int64
	for x := int64(1); x < 100; x += 2 {
		odd = append(odd, x)
	}
	r.commit("g", commitOf(a, odd...), commitOf(b, odd...))

	views, err := r.c.Fetch(ctx, "g", []extension.TopicPartition{a, b, part(1, 2)}, &GapsQuery{From: 51, MaxRuns: 3})
	require.NoError(t, err)
	for _, v := range views[:2] {
		require.Equal(t, []protocol.Run{run(52, 53), run(54, 55), run(56, 57)}, v.Gaps)
		require.EqualValues(t, 58, v.CompleteTo)
	}
	require.False(t, views[2].Founded)

	views, err = r.c.Fetch(ctx, "g", []extension.TopicPartition{a}, &GapsQuery{From: 97})
	require.NoError(t, err)
	require.Equal(t, []protocol.Run{run(98, 99)}, views[0].Gaps)
	require.EqualValues(t, protocol.GapsComplete, views[0].CompleteTo)

	views, err = r.c.Fetch(ctx, "g", []extension.TopicPartition{a}, nil)
	require.NoError(t, err)
	require.Empty(t, views[0].Gaps)
	require.EqualValues(t, 100, views[0].MaxCommit)
	partitions, err := r.c.Partitions(ctx, "g")
	require.NoError(t, err)
	require.ElementsMatch(t, []extension.TopicPartition{a, b}, partitions)
}

// TestAnAnswerIsBounded over all its partitions, and says where it was cut.
func TestAnAnswerIsBounded(t *testing.T) {
	r := newRig(t)
	a, b := part(1, 0), part(1, 1)
	var odd []individualcommit.Run
	for x := int64(1); x < 130_000; x += 2 {
		odd = append(odd, run(x, x+1))
	}
	for _, tp := range []extension.TopicPartition{a, b} {
		r.produce(tp, 130_000)
		p := commitOf(tp)
		p.Commit = odd
		r.mustCommit("g", p, 0, 130_000)
	}
	views, err := r.c.Fetch(ctx, "g", []extension.TopicPartition{a, b}, &GapsQuery{})
	require.NoError(t, err)
	require.Len(t, views[0].Gaps, 65_000)
	require.EqualValues(t, protocol.GapsComplete, views[0].CompleteTo)
	require.Len(t, views[1].Gaps, maxGapRuns-65_000)
	require.EqualValues(t, 2*(maxGapRuns-65_000), views[1].CompleteTo)
	rest, err := r.c.Fetch(ctx, "g", []extension.TopicPartition{b}, &GapsQuery{From: views[1].CompleteTo})
	require.NoError(t, err)
	require.Len(t, rest[0].Gaps, 65_000-len(views[1].Gaps))
	require.EqualValues(t, protocol.GapsComplete, rest[0].CompleteTo)
}

func TestDeleting(t *testing.T) {
	r := newRig(t)
	a, b, other := part(1, 0), part(1, 1), part(2, 0)
	groups := []string{"g", "h", "i"}
	for _, tp := range []extension.TopicPartition{a, b, other} {
		r.produce(tp, 10)
		for _, g := range groups {
			r.commit(g, commitOf(tp, 1), commitOf(tp, 3))
		}
	}
	require.NoError(t, r.c.DeletePartitions(ctx, "g", []extension.TopicPartition{b}))
	require.NoError(t, r.c.DeleteGroup(ctx, "h"))
	require.NoError(t, r.c.DeleteTopic(ctx, other.Topic))
	for range 2 {
		r.requireLedger("g", a, 0, 4, run(0, 1), run(2, 3))
		r.requireNoLedger("g", b)
		r.requireNoLedger("g", other)
		r.requireNoLedger("h", a)
		r.requireLedger("i", b, 0, 4, run(0, 1), run(2, 3))
		r.requireNoLedger("i", other)
		r.restart()
	}
	r.mustCommit("h", commitOf(a, 5), 0, 6) // of the old ledger nothing is left
}

// TestManyAtOnce is for the race detector, and checks that no commit is lost.
func TestManyAtOnce(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 1000)
	done := make(chan error)
	const workers = 8
	for w := range int64(workers) {
		go func() {
			var err error
			for x := w; x < 1000 && err == nil; x += workers {
				err = r.commit(fmt.Sprint("g", w%2), commitOf(tp, x))[0].Err
				if x%50 == w {
					_, _ = r.c.Fetch(ctx, fmt.Sprint("g", w%2), []extension.TopicPartition{tp}, &GapsQuery{})
					_ = r.c.Checkpoint(ctx)
					r.c.followAll(ctx)
				}
			}
			done <- err
		}()
	}
	for range workers {
		require.NoError(t, <-done)
	}
	for g, gaps := range []int{499, 500} { // of all odd, and of all even offsets
		require.Len(t, r.fetch(fmt.Sprint("g", g), tp).Gaps, gaps, "group %d", g)
	}
}
