package client

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// orderedShare is a worker's state with one session, where the broker keeps the order of keys.
type orderedShare struct {
	t       *testing.T
	now     time.Time
	state   shareState
	session *shareSession
	at      sharePartition
}

func newOrderedShare(t *testing.T) *orderedShare {
	s := &orderedShare{t: t, now: time.UnixMilli(0), state: newShareState(3, 10), session: newShareSession(0, true), at: sharePartition{topicID{1}, 0}}
	s.state.order = orderByBroker
	s.session.wanted[s.at] = struct{}{}
	s.state.sessions[0] = s.session
	return s
}

// fetched lets a fetch bring these offsets, all of one key.
func (s *orderedShare) fetched(offsets ...int64) {
	f := s.state.nextFetch(s.session, s.now)
	require.NotNil(s.t, f)
	got := shareFetched{deliveries: s.deliveries(offsets...), deadline: s.now.Add(30 * time.Second)}
	require.Empty(s.t, s.state.fetched(s.session, f, s.now, got).lost)
}

// deliveries are what a fetch brings for the first time.
func (s *orderedShare) deliveries(offsets ...int64) (got []*delivery) {
	for _, offset := range offsets {
		record := ShareRecord{Record: &kgo.Record{Offset: offset, Key: []byte("key")}, DeliveryCount: 1}
		got = append(got, &delivery{record: record, at: s.at, session: s.session})
	}
	return got
}

// handled hands out the record at an offset, which is the next.
func (s *orderedShare) handled(offset int64) *delivery {
	d := s.state.queue.pop()
	require.NotNil(s.t, d)
	require.Equal(s.t, offset, d.offset())
	return d
}

// says is what the next acknowledgement says.
func (s *orderedShare) says(runs ...ackRun) *shareAck {
	a := s.session.acknowledge(s.now)
	require.NotNil(s.t, a)
	require.Len(s.t, a.parts, 1)
	require.Equal(s.t, runs, a.parts[0].appendRuns(nil))
	return a
}

func (s *orderedShare) answered(a *shareAck, err error) shareEvents {
	return s.state.acknowledged(s.session, a, s.now, s.now.Add(30*time.Second), map[sharePartition]error{s.at: err})
}

// What was accepted may be refused when it is said again, after an answer that left open what
// the broker had done. Then the broker has not released the later records of the key: if the
// worker kept one of these acquired without knowing, those behind it would overtake it.
func TestShareReleasesWhatAHandlerHasBehindARefusedRecord(t *testing.T) {
	s := newOrderedShare(t)
	s.fetched(2, 3, 4)
	s.state.finish(s.handled(2), ackAccept, time.Second)
	running := s.handled(3)
	s.answered(s.says(ackRun{2, 2, ackAccept}), kerr.KafkaStorageError)
	s.now = s.now.Add(retryAcks)
	e := s.answered(s.says(ackRun{2, 2, ackAccept}), kerr.InvalidRecordState)
	require.Len(t, e.lost, 2)
	require.Same(t, running, e.lost[1].delivery)
	require.Equal(t, deliveryRunning, e.lost[1].was, "its handler is to know")

	released := s.says(ackRun{3, 4, ackRelease})
	require.Nil(t, s.state.nextFetch(s.session, s.now))
	require.Empty(t, s.answered(released, nil).lost)
	require.Empty(t, s.state.finish(running, ackAccept, time.Second))
	require.Nil(t, s.session.acknowledge(s.now), "what the handler of a lost record returned does not count")
	require.Empty(t, s.state.queue.lanes)
	require.Empty(t, s.session.held)

	s.fetched(3, 4)
	s.handled(3)
	require.Nil(t, s.state.queue.pop())
}

