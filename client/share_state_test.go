package client

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

// shareWorld is a worker's state against the plainest of brokers, which keeps the order of
// keys. Requests and answers travel as slowly as the test draws.
type shareWorld struct {
	t     *rapid.T
	now   time.Time
	state shareState
	ss    *shareSession
	at    sharePartition

	// The broker.
	limit    int  // of deliveries
	flawed   bool // it does not always say what it has done
	byRun    bool // it takes what it can of a partition, as Lacuna does
	open     bool
	epoch    int32
	keys     []string // of the offsets
	acquired map[int64]time.Time
	counts   []int
	done     []bool
	dealt    map[int64]*delivery // the last of each offset
	ended    map[*delivery]bool  // by what the worker said

	// On their way.
	fetch     *shareFetch
	fetchCame bool // the broker has it, and waits for records
	fetchGot  *shareFetched
	fetchErr  error
	ack       *shareAck
	ackCame   bool
	ackErrs   map[sharePartition]error
	ackErr    error
	running   []*delivery
	worldTxns
	decided map[int64]*delivery // handled to an end, and the broker has not refused that
}

const worldLock = 30 * time.Second

func newShareWorld(t *rapid.T, ordered bool) *shareWorld {
	w := &shareWorld{t: t, now: time.UnixMilli(0), at: sharePartition{topicID{1}, 0}, decided: make(map[int64]*delivery), acquired: make(map[int64]time.Time),
		dealt: make(map[int64]*delivery), ended: make(map[*delivery]bool), worldTxns: worldTxns{pending: make(map[int64]bool)}}
	concurrency := rapid.IntRange(1, 5).Draw(t, "concurrency")
	w.state = newShareState(concurrency, concurrency+rapid.IntRange(0, 10).Draw(t, "ahead"))
	if ordered {
		w.state.order = orderByBroker
	}
	w.limit = rapid.SampledFrom([]int{2, 3, 1000}).Draw(t, "delivery count limit")
	w.flawed = true
	w.byRun = rapid.Bool().Draw(t, "the broker takes single runs")
	w.ss = newShareSession(0, true)
	w.ss.wanted[w.at] = struct{}{}
	w.state.sessions[0] = w.ss
	for range rapid.IntRange(1, 30).Draw(t, "records") {
		w.keys = append(w.keys, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"))
	}
	w.counts, w.done = make([]int, len(w.keys)), make([]bool, len(w.keys))
	return w
}

// release makes an offset available, and the later ones of its key with it, unless it was
// delivered too often. asked says that the worker gave it up, and so has to know.
func (w *shareWorld) release(offset int64, asked bool) {
	delete(w.acquired, offset)
	w.ended[w.dealt[offset]] = asked
	if w.counts[offset] >= w.limit {
		w.done[offset] = true
		return
	}
	for o := range w.acquired {
		if w.state.order == orderByBroker && o > offset && w.keys[o] == w.keys[offset] {
			delete(w.acquired, o)
			w.ended[w.dealt[o]] = asked
			w.counts[o]--
		}
	}
}

func (w *shareWorld) expire() {
	for o, deadline := range w.acquired {
		if !deadline.After(w.now) {
			w.release(o, false)
		}
	}
}

func (w *shareWorld) disconnect() {
	w.open = false
	clear(w.acquired)
	w.orphanPending()
}

// enter is the broker's check of an epoch.
func (w *shareWorld) enter(epoch int32) error {
	switch {
	case epoch == 0:
		w.disconnect()
		w.open, w.epoch = true, 1
		return nil
	case !w.open:
		return kerr.ShareSessionNotFound
	case epoch == finalEpoch:
		w.disconnect()
		return nil
	case epoch != w.epoch:
		return kerr.InvalidShareSessionEpoch
	}
	w.epoch++
	return nil
}

// acknowledged is the broker's part of acknowledgements. Some of its answers leave open what it
// has done.
func (w *shareWorld) acknowledged(parts []ackPart) map[sharePartition]error {
	luck := 0
	if w.flawed && len(parts) > 0 {
		luck = rapid.IntRange(0, 19).Draw(w.t, "luck of the acknowledgement")
	}
	switch luck {
	case 18:
		return map[sharePartition]error{w.at: kerr.UnknownServerError}
	case 19:
		w.apply(parts)
		return map[sharePartition]error{w.at: kerr.KafkaStorageError}
	}
	return w.apply(parts)
}

// apply carries acknowledgements out: all of a partition or nothing.
func (w *shareWorld) apply(parts []ackPart) map[sharePartition]error {
	errs := make(map[sharePartition]error)
	w.expire()
	for _, p := range parts {
		for i, item := range p.items {
			if i > 0 && item.first <= p.items[i-1].last {
				w.t.Fatalf("acknowledgements out of order: %v", p.items)
			}
			if _, ok := w.acquired[item.first]; !ok {
				errs[p.at] = kerr.InvalidRecordState
			}
		}
		if errs[p.at] != nil && !w.byRun {
			continue
		}
		for _, item := range p.items {
			if _, ok := w.acquired[item.first]; !ok {
				if w.byRun { // or it was released with an earlier one of the same request
					errs[p.at] = kerr.InvalidRecordState
				}
				continue
			}
			switch item.kind {
			case ackRenew:
				w.acquired[item.first] = w.now.Add(worldLock)
			case ackRelease:
				w.release(item.first, w.dealt[item.first] == item.delivery || item.delivery.stale)
			default:
				delete(w.acquired, item.first)
				w.ended[w.dealt[item.first]] = true
				w.done[item.first] = true
			}
		}
	}
	return errs
}

// take is the broker's part of a fetch.
func (w *shareWorld) take(most int) (got []*delivery) {
	w.expire()
	for o := range w.keys {
		if _, held := w.acquired[int64(o)]; held || w.done[o] || len(got) == most || w.inTransaction(int64(o)) {
			continue
		}
		w.counts[o]++
		w.acquired[int64(o)] = w.now.Add(worldLock)
		record := &kgo.Record{Topic: "t", Offset: int64(o), Key: []byte(w.keys[o])}
		w.dealt[int64(o)] = &delivery{record: ShareRecord{Record: record, DeliveryCount: w.counts[o]}, at: w.at, session: w.ss}
		got = append(got, w.dealt[int64(o)])
	}
	return got
}

// take in what was lost.
func (w *shareWorld) tell(e shareEvents) {
	for _, l := range e.lost {
		if w.decided[l.delivery.offset()] == l.delivery {
			delete(w.decided, l.delivery.offset())
		}
	}
}

// steps are what may happen next.
func (w *shareWorld) steps(calm bool) map[string]func() {
	none := func(int) time.Duration { return 0 }
	steps := make(map[string]func())
	if w.fetch == nil {
		steps["fetch"] = func() {
			if w.fetch = w.state.nextFetch(w.ss, w.now); w.fetch != nil {
				w.fetchCame, w.fetchGot, w.fetchErr = false, nil, nil
				require.LessOrEqual(w.t, w.fetch.records+w.state.queue.queued+w.state.queue.running, w.state.maxRecords)
			}
		}
	} else if !w.fetchCame {
		steps["fetch arrives"] = func() {
			w.fetchCame = true
			if w.fetchErr = w.enter(w.fetch.epoch); w.fetchErr == nil {
				w.fetchGot = &shareFetched{acks: w.acknowledged(w.fetch.acks)}
			}
		}
	} else if w.fetchGot != nil && w.fetchGot.deliveries == nil {
		steps["fetch finds"] = func() {
			if w.open {
				w.fetchGot.deliveries = w.take(w.fetch.records)
			}
			if w.fetchGot.deliveries == nil {
				w.fetchGot.deliveries = []*delivery{} // the wait is over
			}
		}
	} else {
		steps["fetch is answered"] = func() {
			f, got, err := w.fetch, w.fetchGot, w.fetchErr
			w.fetch = nil
			if err != nil {
				w.tell(w.state.failed(w.ss, f, nil, w.now, none, err))
				return
			}
			got.deadline = w.now.Add(worldLock)
			w.tell(w.state.fetched(w.ss, f, w.now, *got))
		}
	}
	w.ackSteps(steps, none)
	w.handlerSteps(steps)
	w.txnSteps(steps, calm)
	steps["time passes"] = func() {
		w.now = w.now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 1, 1, 2, 20}).Draw(w.t, "seconds")) * time.Second)
		w.tell(w.state.expire(w.ss, w.now))
	}
	if !calm && rapid.IntRange(0, 19).Draw(w.t, "luck") == 0 {
		steps["broker forgets"] = w.disconnect
		steps["connection breaks"] = func() {
			w.disconnect()
			broken := errors.New("broken")
			if f := w.fetch; f != nil {
				w.fetch = nil
				w.tell(w.state.failed(w.ss, f, nil, w.now, none, broken))
			}
			if a := w.ack; a != nil {
				w.ack = nil
				w.tell(w.state.failed(w.ss, nil, a, w.now, none, broken))
			}
		}
	}
	return steps
}

