package tests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// bothLines runs a test for each of the two ways in which clients speak of transactions.
func bothLines(t *testing.T, f func(t *testing.T, explicit bool)) {
	for name, explicit := range map[string]bool{"explicit adds": true, "implicit adds": false} {
		t.Run(name, func(t *testing.T) { f(t, explicit) })
	}
}

// txnRig is a broker with topics in, of records, and out, for transactions.
type txnRig struct {
	t    *testing.T
	conn *wire.Conn
	in   [16]byte
}

// patient is a timeout that no test sees.
const patient = 600_000

func newTxnRig(t *testing.T, records int) *txnRig {
	r := &txnRig{t: t, conn: dial(t, startBroker(t, nil).Addr())}
	r.fill(records)
	return r
}

func (r *txnRig) fill(records int) {
	var err error
	r.in, err = r.conn.MakeTopic("in")
	require.NoError(r.t, err)
	_, err = r.conn.MakeTopic("out")
	require.NoError(r.t, err)
	for i := range records {
		_, err := wire.ProducedAt(r.do(wire.ProduceRequest("in", 0, -1, batchOf(r.t, []byte(fmt.Sprint(i))))))
		require.NoError(r.t, err)
	}
}

func (r *txnRig) do(req kmsg.Request) kmsg.Response {
	r.t.Helper()
	resp, err := r.conn.Do(req)
	require.NoError(r.t, err)
	return resp
}

func (r *txnRig) producer(id string, explicit bool) *wire.Producer {
	r.t.Helper()
	p, err := r.conn.InitProducer(id, patient)
	require.NoError(r.t, err)
	p.Explicit = explicit
	return p
}

func (r *txnRig) produce(p *wire.Producer, value string) {
	r.t.Helper()
	_, err := p.Produce(r.conn, "out", 0, value)
	require.NoError(r.t, err)
}

func (r *txnRig) requireSeen(values ...string) {
	r.t.Helper()
	seen, _, err := r.conn.Committed("out", 0)
	require.NoError(r.t, err)
	require.Equal(r.t, values, seen)
}

// commits names single offsets, in rising order.
func commits(offsets ...int64) *protocol.IndividualOffsets {
	o := &protocol.IndividualOffsets{}
	for _, at := range offsets {
		if n := len(o.Commit); n > 0 && o.Commit[n-1].End == at {
			o.Commit[n-1].End++
		} else {
			o.Commit = append(o.Commit, protocol.Run{Start: at, End: at + 1})
		}
	}
	return o
}

func (r *txnRig) stage(p *wire.Producer, offsets ...int64) error {
	return p.Stage(r.conn, "g", "", "in", 0, -1, commits(offsets...))
}

func (r *txnRig) requireLedger(stable, maxCommit int64, gaps ...protocol.Run) {
	r.t.Helper()
	l, err := r.conn.Ledger("g", "in", 0)
	require.NoError(r.t, err)
	require.Equal(r.t, stable, l.Stable)
	require.Equal(r.t, maxCommit, l.MaxCommit)
	require.Equal(r.t, gaps, l.Gaps)
}

func TestTransactionsAreSeenWhenTheyAreCommitted(t *testing.T) {
	bothLines(t, func(t *testing.T, explicit bool) {
		r := newTxnRig(t, 0)
		p := r.producer("p", explicit)
		r.produce(p, "a")
		r.produce(p, "b")
		r.requireSeen()
		require.NoError(t, p.End(r.conn, true))
		r.requireSeen("a", "b")

		r.produce(p, "c")
		require.NoError(t, p.End(r.conn, false))
		open := r.producer("open", explicit)
		r.produce(open, "d")
		r.produce(p, "e")
		require.NoError(t, p.End(r.conn, true))
		r.requireSeen("a", "b") // the open one holds those behind it up
		require.NoError(t, open.End(r.conn, true))
		r.requireSeen("a", "b", "d", "e")
	})
}

func TestProducersAreFenced(t *testing.T) {
	bothLines(t, func(t *testing.T, explicit bool) {
		r := newTxnRig(t, 1)
		old := r.producer("p", explicit)
		r.produce(old, "a")
		require.NoError(t, r.stage(old, 0))
		now := r.producer("p", explicit)
		require.Error(t, old.End(r.conn, true))
		_, err := old.Produce(r.conn, "out", 0, "b")
		require.Error(t, err)
		require.Error(t, r.stage(old, 0))
		r.produce(now, "c")
		require.NoError(t, r.stage(now, 0))
		require.NoError(t, now.End(r.conn, true))
		r.requireSeen("c")
		r.requireLedger(1, 1)
	})
}

