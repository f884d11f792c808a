package individualcommit

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// unreadOf counts the records of transactions that cannot be read.
func unreadOf(e *Entry) (n int) {
	for _, st := range e.staged {
		if st.unread != nil {
			n++
		}
	}
	for _, o := range e.outcomes {
		if o.unread != nil {
			n++
		}
	}
	return n
}

// downgraded is a log of which a later version of Lacuna wrote one record, with a ledger
// of which two producers hold something.
type downgraded struct {
	id    ID
	log   []Record
	later int // which record the version at hand cannot read
}

// The producers, and the records of the log.
const (
	wanted, bystander = 7, 8

	laterSnapshot, laterPending, laterOther, records = 0, 2, 4, 6
)

func newDowngraded(later int) *downgraded {
	d := &downgraded{id: ID{Group: "g"}, later: later}
	s := NewState(0)
	var w Records
	e := s.Found(&w, d.id, NewLedger(0, 0, 100), Delta{Commit: []Run{{Start: 1, End: 2}}}, nil, 1)
	s.Log(&w, e, Delta{Commit: []Run{{Start: 3, End: 4}}}, nil, 2)
	s.Stage(&w, e, Producer{wanted, 1}, StageRequest{Offset: NoOffset, Commit: []Run{{Start: 10, End: 12}}})
	s.Stage(&w, e, Producer{wanted, 1}, StageRequest{Offset: NoOffset, Commit: []Run{{Start: 20, End: 21}}})
	s.Stage(&w, e, Producer{bystander, 0}, StageRequest{Offset: NoOffset, Commit: []Run{{Start: 30, End: 31}}})
	s.LogCounts(&w, e, 0, []byte("counts"))
	d.append(&w)
	return d
}

func (d *downgraded) append(w *Records) {
	for _, r := range w.All() {
		d.log = append(d.log, Record{bytes.Clone(r.Key), bytes.Clone(r.Value)})
	}
	w.Reset()
}

// load is a State of the log, which the version at hand has, or the later one. In the order
// of the keys it is as from a view, which holds the last record of each.
func (d *downgraded) load(later, byKey bool) (*State, *Entry) {
	log := slices.Clone(d.log)
	if !later {
		log[d.later].Value = bytes.Clone(log[d.later].Value)
		log[d.later].Value[1] = 9
	}
	if byKey {
		last := map[string]Record{}
		for _, r := range log {
			last[string(r.Key)] = r
		}
		log = log[:0]
		for _, key := range slices.Sorted(maps.Keys(last)) {
			if r := last[key]; r.Value != nil {
				log = append(log, r)
			}
		}
	}
	s := NewState(0)
	for _, r := range log {
		_ = s.Apply(r.Key, r.Value)
	}
	return s, s.Get(d.id)
}

// TestTransactionsOfLedgersInTrouble ends a transaction while a record of the ledger is of a
// later version, whichever that is. The later version finds it committed or aborted, once,
// and nothing of it left; the transaction of the other producer goes on.
func TestTransactionsOfLedgersInTrouble(t *testing.T) {
	for later := range records {
		for _, commit := range []bool{true, false} {
			for _, byKey := range []bool{true, false} {
				t.Run(fmt.Sprintf("later=%d,commit=%v,byKey=%v", later, commit, byKey), func(t *testing.T) {
					newDowngraded(later).end(t, commit, byKey)
				})
			}
		}
	}
}

// endAll ends all that a producer holds, as the broker does.
func (d *downgraded) endAll(t *testing.T, s *State, w *Records, producerID int64, commit bool) {
	t.Helper()
	ended := false
	for _, p := range s.Transactions(producerID) {
		for _, id := range s.Staging(p) {
			require.Equal(t, Delta{}, s.EndTransaction(w, s.Get(id), p, commit, 100, 3))
			ended = true
		}
	}
	require.True(t, ended)
}

func (d *downgraded) end(t *testing.T, commit, byKey bool) {
	var w Records
	s, e := d.load(false, byKey)
	require.ErrorIs(t, e.Trouble(), ErrUnknownVersion)
	d.endAll(t, s, &w, wanted, commit)
	d.append(&w)

	// Its producer goes on, also after a restart, and aborts a transaction that is elsewhere.
	s, e = d.load(false, byKey)
	require.Equal(t, unreadOf(e), e.unread)
	for _, p := range s.Transactions(wanted) {
		require.Empty(t, s.Staging(p))
	}
	s.EndTransaction(&w, e, Producer{wanted, 2}, false, 100, 4)
	require.Zero(t, w.Len())

	s, e = d.load(true, byKey)
	require.NoError(t, e.Trouble())
	s.SettleOutcomes(&w, e, 100, 5)
	d.append(&w)
	for range 2 {
		require.Equal(t, commit, e.Ledger.IsCommitted(10) && e.Ledger.IsCommitted(11) && e.Ledger.IsCommitted(20))
		require.Equal(t, []Run{{Start: 30, End: 31}}, slices.Collect(e.Ledger.Pending(0)))
		require.NoError(t, e.Ledger.CheckStage(Producer{wanted, 3}, []Run{{Start: 12, End: 13}}, 100))
		require.False(t, e.decided(wanted))
		require.Equal(t, memoryOf(s), s.MemoryBytes())
		s, e = d.load(true, byKey)
	}
}

// TestOutcomesInOrder: cumulative commits of transactions apply as they were decided.
func TestOutcomesInOrder(t *testing.T) {
	for _, byKey := range []bool{true, false} {
		d := &downgraded{id: ID{Group: "g"}, later: laterSnapshot}
		s := NewState(0)
		var w Records
		e := s.Found(&w, d.id, NewLedger(0, 0, 100), Delta{}, nil, 1)
		for id := range int64(3) {
			s.Stage(&w, e, Producer{ID: id}, StageRequest{Offset: 10 * (id + 1), Commit: nil})
		}
		d.append(&w)
		for _, id := range []int64{1, 2, 0} {
			s, e = d.load(false, byKey)
			s.EndTransaction(&w, e, Producer{ID: id}, true, 100, 1)
			d.append(&w)
		}
		s, e = d.load(true, byKey)
		s.SettleOutcomes(&w, e, 100, 1)
		require.EqualValues(t, 20, e.Ledger.Stable(), "the first, since it took the place of what the others knew")
		require.Empty(t, e.staged)
	}
}

// TestTroubleThatEnds: the one record that could not be read is gone with its transaction,
// and the ledger, which was whole but for that, is sound again.
func TestTroubleThatEnds(t *testing.T) {
	d := newDowngraded(laterOther)
	s, e := d.load(false, false)
	var w Records
	d.endAll(t, s, &w, bystander, false)
	require.NoError(t, e.Trouble())
	require.False(t, e.Ledger.IsCommitted(30))
	require.Equal(t, []Run{{Start: 10, End: 12}, {Start: 20, End: 21}}, slices.Collect(e.Ledger.Pending(0)))
}

// TestLedgersThatAreGivenUp take all of their records with them, also those that cannot be
// read.
func TestLedgersThatAreGivenUp(t *testing.T) {
	d := newDowngraded(laterPending)
	s, e := d.load(false, false)
	var w Records
	d.endAll(t, s, &w, wanted, true)
	s.Delete(&w, e)
	d.append(&w)
	for _, byKey := range []bool{true, false} {
		s, e = d.load(false, byKey)
		require.Nil(t, e)
		require.Zero(t, s.MemoryBytes())
	}
}