func (w *shareWorld) ackSteps(steps map[string]func(), backoff func(int) time.Duration) {
	switch {
	case w.ack == nil:
		steps["acknowledge"] = func() {
			w.ack, w.ackCame, w.ackErr = w.ss.acknowledge(w.now), false, nil
		}
	case !w.ackCame:
		steps["acknowledgement arrives"] = func() {
			if w.ack.beside && w.fetch != nil && !w.fetchCame && w.open {
				require.ErrorIs(w.t, w.enter(w.ack.epoch), kerr.InvalidShareSessionEpoch)
				return // it has overtaken the fetch, and is sent again
			}
			w.ackCame = true
			if w.ack.final {
				w.ackErrs = w.acknowledged(w.ack.parts)
				w.ackErr = w.enter(w.ack.epoch)
			} else if w.ackErr = w.enter(w.ack.epoch); w.ackErr == nil && w.ack.stale { // what is asked twice without an answer may stay open
				w.ackErrs = w.apply(w.ack.parts)
			} else if w.ackErr == nil {
				w.ackErrs = w.acknowledged(w.ack.parts)
			}
		}
	default:
		steps["acknowledgement is answered"] = func() {
			a := w.ack
			w.ack = nil
			if w.ackErr != nil {
				w.tell(w.state.failed(w.ss, nil, a, w.now, backoff, w.ackErr))
				return
			}
			w.tell(w.state.acknowledged(w.ss, a, w.now, w.now.Add(worldLock), w.ackErrs))
		}
	}
}

