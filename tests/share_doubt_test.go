package tests

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/tests/wire"
)

// dealtAt has the account take in that a worker sees a record of the key "k" now, by a fetch that
// it sent so long ago.
func (a *shareAccount) dealtAt(w *shareWorker, offset int64, count int16, ago time.Duration) {
	sent := time.Now().Add(-ago)
	a.delivered(w, sent, sent, []wire.Shared{{Offset: offset, Key: []byte("k"), Count: count}})
}

// saysAt has it take in that a worker says something of a record, and is answered.
func (a *shareAccount) saysAt(w *shareWorker, offset int64, kind int8) {
	s := a.asking(w, a.mu.records[shareOffset{0, offset}], kind)
	a.answered(w, time.Now(), []said{s}, nil)
}

// accountWorker is a worker whom the group keeps.
func accountWorker(id string) *shareWorker {
	w := &shareWorker{m: &wire.ShareMember{ID: id}}
	w.heard.Store(time.Now().Add(time.Hour).UnixNano())
	return w
}

// TestAccountOfAnUnseenLastDelivery has a record archived at its limit by a delivery of which it
// is not known whether its worker still had it when it saw it, since an earlier one of the
// key went to another meanwhile. Who had it before does not hold up the key.
func TestAccountOfAnUnseenLastDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newShareAccount(sharePlan{mode: "round-robin", switches: true}, shareLimit, shareLock)
		one, two := accountWorker("one"), accountWorker("two")
		a.dealtAt(one, 7, 1, 0)
		for count := range int16(shareLimit - 2) {
			a.dealtAt(two, 80, count+1, 0)
			a.saysAt(two, 80, ackRelease)
		}
		a.dealtAt(two, 80, shareLimit-1, 0)
		<-time.After(shareLock + 20*time.Millisecond) // both locks run out
		a.dealtAt(two, 7, 2, 0)
		<-time.After(10 * time.Millisecond)
		a.dealtAt(one, 80, shareLimit, 20*time.Millisecond)
		a.saysAt(two, 7, ackAccept)
		<-time.After(shareLock) // the broker archives it
		a.mu.modes = append(a.mu.modes, modeChange{mode: "key-ordered", sent: time.Now(), heard: time.Now()})
		<-time.After(10 * time.Millisecond)
		a.dealtAt(one, 108, 1, 0)
		require.Empty(t, a.faults())
	})
}

// TestAccountOfADeliverySeenLate has somebody see what he was dealt after its lock ran out and
// another was dealt it, who saw that at once. That the other's count was right is known then.
func TestAccountOfADeliverySeenLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newShareAccount(sharePlan{mode: "round-robin"}, shareLimit, shareLock)
		one, two := accountWorker("one"), accountWorker("two")
		a.dealtAt(two, 7, 2, 0)
		require.Len(t, a.faults(), 1)
		a.dealtAt(one, 7, 1, shareLock+20*time.Millisecond)
		require.Empty(t, a.faults())
		require.True(t, a.has(two, a.mu.records[shareOffset{0, 7}]))
	})
}

// TestAccountOfARecordThatComesAgainLate has a worker see late that it has a record once more. What
// it said of it now would be said of that, and the worker may have lost it.
func TestAccountOfARecordThatComesAgainLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newShareAccount(sharePlan{mode: "round-robin"}, shareLimit, shareLock)
		one := accountWorker("one")
		a.dealtAt(one, 7, 1, 0)
		<-time.After(2*shareLock + 20*time.Millisecond)
		a.dealtAt(one, 7, 2, shareLock+10*time.Millisecond)
		require.False(t, a.has(one, a.mu.records[shareOffset{0, 7}]))
		a.dealtAt(one, 7, 3, 0)
		require.Empty(t, a.faults())
	})
}
