package transaction

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TestCommit is the life of a transaction in each version of the protocol.
func TestCommit(t *testing.T) {
	for version, epoch := range map[int8]int16{0: 0, 2: 1} {
		r := newRig(t)
		p := r.mustInit(None)
		require.Equal(t, Producer{ID: 100}, p)
		require.Nil(t, r.add(p, version, b0, a1))
		require.Nil(t, r.add(p, version, a0, b0))
		logged := len(r.log)
		require.Nil(t, r.add(p, version, a1), "it is there already")
		require.Len(t, r.log, logged)
		_, v, failed := decodeRecord(r.log[logged-1].Key, r.log[logged-1].Value)
		require.NoError(t, failed)
		require.Equal(t, version, v.version)
		require.True(t, r.state.Ongoing("t", p, a1))
		require.False(t, r.state.Ongoing("t", p, TopicPartition{Topic: "b", Partition: 1}))

		next, err := r.end(p, version, true)
		require.Nil(t, err)
		require.Equal(t, []string{"t"}, r.ended)
		require.False(t, r.state.Ongoing("t", p, a1))
		ended := Producer{ID: 100, Epoch: epoch}
		if version == 2 {
			require.Equal(t, ended, next)
		} else {
			require.Equal(t, None, next)
		}
		require.Equal(t, Completion{
			Producer: ended, Version: version, Commit: true, Partitions: []TopicPartition{a0, a1, b0},
		}, r.complete())
		require.Equal(t, CompleteCommit, r.describe().Status)
		require.Empty(t, r.state.Ending())
	}
}

// TestInitFences holds that a new producer aborts the transaction of the one before it, and
// leaves that one nothing to do.
func TestInitFences(t *testing.T) {
	r := newRig(t)
	old := r.mustInit(None)
	r.mustBegin(old, 2)
	_, err := r.init(None)
	require.Equal(t, kerr.ConcurrentTransactions, err)
	_, err = r.init(None)
	require.Equal(t, kerr.ConcurrentTransactions, err, "the markers are not written")
	require.Equal(t, []string{"t"}, r.ended, "aborted once")
	require.Equal(t, Completion{Producer: Producer{100, 1}, Version: 2, Partitions: []TopicPartition{a0}}, r.complete())
	p := r.mustInit(None)
	require.Equal(t, Producer{100, 2}, p)

	require.Equal(t, kerr.ProducerFenced, r.add(old, 2, a0))
	_, err = r.end(old, 2, true)
	require.Equal(t, kerr.ProducerFenced, err)
	_, err = r.init(old)
	require.Equal(t, kerr.ProducerFenced, err)
	r.mustBegin(p, 2)
	_, err = r.init(old)
	require.Equal(t, kerr.ProducerFenced, err)
	require.Equal(t, Ongoing, r.describe().Status, "the transaction of the newer producer goes on")
}

// TestInitAgain holds that a producer that asks for its next epoch twice, because it did
// not hear the answer, gets the same, also after a restart, and that others do not.
func TestInitAgain(t *testing.T) {
	r := newRig(t)
	first := r.mustInit(None)
	second := r.mustInit(first)
	require.Equal(t, Producer{100, 1}, second)
	for range 2 {
		require.Equal(t, second, r.mustInit(first))
		r.restart()
	}
	r.mustBegin(second, 2)
	_, err := r.init(first)
	require.Equal(t, kerr.ProducerFenced, err, "somebody heard the answer")
	_, err = r.init(Producer{ID: 99})
	require.Equal(t, kerr.ProducerFenced, err, "another producer id")
}

// TestInitAfterEnd holds that a producer may ask for an epoch when it did not hear that
// its transaction ended.
func TestInitAfterEnd(t *testing.T) {
	r := newRig(t)
	p := r.mustInit(None)
	r.mustBegin(p, 2)
	next, err := r.end(p, 2, true)
	require.Nil(t, err)
	r.complete()
	require.Equal(t, next, r.mustInit(p))
	require.Equal(t, next, r.mustInit(p))
	require.Equal(t, Producer{100, 2}, r.mustInit(next))
}

// TestInitBounds holds what an InitProducerId may say.
func TestInitBounds(t *testing.T) {
	r := newRig(t)
	var out Output
	for ms, want := range map[int32]*kerr.Error{
		0: kerr.InvalidTransactionTimeout, -1: kerr.InvalidTransactionTimeout,
		900_001: kerr.InvalidTransactionTimeout, 900_000: nil,
	} {
		_, err := r.state.InitProducerID(r.now, &InitRequest{TransactionalID: "t", TimeoutMs: ms, Expected: None, NewID: 1}, &out)
		require.Equal(t, want, err, "%d ms", ms)
	}
	_, err := r.state.InitProducerID(r.now, &InitRequest{TimeoutMs: 1, Expected: None, NewID: 1}, &out)
	require.Equal(t, kerr.InvalidRequest, err)
	require.Len(t, out.Records, 1)
}

