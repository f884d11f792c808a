package cooperative

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/keyfilter"
)

// The known ways to go wrong, one by one.

func keyed(name string) *Key { return &Key{Hash: keyfilter.Hash([]byte(name), 0)} }

// stocked is a model with records of the named keys, "-" being none and "" an absent
// offset.
func stocked(t *testing.T, c Config, names ...string) *model {
	m := newModel(c)
	for _, n := range names {
		switch n {
		case "":
			m.append(nil)
		case "-":
			m.append(&Key{Null: true})
		default:
			m.append(keyed(n))
		}
	}
	m.closeAbsent()
	require.NoError(t, m.feed())
	return m
}

func (m *model) wait(member string) {
	m.d.Wait(member, 10)
	m.waiting = append(m.waiting, member)
}

func TestAnAcknowledgementThatFreesRoomWakes(t *testing.T) {
	c := testConfig(RoundRobin)
	c.Limits.Acquired = 2
	m := stocked(t, c, "-", "-", "-", "-")
	require.NoError(t, m.acquire("a", Want{MaxRecords: 10}))
	m.wait("b")
	require.Empty(t, m.d.Ready(nil))
	require.NoError(t, m.acknowledge("a", []Ack{{Run{Start: 0, End: 1}, Accept}}))
	require.Equal(t, []string{"b"}, m.d.Ready(nil))
	c.Limits.Acquired = 1
	m.d.SetLimits(c.Limits)
	require.Empty(t, m.d.Ready(nil))
	c.Limits.Acquired = 10
	m.d.SetLimits(c.Limits)
	require.Equal(t, []string{"b"}, m.d.Ready(nil), "as does a limit that is raised")
}

func TestATimeoutNeedsNoTraffic(t *testing.T) {
	m := stocked(t, testConfig(RoundRobin), "-")
	require.NoError(t, m.acquire("a", Want{MaxRecords: 1}))
	m.wait("b")
	deadline, ok := m.d.NextDeadline()
	require.True(t, ok)
	require.NoError(t, m.tick(deadline))
	require.Equal(t, []string{"b"}, m.d.Ready(nil))
}

func TestTheLimitCountsRecordsAndNotTheSpan(t *testing.T) {
	c := testConfig(RoundRobin)
	c.Limits.Acquired = 3
	x := newBench(c, nil)
	x.batch = 1
	require.Equal(t, 1, x.acquire("stuck"))
	x.batch = 2
	for range 100_000 {
		require.Equal(t, 2, x.acquire("m"))
		x.acknowledge("m", Accept)
		x.now = 0
	}
	require.Less(t, x.d.MemoryBytes()+x.ledger.MemoryBytes(), int64(100_000))
}

func TestALateAcknowledgementChangesNothing(t *testing.T) {
	m := stocked(t, testConfig(RoundRobin), "-")
	require.NoError(t, m.acquire("a", Want{MaxRecords: 1}))
	require.NoError(t, m.tick(30_000))
	require.NoError(t, m.acquire("b", Want{MaxRecords: 1}))
	require.NoError(t, m.acknowledge("a", []Ack{{Run{Start: 0, End: 1}, Accept}}))
	require.Equal(t, "b", m.d.Explain(0).Member)
}

func TestAfterANegativeAcknowledgementTheOrderHolds(t *testing.T) {
	m := stocked(t, testConfig(KeyOrdered), "k", "k", "k", "k", "k", "other")
	require.NoError(t, m.acquire("a", Want{MaxRecords: 5}))
	require.NoError(t, m.acknowledge("a", []Ack{{Run{Start: 0, End: 1}, Release}}))
	require.Equal(t, 1, m.d.Explain(0).Deliveries)
	for offset := int64(1); offset < 5; offset++ {
		require.Equal(t, Available, m.d.Explain(offset).State)
		require.Zero(t, m.d.Explain(offset).Deliveries)
	}
	require.NoError(t, m.acknowledge("a", []Ack{{Run{Start: 1, End: 2}, Accept}}), "refused, as the model has it")
	require.NoError(t, m.acquire("b", Want{MaxRecords: 10}))
	require.Equal(t, 6, m.d.Count(Acquired), "all go to b, in order")
}

func TestANewMemberMakesOnlyHeldKeysWait(t *testing.T) {
	m := stocked(t, testConfig(KeyOrdered), "x", "y", "x", "y", "z", "-")
	require.NoError(t, m.acquire("a", Want{MaxRecords: 2}))
	m.wait("b")
	require.NoError(t, m.serve())
	require.Equal(t, "b", m.d.Explain(4).Member)
	require.Equal(t, "b", m.d.Explain(5).Member)
	require.Equal(t, "a", m.d.Explain(2).Blocker)
}

func TestOneHotKeyStarvesNobody(t *testing.T) {
	x := backlog(KeyOrdered, 200_000)
	for range 100 {
		require.Equal(t, 500, x.acquire("m"))
		x.acknowledge("m", Accept)
	}
	require.NoError(t, x.d.CheckInvariants())
}