// The answer of a fetch says first what became of acknowledgements, and then brings records that
// may have been acquired before something was released.
func TestShareFetchThatAnswersAcknowledgementsMayBringStaleRecords(t *testing.T) {
	s := newOrderedShare(t)
	s.fetched(2, 3)
	s.state.finish(s.handled(2), ackAccept, time.Second)
	running := s.handled(3)
	f := s.state.nextFetch(s.session, s.now)
	require.NotEmpty(t, f.acks)
	s.state.finish(running, ackRelease, time.Second)
	s.answered(s.says(ackRun{3, 3, ackRelease}), nil)

	late := &delivery{record: ShareRecord{Record: &kgo.Record{Offset: 4, Key: []byte("key")}, DeliveryCount: 1}, at: s.at, session: s.session}
	got := shareFetched{deliveries: []*delivery{late}, deadline: s.now.Add(30 * time.Second), acks: map[sharePartition]error{s.at: kerr.InvalidRecordState}}
	s.state.fetched(s.session, f, s.now, got)
	require.Nil(t, s.state.queue.pop())
	s.answered(s.says(ackRun{4, 4, ackRelease}), nil)
	s.fetched(3, 4)
	s.handled(3)
}

// A release that is sent while a fetch is on its way may end what that fetch brings: the broker
// has released the later records of a key by itself, and dealt them anew, before it is asked to.
func TestShareRefusesWhatItMayHaveReleasedAnew(t *testing.T) {
	for _, answeredFirst := range []bool{false, true} {
		s := newOrderedShare(t)
		s.fetched(2, 3)
		first := s.handled(2)
		first.record.DeliveryCount = fewestDeliveries // the broker may archive it, and keep what is behind it
		f := s.state.nextFetch(s.session, s.now)
		require.NotNil(t, f)
		s.state.finish(first, ackRelease, time.Second)
		s.answered(s.says(ackRun{2, 2, ackRelease}), nil)
		released := s.says(ackRun{3, 3, ackRelease})
		if answeredFirst {
			s.answered(released, nil)
		}
		got := shareFetched{deliveries: s.deliveries(2, 3, 4), deadline: s.now.Add(30 * time.Second)}
		s.state.fetched(s.session, f, s.now, got)
		if !answeredFirst {
			s.answered(released, nil)
		}

		s.state.finish(s.handled(2), ackAccept, time.Second)
		require.Nil(t, s.state.queue.pop(), "others may have these")
		require.Nil(t, s.state.nextFetch(s.session, s.now))
		s.answered(s.says(ackRun{3, 4, ackRelease}), kerr.InvalidRecordState)
		s.answered(s.says(ackRun{3, 3, ackRelease}), kerr.InvalidRecordState)
		s.answered(s.says(ackRun{4, 4, ackRelease}), nil)
		s.answered(s.says(ackRun{2, 2, ackAccept}), nil)
		require.Empty(t, s.state.queue.lanes)
		require.Empty(t, s.session.held)
		s.fetched(3, 4)
		s.handled(3)
	}
}

// The lock of a record ran out, and the fetch on its way brings it anew: what is said of it
// then is said of that.
func TestShareDoesNotHandleAgainWhatItAcceptedLate(t *testing.T) {
	for _, order := range []keepOrder{orderNone, orderByBroker} {
		s := newOrderedShare(t)
		s.state.order = order
		s.fetched(2)
		f := s.state.nextFetch(s.session, s.now)
		s.state.finish(s.handled(2), ackAccept, time.Second)
		require.Len(t, s.answered(s.says(ackRun{2, 2, ackAccept}), nil).acked, 1)
		got := shareFetched{deliveries: s.deliveries(2), deadline: s.now.Add(30 * time.Second)}
		s.state.fetched(s.session, f, s.now, got)
		require.Nil(t, s.state.queue.pop())
		s.answered(s.says(ackRun{2, 2, ackRelease}), kerr.InvalidRecordState)
		require.Empty(t, s.state.queue.lanes)
		require.Empty(t, s.session.held)
	}
}

func TestShareDoesNotFetchWhatWouldBeStale(t *testing.T) {
	for _, full := range []bool{false, true} {
		s := newOrderedShare(t)
		s.fetched(2, 3)
		s.session.full = full
		s.state.finish(s.handled(2), ackRelease, time.Second)
		f := s.state.nextFetch(s.session, s.now)
		if full {
			require.Len(t, f.acks, 1)
			continue
		}
		require.Nil(t, f)
		s.answered(s.says(ackRun{2, 2, ackRelease}), nil)
		s.fetched(2, 3)
		s.handled(2)
	}
}