// TestUnknown holds that nobody has a transaction under an id that was not initialised.
func TestUnknown(t *testing.T) {
	r := newRig(t)
	require.Equal(t, kerr.InvalidProducerIDMapping, r.add(Producer{}, 2, a0))
	_, err := r.end(Producer{}, 2, true)
	require.Equal(t, kerr.InvalidProducerIDMapping, err)
	_, err = r.state.Verify("t", Producer{}, []TopicPartition{a0})
	require.Equal(t, kerr.InvalidProducerIDMapping, err)
	_, err = r.state.Verify("", Producer{}, nil)
	require.Equal(t, kerr.InvalidRequest, err)
	require.Equal(t, kerr.InvalidRequest, r.state.AddPartitions(r.now, &AddRequest{}, nil))
	_, err = r.state.End(r.now, &EndRequest{}, nil)
	require.Equal(t, kerr.InvalidRequest, err)
	require.False(t, r.state.Ongoing("t", Producer{}, a0))
	_, found := r.state.Describe("t")
	require.False(t, found)
	require.Empty(t, r.log)
}

// TestNeedsProducerID holds that without a new producer id nothing is decided that needs
// one.
func TestNeedsProducerID(t *testing.T) {
	r := newRig(t)
	var out Output
	init := &InitRequest{TransactionalID: "t", TimeoutMs: 1000, Expected: None, NewID: -1}
	_, err := r.state.InitProducerID(r.now, init, &out)
	require.Equal(t, kerr.ConcurrentTransactions, err)
	r.mustInit(None)
	p := Producer{100, math.MaxInt16 - 1}
	r.setProducer(p)
	_, err = r.state.InitProducerID(r.now, init, &out)
	require.Equal(t, kerr.ConcurrentTransactions, err)
	r.mustBegin(p, 2)
	_, err = r.state.End(r.now, &EndRequest{TransactionalID: "t", Producer: p, Version: 2, NewID: -1}, &out)
	require.Equal(t, kerr.ConcurrentTransactions, err)
	require.Empty(t, out)
}

// TestRotation holds that a producer whose epochs run out goes on with a new producer id.
func TestRotation(t *testing.T) {
	last := Producer{100, math.MaxInt16 - 1}
	exhausted := func(t *testing.T) *rig {
		r := newRig(t)
		r.mustInit(None)
		r.setProducer(last)
		return r
	}
	t.Run("at InitProducerId", func(t *testing.T) {
		r := exhausted(t)
		require.Equal(t, Producer{ID: 101}, r.mustInit(None))
		_, err := r.init(last)
		require.Equal(t, kerr.ProducerFenced, err, "another producer came")
	})
	t.Run("at InitProducerId, twice", func(t *testing.T) {
		r := exhausted(t)
		for range 3 {
			require.Equal(t, Producer{ID: 101}, r.mustInit(last))
			r.restart()
		}
	})
	t.Run("at the end of a transaction", func(t *testing.T) {
		r := exhausted(t)
		r.mustBegin(last, 2)
		next, err := r.end(last, 2, true)
		require.Nil(t, err)
		require.Equal(t, Producer{ID: 101}, next)
		_, err = r.end(last, 2, true)
		require.Equal(t, kerr.ConcurrentTransactions, err)
		require.Equal(t, Producer{100, math.MaxInt16}, r.complete().Producer, "the markers are of the old one")
		r.restart()
		again, err := r.end(last, 2, true)
		require.Nil(t, err)
		require.Equal(t, next, again)
		_, err = r.end(last, 2, false)
		require.Equal(t, kerr.InvalidTxnState, err)
		require.Equal(t, next, r.mustInit(last))
	})
	t.Run("after a timeout", func(t *testing.T) {
		r := exhausted(t)
		r.mustBegin(last, 2)
		r.now = r.now.Add(time.Minute)
		r.tick()
		r.complete()
		require.Equal(t, Producer{100, math.MaxInt16}, r.describe().Producer)
		require.Equal(t, kerr.ProducerFenced, r.add(Producer{100, math.MaxInt16}, 2, a0), "nobody has that epoch")
		for range 2 {
			next, err := r.end(last, 2, false)
			require.Nil(t, err)
			require.Equal(t, Producer{ID: 101}, next)
			r.restart()
		}
		require.Equal(t, CompleteAbort, r.describe().Status)
	})
	t.Run("after a timeout, at InitProducerId", func(t *testing.T) {
		r := exhausted(t)
		r.mustBegin(last, 2)
		r.now = r.now.Add(time.Minute)
		r.tick()
		r.complete()
		for range 2 {
			require.Equal(t, Producer{ID: 101}, r.mustInit(last))
		}
	})
}