func TestAHotKeyHoldsNoMemoryWithoutBound(t *testing.T) {
	c := benchConfig(KeyOrdered)
	c.Limits.WaitingMaxBytes = 64 << 10
	x := newBench(c, func(int64) Key { return Key{Hash: 1} })
	x.batch = 1
	require.Equal(t, 1, x.acquire("a"))
	for x.d.FeedFrom() < 300_000 {
		x.acquire("b")
		x.feed(1000)
	}
	require.Less(t, x.d.MemoryBytes(), int64(2<<20))
	x.batch = 500
	next := int64(0)
	for next < 100_000 { // all come, in order, read again
		x.acknowledge("a", Accept)
		for again, ok := x.d.NextAgain(); ok; again, ok = x.d.NextAgain() {
			end := min(again.End, again.Start+2000)
			x.keys = x.keys[:0]
			for range end - again.Start {
				x.keys = append(x.keys, Key{Hash: 1})
			}
			x.d.FeedAgain(again, Records{Start: again.Start, End: end, Runs: []Run{{Start: again.Start, End: end}}, Keys: x.keys})
		}
		x.acquire("a")
		for _, g := range x.got {
			require.True(t, next == 0 || g.Start == next, "dealt %d, should be %d", g.Start, next)
			next = g.End
		}
	}
}

func TestRecordsThatAlwaysFailLeaveRoom(t *testing.T) {
	c := testConfig(RoundRobin)
	c.Limits.Acquired, c.Limits.DeadLetters = 2, true
	m := stocked(t, c, "-", "-", "-")
	for range 5 { // to the limit, alone at the last
		for m.d.Explain(0).State != Archiving && m.d.Explain(1).State != Archiving {
			require.NoError(t, m.acquire("a", Want{MaxRecords: 2}))
			require.NoError(t, m.acknowledge("a", []Ack{{Run{Start: 0, End: 1}, Release}, {Run{Start: 1, End: 2}, Release}, {Run{Start: 2, End: 3}, Accept}}))
		}
	}
	require.Zero(t, m.d.Count(Acquired), "what waits for a dead letter takes no lock")
	require.NoError(t, m.restart())
	require.Positive(t, m.d.Count(Archiving), "a restart does not deal it again")
	require.NoError(t, m.deadLettered([]int64{0, 1}))
}

func TestAMovedBucketIsDealtWhenItsRecordsAreDone(t *testing.T) {
	c := testConfig(KeyRange)
	c.Assignment = join(c.Assignment, "a")
	m := stocked(t, c, "k", "k", "k")
	require.NoError(t, m.acquire("a", Want{MaxRecords: 1}))
	c.Assignment, _ = keyfilter.RestoreAssignment(4, 16, []string{"b", "b", "b", "b"}, nil)
	m.config.Assignment = c.Assignment
	m.d.SetAssignment(c.Assignment)
	m.wait("b")
	require.NoError(t, m.serve())
	require.Equal(t, []string{"b"}, m.waiting)
	require.NoError(t, m.acknowledge("a", []Ack{{Run{Start: 0, End: 1}, Renew}}), "refused, as the model has it")
	require.NoError(t, m.acknowledge("a", []Ack{{Run{Start: 0, End: 1}, Accept}}))
	require.Equal(t, []string{"b"}, m.d.Ready(nil))
}

func FuzzRestoreCounts(f *testing.F) {
	f.Add([]byte{0, 1, 3, 2, 1, 0})
	f.Add([]byte{0, 2, 0, 1, 255, 2, 0, 0xff, 0x07, 1, 1})
	f.Fuzz(func(t *testing.T, value []byte) {
		m := newModel(testConfig(RoundRobin))
		var out Changes
		if m.d.RestoreCounts(3, value, &out) != nil {
			require.Zero(t, m.d.MemoryBytes()-newModel(testConfig(RoundRobin)).d.MemoryBytes())
			return
		}
		require.NoError(t, m.d.CheckInvariants())
	})
}

func TestCheckJudgesAllAcknowledgementsBeforeAnyCounts(t *testing.T) {
	m := stocked(t, testConfig(RoundRobin), "-", "-", "-")
	require.NoError(t, m.acquire("a", Want{MaxRecords: 2}))
	var out Changes
	at, o := m.d.Check("a", []Ack{{Run{Start: 0, End: 1}, Accept}, {Run{Start: 1, End: 3}, Release}}, m.now, &out)
	require.Equal(t, 1, at)
	require.Equal(t, NotHeld, o)
	require.True(t, out.Empty())
	require.Equal(t, 2, m.d.Count(Acquired))
	_, o = m.d.Check("b", []Ack{{Run{Start: 0, End: 1}, Accept}}, m.now, &out)
	require.Equal(t, NotHeld, o)
	_, o = m.d.Check("a", []Ack{{Run{Start: 1, End: 1}, Accept}}, m.now, &out)
	require.Equal(t, Invalid, o)
	_, o = m.d.Check("a", []Ack{{Run{Start: 0, End: 2}, Accept}}, m.now, &out)
	require.Equal(t, Done, o)
}

func TestReleasingRecordsOfAKeyOneByOneIsWell(t *testing.T) {
	m := stocked(t, testConfig(KeyOrdered), "k", "x", "k")
	require.NoError(t, m.acquire("a", Want{MaxRecords: 3}))
	require.NoError(t, m.acknowledge("a", []Ack{{Run{Start: 0, End: 1}, Release}, {Run{Start: 1, End: 2}, Accept}, {Run{Start: 2, End: 3}, Release}}))
	require.Zero(t, m.d.Count(Acquired))
	require.NoError(t, m.acquire("a", Want{MaxRecords: 3}))
	require.NoError(t, m.acknowledge("a", []Ack{{Run{Start: 0, End: 1}, Release}, {Run{Start: 2, End: 3}, Accept}}))
	require.Zero(t, m.d.Count(Acquired), "what is behind a record that was released is not accepted")
}