// A broker that fails without saying what became of an acquisition may keep it.
func TestShareReleasesWhatABrokerMayHaveKept(t *testing.T) {
	for _, outcome := range []ackKind{ackAccept, ackRelease} {
		s := newOrderedShare(t)
		s.fetched(2, 3, 4)
		s.state.finish(s.handled(2), outcome, time.Second)
		require.Len(t, s.answered(s.says(ackRun{2, 2, outcome}), kerr.UnknownServerError).lost, 1)
		s.answered(s.says(ackRun{2, 4, ackRelease}), nil)
		require.Empty(t, s.state.queue.lanes)
		require.Empty(t, s.session.held)
		s.fetched(2, 3)
		s.handled(2)
	}
}

// A lock may have been renewed although the answer says otherwise.
func TestShareReleasesWhatIsExpiredHereOnly(t *testing.T) {
	s := newOrderedShare(t)
	s.fetched(2, 3)
	running := s.handled(2)
	s.now = s.now.Add(15 * time.Second)
	a := s.says(ackRun{2, 3, ackRenew})
	require.Empty(t, s.answered(a, kerr.UnknownServerError))
	s.now = s.now.Add(15 * time.Second)
	e := s.state.expire(s.session, s.now)
	require.Equal(t, []lost{{running, deliveryRunning, ErrLockLost}}, e.lost)
	s.answered(s.says(ackRun{2, 3, ackRelease}), nil)
	s.fetched(2, 3)
	s.handled(2)
}

func TestShareReleasesWhatIsExpiredHereOnlyDuringATransaction(t *testing.T) {
	s := newOrderedShare(t)
	s.fetched(2, 3)
	held := s.handled(2)
	s.now = s.now.Add(15 * time.Second)
	require.Empty(t, s.answered(s.says(ackRun{2, 3, ackRenew}), kerr.UnknownServerError))
	require.True(t, s.state.holdForTxn(held))
	s.now = s.now.Add(15 * time.Second)
	s.state.expire(s.session, s.now)
	require.Empty(t, s.state.finish(held, ackAccept, time.Second))
	require.Len(t, s.state.settleTxn(held, txnNone, s.now).lost, 1)
	s.answered(s.says(ackRun{2, 3, ackRelease}), nil)
	require.Empty(t, s.session.held)
	s.fetched(2)
	s.handled(2)
}

// A transaction decides about its record, which the broker keeps until then.
func TestShareLeavesARecordInATransactionWhereItIs(t *testing.T) {
	s := newOrderedShare(t)
	s.fetched(2, 3, 4)
	s.state.finish(s.handled(2), ackAccept, time.Second)
	pending := s.handled(3)
	require.True(t, s.state.holdForTxn(pending))
	require.Len(t, s.answered(s.says(ackRun{2, 2, ackAccept}), kerr.InvalidRecordState).lost, 1)
	s.answered(s.says(ackRun{4, 4, ackRelease}), nil)

	s.fetched(4)
	require.Nil(t, s.state.queue.pop(), "it overtakes what is in the transaction")
	require.Empty(t, s.state.settleTxn(pending, txnDone, s.now))
	require.Equal(t, []*delivery{pending}, s.state.finish(pending, ackAccept, time.Second).acked)
	s.handled(4)
}

// A partition has moved to another broker, and what was acquired there is behind what is held
// of the old one.
func TestShareSessionThatBreaksLeavesTheRecordsOfOthers(t *testing.T) {
	for _, order := range []keepOrder{orderHere, orderByBroker} {
		s := newOrderedShare(t)
		s.state.order = order
		s.fetched(2, 3)
		first, old := s.handled(2), s.session
		s.session = newShareSession(1, true)
		s.state.sessions[1] = s.session
		s.session.wanted, old.wanted = old.wanted, nil
		s.fetched(2, 3)
		require.Nil(t, s.state.queue.pop())

		noWait := func(int) time.Duration { return 0 }
		e := s.state.failed(old, nil, nil, s.now, noWait, kerr.NetworkException)
		require.Len(t, e.lost, 2)
		require.Empty(t, old.held)
		s.state.finish(first, ackAccept, time.Second)
		s.state.finish(s.handled(2), ackAccept, time.Second)
		s.state.finish(s.handled(3), ackAccept, time.Second)
		s.says(ackRun{2, 3, ackAccept})
		require.Empty(t, s.state.queue.lanes)
	}
}