func TestIndividualCommitsJoinTransactions(t *testing.T) {
	bothLines(t, func(t *testing.T, explicit bool) {
		r := newTxnRig(t, 10)
		p, q := r.producer("p", explicit), r.producer("q", explicit)
		require.NoError(t, r.stage(p, 2, 3))
		require.NoError(t, r.stage(p, 5))
		require.NoError(t, r.stage(p, 3, 5), "its own once more")
		r.requireLedger(0, 0)
		require.ErrorIs(t, r.stage(q, 1, 2), kerr.InvalidRecordState)
		_, err := r.conn.CommitIndividually("g", "in", 0, *commits(5))
		require.ErrorIs(t, err, kerr.InvalidRecordState)
		_, err = r.conn.CommitIndividually("g", "in", 0, protocol.IndividualOffsets{Reopen: []protocol.Run{{Start: 2, End: 4}}})
		require.NoError(t, err, "above all that is committed there is nothing to reopen")
		require.NoError(t, r.stage(q, 1), "nothing of a refused partition applies")
		require.NoError(t, p.End(r.conn, true))
		r.requireLedger(0, 6, protocol.Run{Start: 0, End: 2}, protocol.Run{Start: 4, End: 5})
		require.ErrorIs(t, r.stage(p, 2), kerr.InvalidRecordState, "committed already")
		require.NoError(t, p.End(r.conn, false))

		require.NoError(t, q.End(r.conn, false))
		r.requireLedger(0, 6, protocol.Run{Start: 0, End: 2}, protocol.Run{Start: 4, End: 5})
		require.NoError(t, r.stage(q, 0, 1, 4), "open again")
		require.NoError(t, q.End(r.conn, true))
		r.requireLedger(6, 6)
	})
}

func TestCumulativeCommitsOverPendingOnes(t *testing.T) {
	bothLines(t, func(t *testing.T, explicit bool) {
		r := newTxnRig(t, 10)
		p := r.producer("p", explicit)
		require.NoError(t, r.stage(p, 2, 7))
		require.NoError(t, r.conn.CommitCumulatively("g", "in", 0, 5, ""))
		r.requireLedger(5, 5)
		require.NoError(t, p.End(r.conn, false))
		r.requireLedger(5, 5)

		// One in a transaction counts unless another one is written meanwhile.
		require.NoError(t, p.Stage(r.conn, "g", "", "in", 0, 9, nil))
		r.requireLedger(5, 5)
		require.NoError(t, p.End(r.conn, true))
		r.requireLedger(9, 9)
		require.NoError(t, p.Stage(r.conn, "g", "", "in", 0, 10, nil))
		require.NoError(t, r.conn.CommitCumulatively("g", "in", 0, 3, ""))
		require.NoError(t, p.End(r.conn, true))
		r.requireLedger(3, 3)
	})
}

// TestLedgersWaitForTransactionsToBegin commits a plain offset in a transaction of a group
// that has no ledger: one that were founded meanwhile would not hear of the offset.
func TestLedgersWaitForTransactionsToBegin(t *testing.T) {
	bothLines(t, func(t *testing.T, explicit bool) {
		r := newTxnRig(t, 10)
		p := r.producer("p", explicit)
		require.NoError(t, p.Stage(r.conn, "g", "", "in", 0, 4, nil))
		_, err := r.conn.CommitIndividually("g", "in", 0, *commits(7))
		require.ErrorIs(t, err, kerr.UnstableOffsetCommit)
		require.NoError(t, p.End(r.conn, true))
		_, err = r.conn.CommitIndividually("g", "in", 0, *commits(7))
		require.NoError(t, err)
		r.requireLedger(4, 8, protocol.Run{Start: 4, End: 7})
	})
}

// TestStagedOffsetsSurviveARestart lets the broker stop while a transaction is open, and
// another one go on with it.
func TestStagedOffsetsSurviveARestart(t *testing.T) {
	bothLines(t, func(t *testing.T, explicit bool) {
		dir := t.TempDir()
		on := func(c *broker.Config) { c.DataDir = dir }
		var p *wire.Producer
		t.Run("before", func(t *testing.T) {
			r := &txnRig{t: t, conn: dial(t, startBroker(t, on).Addr())}
			r.fill(5)
			p = r.producer("p", explicit)
			r.produce(p, "a")
			require.NoError(t, r.stage(p, 3))
		})
		r := &txnRig{t: t, conn: dial(t, startBroker(t, on).Addr())}
		_, err := r.conn.CommitIndividually("g", "in", 0, *commits(3))
		require.ErrorIs(t, err, kerr.InvalidRecordState)
		r.requireSeen()
		r.produce(p, "b")
		require.NoError(t, p.End(r.conn, true))
		r.requireSeen("a", "b")
		r.requireLedger(0, 4, protocol.Run{Start: 0, End: 3})
	})
}

