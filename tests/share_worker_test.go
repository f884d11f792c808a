package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// shareWorker is one life of a worker: a member of the group with its connections. One
// goroutine handles records; another sends heartbeats.
type shareWorker struct {
	c      *shareCheck
	rng    *rand.Rand
	life   int // of the broker
	m      *wire.ShareMember
	conn   *wire.Conn
	beats  *wire.Conn
	heard  atomic.Int64 // when the last heartbeat that was answered was sent, in ns
	have   []*shareRecord
	dead   bool // what it has is lost; guarded by the account
	waits  bool // a fetch is in flight, or was when the connection broke
	ending sync.WaitGroup

	number  int                   // of the worker
	filters []*protocol.KeyFilter // of which a fetch has one, or none
}

// patience is until when the group keeps the worker as a member for sure.
func (w *shareWorker) patience() time.Time {
	return time.Unix(0, w.heard.Load()).Add(shareSession)
}

// How a worker's life ends.
const (
	endCrash  = iota // its connections are cut
	endClosed        // it closes its session, and leaves
	endLeft          // it leaves
	endWays
)

// live is the nth life of a worker, from its joining on. It returns when the worker is gone.
func (c *shareCheck) live(rng *rand.Rand, i, n int) {
	addr, life := c.at()
	w := &shareWorker{c: c, rng: rng, life: life, number: i}
	if c.plan.returns {
		n /= 4 // it comes back as who it was
	}
	w.m = &wire.ShareMember{Group: c.group, ID: fmt.Sprintf("w%d.%d", i, n), Topic: c.topic, TopicID: c.topicID, Partitions: c.partitions}
	for range 2 {
		if w.filters = append(w.filters, nil); c.plan.filters {
			w.filters[len(w.filters)-1] = c.drawFilter(rng)
		}
	}
	if err := w.join(addr); err != nil {
		w.gone(false)
		return
	}
	for steps := 3 + rng.IntN(20); !c.over.Load(); steps-- {
		if err := w.step(); err != nil {
			w.gone(true)
			return
		}
		if steps <= 0 && !c.calm.Load() {
			w.end(rng.IntN(endWays))
			return
		}
	}
	w.gone(false)
}

// step gets records and does something about what the worker has. Some workers are patient.
func (w *shareWorker) step() (err error) {
	switch {
	case w.c.calm.Load():
		err = w.fetch(time.Hour)
	case w.number%3 == 2:
		err = w.fetch(shareLock / 3)
	default:
		err = w.fetch(time.Duration(w.rng.IntN(80)) * time.Millisecond)
	}
	if err == nil {
		err = w.handle(w.c.calm.Load())
	}
	if err == nil && w.c.plan.returns && w.rng.IntN(8) == 0 && !w.c.calm.Load() {
		err = w.reopen()
	}
	return err
}

func (w *shareWorker) join(addr string) (err error) {
	if w.conn, err = wire.Dial(context.Background(), addr); err != nil {
		return err
	}
	if w.beats, err = wire.Dial(context.Background(), addr); err != nil {
		return err
	}
	if err := w.beat(); err != nil {
		return err
	}
	if !w.c.register(w) {
		return fmt.Errorf("%s: the broker is gone", w.m.ID)
	}
	w.ending.Go(func() {
		for {
			<-time.After(shareSession / 10)
			if w.beat() != nil {
				return // the connection is cut, or the member gone: its next request says so
			}
		}
	})
	return nil
}

func (w *shareWorker) beat() error {
	sent := time.Now()
	err := w.m.Heartbeat(w.beats)
	if err == nil {
		w.heard.Store(sent.UnixNano())
	}
	return err
}

// gone ends the worker's life by cutting its connections, or since they were cut.
func (w *shareWorker) gone(joined bool) {
	if joined {
		w.c.account.lost(w, true, w.waits)
		if w.conn.Finish() == nil {
			w.c.account.gone(w)
		}
	}
	w.cut()
	w.ending.Wait()
	w.c.unregister(w)
}

func (w *shareWorker) cut() {
	for _, c := range []*wire.Conn{w.conn, w.beats} {
		if c != nil {
			c.Close()
		}
	}
}

// end ends the worker's life in one of the ways, between two requests.
func (w *shareWorker) end(way int) {
	switch way {
	case endClosed:
		w.c.account.lost(w, false, false)
		if _, err := w.m.CloseSession(w.conn, nil); err == nil { // else its connection is cut soon
			w.c.account.closed(w)
		}
		fallthrough
	case endLeft:
		w.c.account.lost(w, true, false)
		leaver := wire.ShareMember{Group: w.m.Group, ID: w.m.ID}
		_ = leaver.Leave(w.conn)
	}
	w.gone(true)
}

