package client

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

// worldTxns are the transactions of a shareWorld, each with one record.
type worldTxns struct {
	txns []*worldTxn
	// pending are the offsets that the broker has in transactions, and whether the session
	// that acquired them has ended.
	pending map[int64]bool
}

type worldTxn struct {
	d       *delivery
	staged  bool // the broker has it
	refused bool
	outcome deliveryTxn // on its way to the worker
	ended   bool
}

func (w *worldTxns) orphanPending() {
	for o := range w.pending {
		w.pending[o] = true
	}
}

// inTransaction tells whether the broker does not deal an offset because of transactions: it
// is in one, or behind the key of one whose member is gone.
func (w *shareWorld) inTransaction(offset int64) bool {
	if _, ok := w.pending[offset]; ok {
		return true
	}
	for o, orphan := range w.pending {
		if orphan && w.state.order == orderByBroker && w.keys[o] == w.keys[offset] {
			return true
		}
	}
	return false
}

// pickTxn draws a transaction, nil if there is none of the kind.
func (w *shareWorld) pickTxn(kind func(*worldTxn) bool) *worldTxn {
	var of []*worldTxn
	for _, txn := range w.txns {
		if kind(txn) {
			of = append(of, txn)
		}
	}
	if len(of) == 0 {
		return nil
	}
	return rapid.SampledFrom(of).Draw(w.t, "transaction")
}

func (w *shareWorld) txnSteps(steps map[string]func(), calm bool) {
	if len(w.running) > 0 && !calm {
		steps["transaction begins"] = func() {
			d := rapid.SampledFrom(w.running).Draw(w.t, "record")
			if w.state.holdForTxn(d) {
				w.txns = append(w.txns, &worldTxn{d: d})
			}
			require.False(w.t, w.state.holdForTxn(d))
		}
	}
	if len(w.txns) == 0 {
		return
	}
	steps["stage arrives"] = func() {
		txn := w.pickTxn(func(txn *worldTxn) bool { return !txn.staged && !txn.refused && !txn.ended })
		if txn == nil {
			return
		}
		w.expire()
		o := txn.d.offset()
		if _, ok := w.acquired[o]; !ok {
			txn.refused = true
			return
		}
		delete(w.acquired, o)
		txn.staged, w.pending[o] = true, false
	}
	steps["transaction ends"] = func() {
		txn := w.pickTxn(func(txn *worldTxn) bool { return !txn.ended })
		if txn == nil {
			return
		}
		txn.ended, txn.outcome = true, txnNone
		if !txn.staged {
			return
		}
		o := txn.d.offset()
		delete(w.pending, o)
		if rapid.Bool().Draw(w.t, "commit") {
			w.done[o], txn.outcome = true, txnDone
			return
		}
		w.release(o, false)
		txn.outcome = txnReleased
	}
	steps["its end is heard"] = func() {
		txn := w.pickTxn(func(txn *worldTxn) bool { return txn.ended })
		if txn == nil {
			return
		}
		w.txns = slices.DeleteFunc(w.txns, func(other *worldTxn) bool { return other == txn })
		w.tell(w.state.settleTxn(txn.d, txn.outcome, w.now))
		require.Equal(w.t, len(w.txns), w.state.inTransactions)
	}
}

// A record that only a transaction has, since its session has ended, holds up those of its
// key: the transaction may commit it yet.
func TestKeyOfAnOrphanWaits(t *testing.T) {
	q := newShareQueue()
	at := sharePartition{topicID{1}, 0}
	push := func(offset int64, key string) {
		d := &delivery{at: at, record: ShareRecord{Record: &kgo.Record{Key: []byte(key), Offset: offset}}}
		require.True(t, q.push(d, orderByBroker))
	}
	push(1, "a")
	orphan := q.pop()
	orphan.inTxn = txnHeld
	q.clear(orphan.lane.key, orphan.session)
	q.orphan(orphan)
	push(1, "a")
	push(2, "a")
	push(3, "b")
	require.EqualValues(t, 3, q.pop().offset())
	require.Nil(t, q.pop())
	q.settled(orphan)
	require.EqualValues(t, 1, q.pop().offset())
	require.Nil(t, q.pop(), "one at a time")
	require.Empty(t, q.blocked)
}