// TestTimeOutFreesWhatATransactionHolds has a client that is never heard of again.
func TestTimeOutFreesWhatATransactionHolds(t *testing.T) {
	r := newTxnRig(t, 5)
	p, err := r.conn.InitProducer("p", 200)
	require.NoError(t, err)
	r.produce(p, "a")
	require.NoError(t, r.stage(p, 3))
	require.Eventually(t, func() bool {
		_, err := r.conn.CommitIndividually("g", "in", 0, *commits(3))
		if err != nil {
			require.ErrorIs(t, err, kerr.InvalidRecordState)
		}
		return err == nil
	}, wire.Patience, 10*time.Millisecond)
	require.Error(t, p.End(r.conn, true))
	r.requireSeen()
}

// TestOperatorsAbort ends a transaction with a marker, as Kafka's tool does with one that
// hangs.
func TestOperatorsAbort(t *testing.T) {
	r := newTxnRig(t, 0)
	p := r.producer("p", true)
	r.produce(p, "a")
	describe := kmsg.NewPtrDescribeProducersRequest()
	describe.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "out", Partitions: []int32{0}}}
	active := r.do(describe).(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0].ActiveProducers
	require.Len(t, active, 1)
	require.EqualValues(t, 0, active[0].CurrentTxnStartOffset)

	abort := kmsg.NewPtrWriteTxnMarkersRequest()
	abort.SetVersion(1)
	abort.Markers = []kmsg.WriteTxnMarkersRequestMarker{{
		ProducerID: active[0].ProducerID, ProducerEpoch: int16(active[0].ProducerEpoch), CoordinatorEpoch: active[0].CoordinatorEpoch,
		Topics: []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: "out", Partitions: []int32{0}}},
	}}
	answer := r.do(abort).(*kmsg.WriteTxnMarkersResponse)
	require.Zero(t, answer.Markers[0].Topics[0].Partitions[0].ErrorCode)
	_, stable, err := r.conn.Committed("out", 0)
	require.NoError(t, err)
	require.EqualValues(t, 2, stable)
}

// TestShareGroupsStageWhatTheyHold goes through the life of records that members of a
// share group commit in transactions, in each delivery mode.
func TestShareGroupsStageWhatTheyHold(t *testing.T) {
	for _, mode := range []string{"round-robin", "key-ordered", "key-range"} {
		t.Run(mode, func(t *testing.T) {
			r := newTxnRig(t, 0)
			const group = 32 // the kind of resource
			require.NoError(t, r.conn.Configure(group, "g", map[string]string{
				"share.auto.offset.reset": "earliest", "share.delivery.mode": mode, "share.key.range.initial": "1",
			}))
			for range 6 {
				r.do(wire.ProduceRequest("in", 0, -1, batchOf(t, []byte("v"))))
			}
			m := &wire.ShareMember{Group: "g", ID: "11111111-2222-3333-4444-555555555555", Topic: "in", TopicID: r.in, Partitions: 1}
			require.NoError(t, m.Heartbeat(r.conn))
			dealt := r.dealt(m, 3)
			p, q := r.producer("p", false), r.producer("q", false)
			stage := func(p *wire.Producer, member string, offsets ...int64) error {
				return p.Stage(r.conn, "g", member, "in", 0, -1, commits(offsets...))
			}
			require.ErrorIs(t, stage(p, "nobody", dealt[0]), kerr.UnknownMemberID)
			require.ErrorIs(t, stage(p, m.ID, 5), kerr.InvalidRecordState, "it does not hold that")
			require.ErrorIs(t, p.Stage(r.conn, "g", m.ID, "in", 0, 3, nil), kerr.GroupIDNotFound)
			require.NoError(t, stage(p, m.ID, dealt[0], dealt[1]))
			require.NoError(t, stage(q, m.ID, dealt[2]))
			require.ErrorIs(t, stage(q, m.ID, dealt[1]), kerr.InvalidRecordState, "another transaction has it")
			refused, err := m.Acknowledge(r.conn, []wire.Acked{{First: dealt[1], Last: dealt[1], Type: 2}})
			require.NoError(t, err)
			require.ErrorIs(t, refused[0], kerr.InvalidRecordState, "a transaction has it")

			require.NoError(t, p.End(r.conn, true))
			r.requireLedger(dealt[1]+1, dealt[1]+1)
			require.NoError(t, q.End(r.conn, false))
			again := r.dealt(m, 1)
			require.Equal(t, dealt[2:], again, "what the abort has freed")
			require.NoError(t, stage(p, m.ID, again[0]))
			require.NoError(t, p.End(r.conn, true))
			r.requireLedger(3, 3)
			require.Equal(t, []int64{3, 4, 5}, r.dealt(m, 10))
		})
	}
}

// dealt fetches until a member has got records, and gives their offsets.
func (r *txnRig) dealt(m *wire.ShareMember, most int32) (offsets []int64) {
	r.t.Helper()
	answer, err := m.Fetch(r.conn, &wire.ShareFetch{MaxRecords: most, MaxBytes: 1 << 20, MaxWaitMs: 30_000})
	require.NoError(r.t, err)
	require.Empty(r.t, answer.Refused)
	for _, record := range answer.Records {
		offsets = append(offsets, record.Offset)
	}
	return offsets
}
