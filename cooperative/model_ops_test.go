package cooperative

import (
	"fmt"
	"slices"

	"github.com/lacunamq/lacuna/individualcommit"
)

// The operations of the model: each does one thing to the dispatcher and to the map, and
// checks what came of it.

func (m *model) acquire(member string, w Want) error {
	m.note("acquire %s %d soft=%v", member, w.MaxRecords, w.BatchEnd != nil)
	_, err := m.tryAcquire(member, w, nil)
	return err
}

// candidates are the open records of some keys below an offset.
func (m *model) candidates(wanted func(Key) bool, below int64) (cs []Candidate) {
	for _, offset := range m.offsets() {
		if r := m.records[offset]; offset < below && r.state != Settled && wanted(r.key) {
			cs = append(cs, Candidate{offset, r.key})
		}
	}
	return cs
}

// acquireOnly is a fetch with a filter. If it gets nothing, there must be nothing.
func (m *model) acquireOnly(member string, w Want, wanted func(Key) bool, below int64) error {
	m.note("acquire %s %d only, below %d", member, w.MaxRecords, below)
	cs := m.candidates(wanted, below)
	if len(cs) == 0 {
		return nil
	}
	if n, err := m.tryAcquire(member, w, cs); n > 0 || err != nil {
		return err
	}
	if err := m.feed(); err != nil { // what is read again
		return err
	}
	n, err := m.tryAcquire(member, w, cs)
	if n > 0 || err != nil || m.d.next != nil || m.acquired() >= m.limits.Acquired {
		return err
	}
	for _, c := range cs {
		if m.mayDeal(c.Offset, member, true) == "" {
			return fmt.Errorf("%q got nothing, and could have offset %d", member, c.Offset)
		}
	}
	return nil
}

// acknowledgeAndServe serves a fetch with a filter, which takes everything, before the ledger
// hears of the acknowledgements.
func (m *model) acknowledgeAndServe(member string, acks []Ack, served string) error {
	wanted := m.candidates(func(Key) bool { return true }, m.end)
	m.untold.keep = true
	err := m.acknowledge(member, acks)
	m.untold.keep = false
	if err != nil || len(wanted) == 0 {
		return err
	}
	_, err = m.tryAcquire(served, Want{MaxRecords: 5}, wanted)
	return err
}

// tryAcquire acquires, among candidates if they are not nil, and gives how many.
func (m *model) tryAcquire(member string, w Want, cs []Candidate) (int, error) {
	out, archived := m.untold.out, append(m.untold.settled, m.expire()...)
	m.untold.out, m.untold.settled = Changes{}, nil
	room := m.limits.Acquired - m.acquired()
	m.modeChanged()
	before := m.d.next != nil
	var got []Delivery
	if cs == nil {
		got = m.d.Acquire(nil, member, w, m.now, &out)
	} else {
		got = m.d.AcquireOnly(nil, member, cs, w, m.now, &out)
	}
	archived = append(archived, m.overLimit(&out)...)
	n, last := 0, int64(-1)
	for _, g := range got {
		if g.Start < last || g.Start >= g.End || w.BatchSize > 0 && g.End-g.Start > int64(w.BatchSize) {
			return 0, fmt.Errorf("dealt [%d,%d) after %d", g.Start, g.End, last)
		}
		last = g.End
		for offset := g.Start; offset < g.End; offset++ {
			n++
			if why := m.mayDeal(offset, member, false); why != "" {
				return 0, fmt.Errorf("offset %d dealt to %q: %s", offset, member, why)
			}
			r := m.records[offset]
			if cs != nil && !slices.ContainsFunc(cs, func(c Candidate) bool { return c.Offset == offset || !c.Key.Null && c.Key == r.key }) {
				return 0, fmt.Errorf("offset %d dealt, which was not wanted", offset)
			}
			if int(g.Count) != r.deliveries+1 || int(g.Count) > m.limits.Deliveries {
				return 0, fmt.Errorf("offset %d dealt for the %d. time, had %d", offset, g.Count, r.deliveries)
			}
			r.state, r.member, r.deadline = Acquired, member, m.now+m.limits.LockMs
		}
	}
	if n > max(room, 0) || before && n > 0 || (w.BatchEnd == nil || cs != nil) && n > w.MaxRecords {
		return 0, fmt.Errorf("%d records dealt, of %d wanted, with room for %d", n, w.MaxRecords, room)
	}
	for _, g := range got {
		if m.limits.Deliveries > 2 && int(g.Count) == m.limits.Deliveries && n > 1 {
			return 0, fmt.Errorf("[%d,%d) is dealt for the last time, with %d records", g.Start, g.End, n)
		}
	}
	if n > 0 {
		m.waiting = slices.DeleteFunc(m.waiting, func(w string) bool { return w == member })
	}
	return n, m.settled(&out, archived)
}

