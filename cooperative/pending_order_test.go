package cooperative

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/keyfilter"
)

// pendingAtLast is a partition of ten records of these keys, one letter each, of which the
// last was pending in a transaction when the broker started again. Next to nothing is kept
// of what waits.
func pendingAtLast(t *testing.T, mode Mode, keys string) *model {
	c := testConfig(mode)
	c.Limits.WaitingMaxBytes = 2 * waitingBytes
	c.Assignment = join(c.Assignment, "a")
	m := newModel(c)
	m.d.ahead = testAhead
	for _, k := range strings.Split(keys, "") {
		m.append(&Key{Hash: keyfilter.Hash([]byte(k), 0)})
	}
	require.NoError(t, m.feed())
	for m.acquired() < len(keys) {
		require.NoError(t, m.acquire("a", Want{MaxRecords: len(keys)}))
		require.NoError(t, m.feed())
	}
	require.NoError(t, m.stage("a", []Run{{Start: m.end - 1, End: m.end}}))
	require.NoError(t, m.restart())
	return m
}

// feedUpTo feeds what lies below an offset, at once.
func (m *model) feedUpTo(offset int64) error {
	var out Changes
	m.d.Feed(m.read(m.d.FeedFrom(), offset), &out)
	return m.settled(&out, nil)
}

// drain has a member accept all that it is dealt, until there is no more.
func (m *model) drain(t *testing.T, member string) {
	for {
		require.NoError(t, m.acquire(member, Want{MaxRecords: 5}))
		held := m.heldBy(member)
		if len(held) == 0 {
			return
		}
		require.NoError(t, m.acknowledge(member, held))
		require.NoError(t, m.feed())
	}
}

func (m *model) heldBy(member string) (acks []Ack) {
	for _, offset := range m.offsets() {
		if r := m.records[offset]; r.state == Acquired && r.member == member {
			acks = append(acks, Ack{Run{Start: offset, End: offset + 1}, Accept})
		}
	}
	return acks
}

// TestAbortedBehindAStretchOfItsKey aborts a record while others of its key before it are
// not kept, but read again.
func TestAbortedBehindAStretchOfItsKey(t *testing.T) {
	for _, loaded := range []bool{false, true} {
		m := pendingAtLast(t, KeyOrdered, "kkkkkkkkkk")
		require.NoError(t, m.feedUpTo(9))
		require.NoError(t, m.acquire("a", Want{MaxRecords: 1}))
		require.NoError(t, m.acquire("b", Want{MaxRecords: 5})) // looks at the others
		require.NoError(t, m.feedUpTo(10))
		if loaded {
			require.NoError(t, m.feed())
		}
		require.NoError(t, m.endStage([]Run{{Start: 9, End: 10}}, false))
		require.NoError(t, m.acknowledge("a", m.heldBy("a")))
		m.drain(t, "b")
		require.EqualValues(t, 10, m.ledger.Stable())
	}
}

// TestAbortedBehindAStretchOfItsBucket is the same of a stretch of the bucket.
func TestAbortedBehindAStretchOfItsBucket(t *testing.T) {
	m := pendingAtLast(t, KeyRange, "kkkkkkkkkk")
	require.NoError(t, m.feedUpTo(10))
	require.NoError(t, m.endStage([]Run{{Start: 9, End: 10}}, false))
	m.drain(t, "a")
	require.EqualValues(t, 10, m.ledger.Stable())
}

// TestAbortedAheadOfAnotherBucketsFilter lets a fetch with a filter come across a record that
// is pending in a bucket which is not its member's, before the log was read so far.
func TestAbortedAheadOfAnotherBucketsFilter(t *testing.T) {
	m := pendingAtLast(t, KeyRange, "kkkkkkkkkk")
	require.NoError(t, m.acquireOnly("b", Want{MaxRecords: 5}, func(Key) bool { return true }, m.end))
	require.NoError(t, m.endStage([]Run{{Start: 9, End: 10}}, false))
	m.drain(t, "a")
	require.EqualValues(t, 10, m.ledger.Stable())
}