// TestEndAgain repeats the end of a transaction until and after its markers are written.
func TestEndAgain(t *testing.T) {
	for _, version := range []int8{0, 2} {
		for _, commit := range []bool{false, true} {
			r := newRig(t)
			p := r.mustInit(None)
			r.mustBegin(p, version)
			first, err := r.end(p, version, commit)
			require.Nil(t, err)
			r.restart()
			require.Equal(t, []string{"t"}, r.state.Ending())
			_, err = r.end(p, version, commit)
			require.Equal(t, kerr.ConcurrentTransactions, err)
			require.Equal(t, kerr.ConcurrentTransactions, r.add(r.describe().Producer, version, a0))
			_, err = r.state.Verify("t", r.describe().Producer, []TopicPartition{a0})
			require.Equal(t, kerr.ConcurrentTransactions, err)
			r.complete()
			logged := len(r.log)
			again, err := r.end(p, version, commit)
			require.Nil(t, err)
			require.Equal(t, first, again)
			_, err = r.end(p, version, !commit)
			require.Equal(t, kerr.InvalidTxnState, err)
			require.Len(t, r.log, logged)
		}
	}
}

// TestVersionOfTheEnd holds that a transaction is of the version by which it is ended,
// whichever it was begun by.
func TestVersionOfTheEnd(t *testing.T) {
	for _, version := range []int8{0, 2} {
		r := newRig(t)
		p := r.mustInit(None)
		r.mustBegin(p, 2-version)
		_, err := r.end(p, version, true)
		require.Nil(t, err)
		require.Equal(t, version, r.complete().Version)
	}
}

// TestEndOfNobody: a request that names no producer is a retry of nothing.
func TestEndOfNobody(t *testing.T) {
	r := newRig(t)
	p := r.mustInit(None)
	r.mustBegin(p, 0)
	_, err := r.end(p, 0, false)
	require.Nil(t, err)
	r.complete()
	_, err = r.end(None, 2, false)
	require.Equal(t, kerr.InvalidProducerIDMapping, err)
}

// TestOldVersionIsNoRetry: in version 1 the epoch before belongs to another producer, which
// is fenced also when it speaks version 2.
func TestOldVersionIsNoRetry(t *testing.T) {
	r := newRig(t)
	old := r.mustInit(None)
	p := r.mustInit(None)
	r.mustBegin(p, 0)
	_, err := r.end(p, 0, true)
	require.Nil(t, err)
	r.complete()
	_, err = r.end(old, 2, true)
	require.Equal(t, kerr.ProducerFenced, err)
}

// TestEmptyAbort: in version 2 a transaction of no partitions may be aborted, since the
// client does not know whether a partition was added; in version 1 it may not.
func TestEmptyAbort(t *testing.T) {
	r := newRig(t)
	p := r.mustInit(None)
	_, err := r.end(p, 0, false)
	require.Equal(t, kerr.InvalidTxnState, err)
	_, err = r.end(p, 2, true)
	require.Equal(t, kerr.InvalidTxnState, err)
	for epoch := range int16(3) {
		next, err := r.end(p, 2, false)
		require.Nil(t, err)
		require.Equal(t, Producer{100, epoch + 1}, next)
		require.Equal(t, Completion{Producer: next, Version: 2}, r.complete())
		require.Equal(t, r.now.UnixMilli(), r.describe().StartMs)
		p = next
	}
}

// TestVerify tells which partitions are in the transaction.
func TestVerify(t *testing.T) {
	r := newRig(t)
	p := r.mustInit(None)
	r.mustBegin(p, 0)
	errs, err := r.state.Verify("t", p, []TopicPartition{b0, a0})
	require.Nil(t, err)
	require.Equal(t, []*kerr.Error{kerr.TransactionAbortable, nil}, errs)
	_, err = r.state.Verify("t", Producer{100, 1}, []TopicPartition{a0})
	require.Equal(t, kerr.ProducerFenced, err)
}

// TestLateCompletion: the markers of a transaction that somebody has completed already
// change nothing about the next.
func TestLateCompletion(t *testing.T) {
	r := newRig(t)
	p := r.mustInit(None)
	r.mustBegin(p, 2)
	p, err := r.end(p, 2, true)
	require.Nil(t, err)
	late := r.complete()
	r.mustBegin(p, 2)
	_, err = r.end(p, 2, true)
	require.Nil(t, err)
	logged := len(r.log)
	r.do(func(out *Output) { r.state.Complete(r.now, "t", late.Producer, out) })
	require.Len(t, r.log, logged)
	require.Equal(t, PrepareCommit, r.describe().Status)
}

func BenchmarkTransaction(b *testing.B) {
	b.ReportAllocs()
	s := NewState(DefaultConfig())
	var out Output
	p, _ := s.InitProducerID(start, &InitRequest{TransactionalID: "t", TimeoutMs: 1000, Expected: None, NewID: 1}, &out)
	for b.Loop() {
		out = Output{Records: out.Records[:0], Ended: out.Ended[:0]}
		_ = s.AddPartitions(start, &AddRequest{TransactionalID: "t", Producer: p, Version: 2, Partitions: []TopicPartition{a0, b0}}, &out)
		if !s.Ongoing("t", p, a0) {
			b.Fatal("not begun")
		}
		next, err := s.End(start, &EndRequest{TransactionalID: "t", Producer: p, Version: 2, Commit: true, NewID: p.ID + 1}, &out)
		if err != nil {
			b.Fatal(err)
		}
		c, _ := s.Completion("t")
		s.Complete(start, "t", c.Producer, &out)
		p = next
	}
}