// overLimit takes what the dispatcher archived before dealing it: records at a limit that
// was lowered. Those are available and over the limit, or else the dispatcher is wrong.
func (m *model) overLimit(out *Changes) (archived []int64) {
	over := func(offset int64) bool {
		r := m.records[offset]
		return r != nil && r.state == Available && r.deliveries >= m.limits.Deliveries
	}
	for _, c := range out.Commit {
		for offset := c.Start; offset < c.End; offset++ {
			if over(offset) {
				m.settle(offset)
				archived = append(archived, offset)
			}
		}
	}
	for _, l := range out.DeadLetters {
		if over(l.Offset) {
			m.records[l.Offset].state, m.records[l.Offset].cause = Archiving, l.Cause
		}
	}
	return archived
}

func (m *model) acknowledge(member string, acks []Ack) error {
	m.note("acknowledge %s %v", member, acks)
	var out Changes
	settled := m.expire()
	var first, want []Outcome
	for _, a := range acks {
		first = append(first, m.judge(member, a))
	}
	end := int64(0)
	for i, a := range acks {
		o := first[i]
		if a.Type != Release || o == Done && a.Start < end {
			o = m.judge(member, a) // what was released with an earlier record may be released
		}
		end = max(end, a.End)
		want = append(want, o)
		if o != Done {
			continue
		}
		for offset := a.Start; offset < a.End; offset++ {
			r := m.records[offset]
			switch a.Type {
			case Release:
				if r.state == Acquired {
					settled = append(settled, m.release(offset, true, true)...)
				}
			case Renew:
				r.deadline = m.now + m.limits.LockMs
			case Reject:
				if m.limits.DeadLetters {
					r.state, r.member, r.cause = Archiving, "", Rejected
					r.deliveries++
					continue
				}
				fallthrough
			default:
				m.settle(offset)
				settled = append(settled, offset)
			}
		}
	}
	m.modeChanged()
	if got := m.d.Acknowledge(nil, member, acks, m.now, &out); !slices.Equal(got, want) {
		return fmt.Errorf("%v of %q came to %v, should be %v", acks, member, got, want)
	}
	return m.settled(&out, settled)
}

func (m *model) judge(member string, a Ack) Outcome {
	if a.Start < 0 || a.Start >= a.End {
		return Invalid
	}
	o := Done
	for offset := a.Start; offset < a.End; offset++ {
		r := m.records[offset]
		if r == nil || r.state != Acquired || r.member != member {
			return NotHeld
		}
		if a.Type == Renew && m.config.Mode == KeyRange && m.config.Assignment.Holder(m.laneOf(r)) != member {
			o = Moved
		}
	}
	return o
}

func (m *model) tick(ms int64) error {
	m.note("tick %d", ms)
	m.now += ms
	var out Changes
	want := m.expire()
	m.modeChanged()
	m.d.Expire(m.now, &out)
	if next, ok := m.d.NextDeadline(); ok && next <= m.now {
		return fmt.Errorf("deadline %d at %d", next, m.now)
	}
	return m.settled(&out, want)
}

func (m *model) leave(member string, raise bool) error {
	m.note("leave %s raise=%v", member, raise)
	var out Changes
	want := m.expire()
	var held []int64
	for _, offset := range m.offsets() {
		if r := m.records[offset]; r.member == member && r.state == Acquired {
			held = append(held, offset)
		}
	}
	want = append(want, m.releaseAll(held, raise)...)
	for _, r := range m.records {
		if r.member == member {
			r.member = ""
		}
	}
	m.waiting = slices.DeleteFunc(m.waiting, func(w string) bool { return w == member })
	m.modeChanged()
	if raise {
		m.d.MemberLeft(member, m.now, &out)
	} else {
		m.d.ReleaseMember(member, m.now, &out)
	}
	return m.settled(&out, want)
}

// giveBack gives back what a member was dealt, and some that it was not.
func (m *model) giveBack(member string, deliveries []Delivery) error {
	m.note("give back %s %v", member, deliveries)
	var out Changes
	want := m.expire()
	var held []int64
	for _, g := range deliveries {
		for offset := g.Start; offset < g.End; offset++ {
			if r := m.records[offset]; r != nil && r.member == member && r.state == Acquired && r.deliveries+1 == int(g.Count) {
				held = append(held, offset)
			}
		}
	}
	want = append(want, m.releaseAll(held, false)...)
	m.modeChanged()
	m.d.GiveBack(member, deliveries, m.now, &out)
	return m.settled(&out, want)
}

func (m *model) stage(member string, runs []Run) error {
	m.note("stage %s %v", member, runs)
	var out Changes
	settled := m.expire()
	m.modeChanged()
	want := Done
	for _, r := range runs {
		for offset := r.Start; offset < r.End; offset++ {
			if rec := m.records[offset]; rec == nil || rec.state != Pending && (rec.state != Acquired || rec.member != member) {
				want = NotHeld
			}
		}
	}
	if got := m.d.Stage(member, runs, m.now, &out); got != want {
		return fmt.Errorf("staging %v for %q came to %v, should be %v", runs, member, got, want)
	}
	for _, r := range runs {
		for offset := r.Start; want == Done && offset < r.End; offset++ {
			if rec := m.records[offset]; rec.state == Acquired {
				rec.state = Pending
			}
		}
	}
	return m.settled(&out, settled)
}