// fetch gets records, and perhaps says what became of some.
func (w *shareWorker) fetch(wait time.Duration) error {
	f := wire.ShareFetch{MaxRecords: 1 + int32(w.rng.IntN(30)), MaxBytes: 1 << 20, MaxWaitMs: int32(wait.Milliseconds()), Whole: w.rng.IntN(4) == 0}
	var all []said
	if calm := wait > shareLock; calm {
		f.Filter = w.c.calmFilter(w.number)
	} else if f.Filter = w.filters[w.rng.IntN(len(w.filters))]; w.m.InSession() && w.rng.IntN(3) == 0 {
		all, f.Acked = w.say(w.choose(), ackAccept)
	}
	sent := time.Now()
	w.waits = true
	if w.c.cutting && wait <= shareLock && w.rng.IntN(20) == 0 {
		defer time.AfterFunc(time.Duration(w.rng.IntN(20))*time.Millisecond, func() {
			w.c.account.lost(w, true, true)
			_ = w.conn.Hang()
		}).Stop()
	}
	answer, err := w.m.Fetch(w.conn, &f)
	if err != nil {
		w.complain(err)
		return err
	}
	w.waits = false
	w.linger(sent)
	w.c.account.answered(w, sent, all, answer.Refused)
	w.c.account.checkFilter(w, f.Filter, answer.Records)
	since := sent
	if wait > shareLock { // it was dealt at the end of the wait, and may have been lost since
		since = time.Time{}
	}
	got, same := w.c.account.delivered(w, sent, since, answer.Records)
	if !same {
		return fmt.Errorf("%s: the broker is another", w.m.ID)
	}
	for _, r := range got {
		if !slices.Contains(w.have, r) { // else it lost it, and has it again
			w.have = append(w.have, r)
		}
	}
	return nil
}

// linger keeps a slow worker from looking at the answer to a fetch that it sent at that time, for a
// while in which the locks of what it is dealt do not run out.
func (w *shareWorker) linger(sent time.Time) {
	if !w.c.plan.slow || w.c.calm.Load() || w.rng.IntN(8) > 0 {
		return
	}
	if most := int64(shareLock/2 - time.Since(sent)); most > 0 {
		<-time.After(time.Duration(w.rng.Int64N(most)))
	}
}

// reopen has the next fetch open another session: over the one that there is, so that the
// worker keeps what it has, or after that was closed, which frees it.
func (w *shareWorker) reopen() error {
	way := w.rng.IntN(3)
	if way == 0 {
		w.m.NewSession()
		return nil
	}
	all, acked := w.say(w.choose(), []int8{ackAccept, ackRelease, ackReject}[w.rng.IntN(3)])
	w.c.account.lost(w, false, false)
	sent := time.Now()
	var refused map[int32]error
	var err error
	if way == 1 {
		refused, err = w.m.CloseSession(w.conn, acked)
	} else {
		var answer *wire.ShareAnswer
		if answer, err = w.m.Fetch(w.conn, &wire.ShareFetch{Last: true, Acked: acked}); err == nil {
			refused = answer.Refused
		}
	}
	if err != nil {
		w.complain(err)
		return err
	}
	w.c.account.answered(w, sent, all, refused)
	w.c.account.closed(w)
	return nil
}

// handle does something about the records that the worker has: in calm times it accepts
// them.
func (w *shareWorker) handle(calm bool) error {
	if calm {
		return w.acknowledge(w.have, ackAccept)
	}
	if w.rng.IntN(40) == 0 { // it is slow
		w.c.rest(shareLock + time.Duration(w.rng.IntN(200))*time.Millisecond)
	}
	var err error
	switch k := w.rng.IntN(10); {
	case k < 5:
		err = w.acknowledge(w.choose(), ackAccept)
	case k < 7:
		err = w.acknowledge(w.choose(), ackRelease)
	case k < 8:
		err = w.acknowledge(w.choose(), ackReject)
	case k < 9:
		err = w.acknowledge(w.choose(), ackRenew)
	}
	if err == nil && len(w.have) > 0 && w.rng.IntN(2) == 0 {
		err = w.acknowledge(w.have[:1], ackAccept) // whatever happens, it gets on
	}
	return err
}

// choose takes some of what the worker has: one, or about half.
func (w *shareWorker) choose() (chosen []*shareRecord) {
	if len(w.have) == 0 {
		return nil
	}
	if w.rng.IntN(3) == 0 {
		return []*shareRecord{w.have[w.rng.IntN(len(w.have))]}
	}
	for _, r := range w.have {
		if w.rng.IntN(2) == 0 {
			chosen = append(chosen, r)
		}
	}
	return chosen
}

func (w *shareWorker) acknowledge(chosen []*shareRecord, kind int8) error {
	all, acked := w.say(chosen, kind)
	if len(acked) == 0 {
		return nil
	}
	sent := time.Now()
	refused, err := w.m.Acknowledge(w.conn, acked)
	if err != nil {
		w.complain(err)
		return err
	}
	w.c.account.answered(w, sent, all, refused)
	return nil
}

// say prepares to say the same of records, those that the worker still has, in order.
func (w *shareWorker) say(chosen []*shareRecord, kind int8) (all []said, acked []wire.Acked) {
	sortRecords(chosen)
	for _, r := range chosen {
		if !w.c.account.has(w, r) {
			continue
		}
		all = append(all, w.c.account.asking(w, r, kind))
		if n := len(acked); n > 0 && acked[n-1].Partition == r.partition && acked[n-1].Last+1 == r.offset {
			acked[n-1].Last++
			continue
		}
		acked = append(acked, wire.Acked{Partition: r.partition, First: r.offset, Last: r.offset, Type: kind})
	}
	var left []*shareRecord
	for _, r := range w.have {
		if w.c.account.has(w, r) {
			left = append(left, r)
		}
	}
	w.have = left
	return all, acked
}