func (w *shareWorld) handlerSteps(steps map[string]func()) {
	if len(w.running) < w.state.concurrency {
		steps["handle"] = func() {
			d := w.state.queue.pop()
			if d == nil {
				return
			}
			w.running = append(w.running, d)
			if w.ended[d] {
				w.t.Fatalf("offset %d is handled after the worker has released or finished it", d.offset())
			}
			if w.state.order != orderByBroker {
				return
			}
			for o := range d.offset() {
				if w.keys[o] == w.keys[d.offset()] && !w.done[o] && w.decided[o] == nil {
					w.t.Fatalf("offset %d is handled before offset %d of the same key", d.offset(), o)
				}
			}
			for o := range w.pending {
				if w.keys[o] == w.keys[d.offset()] && o <= d.offset() {
					w.t.Fatalf("offset %d is handled while offset %d of the same key is in a transaction", d.offset(), o)
				}
			}
			for _, other := range w.running {
				if other != d && other.state == deliveryRunning && !other.orphaned && w.keys[other.offset()] == w.keys[d.offset()] {
					w.t.Fatalf("offsets %d and %d of the same key are handled at a time", d.offset(), other.offset())
				}
			}
		}
	}
	if len(w.running) > 0 {
		steps["handler returns"] = func() {
			i := rapid.IntRange(0, len(w.running)-1).Draw(w.t, "handler")
			d := w.running[i]
			w.running = slices.Delete(w.running, i, i+1)
			outcome := rapid.SampledFrom([]ackKind{ackAccept, ackAccept, ackRelease, ackReject}).Draw(w.t, "outcome")
			if d.state == deliveryRunning && outcome != ackRelease {
				w.decided[d.offset()] = d
			}
			w.tell(w.state.finish(d, outcome, time.Duration(rapid.IntRange(1, 2000).Draw(w.t, "ms"))*time.Millisecond))
		}
	}
}

// check holds what is counted against what is there.
func (w *shareWorld) check() {
	held := make(map[*delivery]bool)
	queued := 0
	for _, l := range w.ss.leases {
		for _, d := range l.held {
			require.False(w.t, held[d], "offset %d is in two leases", d.offset())
			held[d] = true
			if d.state == deliveryQueued {
				queued++
			}
		}
	}
	require.Equal(w.t, queued, w.state.queue.queued)
	require.Equal(w.t, len(w.running), w.state.queue.running)
	items := 0
	for _, p := range w.ss.acks.apart {
		items += len(p.items)
	}
	for _, open := range w.ss.acks.open {
		items += len(open)
	}
	require.Equal(w.t, items, w.ss.acks.count)
}

func TestShareStateAgainstABroker(t *testing.T) {
	for range 10 { // what goes wrong here takes several coincidences
		rapid.Check(t, checkShareState)
	}
}

func checkShareState(t *rapid.T) {
	w := newShareWorld(t, rapid.Bool().Draw(t, "ordered"))
	for range rapid.IntRange(0, 300).Draw(t, "steps") {
		w.step(false)
	}
	// From here on nothing fails, and in the end everything is done.
	w.flawed = false
	for range 3000 {
		if !slices.Contains(w.done, false) && w.state.quiet() && w.state.queue.queued == 0 && len(w.state.queue.lanes) == 0 && len(w.ss.held) == 0 {
			break
		}
		for _, name := range []string{"fetch", "fetch arrives", "fetch finds", "fetch is answered", "acknowledge", "acknowledgement arrives",
			"acknowledgement is answered", "handle", "handler returns", "stage arrives", "transaction ends", "its end is heard"} {
			if do := w.steps(true)[name]; do != nil {
				do()
			}
		}
		w.check()
		w.now = w.now.Add(5 * time.Millisecond) // no lock has to run out for that
		w.tell(w.state.expire(w.ss, w.now))
	}
	require.NotContains(t, w.done, false, "a record is never done")
	require.True(t, w.state.quiet())
	require.Empty(t, w.state.queue.lanes)
	require.Empty(t, w.state.queue.broken)
	require.Empty(t, w.ss.held)
}

func (w *shareWorld) step(calm bool) {
	steps := w.steps(calm)
	names := make([]string, 0, len(steps))
	for name := range steps {
		names = append(names, name)
	}
	slices.Sort(names)
	steps[rapid.SampledFrom(names).Draw(w.t, "step")]()
	w.check()
}