func (m *model) endStage(runs []Run, committed bool) error {
	m.note("end %v committed=%v", runs, committed)
	var out Changes
	var settled, aborted []int64
	var commit []Run
	for _, r := range runs {
		for offset := r.Start; offset < r.End; offset++ {
			switch rec := m.records[offset]; {
			case rec == nil || rec.state != Pending:
			case committed:
				m.settle(offset)
				commit = append(commit, Run{Start: offset, End: offset + 1})
			default:
				aborted = append(aborted, offset)
			}
		}
	}
	settled = m.releaseAll(aborted, true)
	for _, r := range commit {
		m.ledger.Apply(individualcommit.Delta{Commit: []Run{r}})
	}
	m.modeChanged()
	m.d.EndStage(runs, committed, m.now, &out)
	return m.settled(&out, settled)
}

func (m *model) deadLettered(offsets []int64) error {
	m.note("dead-lettered %v", offsets)
	var out Changes
	var want []int64
	for _, offset := range offsets {
		if r := m.records[offset]; r != nil && r.state == Archiving {
			m.settle(offset)
			want = append(want, offset)
		}
	}
	m.d.DeadLettered(offsets, &out)
	return m.settled(&out, want)
}

// commitElsewhere is a commit that does not come from a member.
func (m *model) commitElsewhere(r Run) error {
	m.note("commit %v", r)
	var out Changes
	for offset := r.Start; offset < r.End; offset++ {
		if m.records[offset] != nil {
			m.settle(offset)
		}
	}
	m.ledger.Apply(individualcommit.Delta{Commit: []Run{r}})
	m.modeChanged()
	m.d.Settle([]Run{r}, &out)
	return m.settled(&out, nil)
}

func (m *model) advanceStart(offset int64) error {
	m.note("log start %d", offset)
	var out Changes
	for o := range m.records {
		if o < offset {
			delete(m.records, o)
		}
	}
	m.start = max(m.start, offset)
	m.ledger.AdvanceStart(offset)
	m.modeChanged()
	m.d.AdvanceStart(offset, &out)
	return m.settled(&out, nil)
}

// reopen is an operator's, of offsets that are committed, and has them fed.
func (m *model) reopen(r Run) error {
	m.note("reopen %v", r)
	var out Changes
	for offset := r.Start; offset < r.End; offset++ {
		if rec := m.records[offset]; rec != nil && rec.state == Settled {
			rec.state = Available
			m.ledger.Apply(individualcommit.Delta{Reopen: []Run{{Start: offset, End: offset + 1}}})
			m.d.Reopened([]Run{{Start: offset, End: offset + 1}}, &out)
			m.d.Feed(m.read(offset, offset+1), &out)
		}
	}
	return m.settled(&out, nil)
}

// restart is a crash: a new dispatcher, from what is in the logs.
func (m *model) restart() error {
	m.note("restart")
	var out Changes
	m.d = New(m.config, m.ledger)
	m.d.ahead, m.d.leaving = testAhead, testLeaving
	m.next, m.waiting = nil, nil
	var archived []int64
	var pending []Run
	for _, offset := range m.offsets() {
		switch r := m.records[offset]; r.state {
		case Acquired, Delayed:
			r.state, r.member = Available, ""
		case Pending:
			r.member = ""
			pending = append(pending, Run{Start: offset, End: offset + 1})
		case Archiving:
			if !m.limits.DeadLetters {
				m.settle(offset)
				archived = append(archived, offset)
			}
		}
	}
	for block, value := range m.counts {
		if err := m.d.RestoreCounts(block, value, &out); err != nil {
			return err
		}
	}
	out.Tidy()
	m.d.RestorePending(pending)
	return m.settled(&out, archived)
}

func (m *model) feed() error {
	for {
		var out Changes
		again, ok := m.d.NextAgain()
		switch {
		case ok:
			m.note("feed again %d %d", again.Start, again.End)
			m.d.FeedAgain(again, m.read(again.Start, min(again.End, m.nextRecord(again.Start)+3)))
		case m.d.WantsRecords() && m.d.FeedFrom() < m.end:
			from := m.d.FeedFrom()
			m.note("feed %d", from)
			m.d.Feed(m.read(from, min(m.end, m.nextRecord(from)+7)), &out)
		default:
			return m.settled(&out, nil)
		}
	}
}

// serve feeds, and serves the fetches that wait, until there is nothing more to do; then
// none of them may have been forgotten.
func (m *model) serve() error {
	for {
		if err := m.feed(); err != nil {
			return err
		}
		ready := m.d.Ready(nil)
		if len(ready) == 0 {
			break
		}
		for _, member := range ready {
			if !slices.Contains(m.waiting, member) {
				continue // served, or its turn showed that there was nothing
			}
			want := m.d.members.at(m.d.members.by[member]).want
			if err := m.acquire(member, Want{MaxRecords: want}); err != nil {
				return err
			}
		}
	}
	if m.d.next != nil || m.acquired() >= m.limits.Acquired {
		return nil
	}
	for _, member := range m.waiting {
		for offset := range m.records {
			if why := m.mayDeal(offset, member, true); why == "" {
				return fmt.Errorf("%q waits, and could have offset %d", member, offset)
			}
		}
	}
	return nil
}
