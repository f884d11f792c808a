package cooperative

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/keyfilter"
)

// record is what the naive model knows of an offset.
type record struct {
	state      State
	member     string
	deadline   int64
	deliveries int
	key        Key
	cause      Cause
}

// model is a partition of which every offset has an entry in a map, beside the dispatcher
// that is under test, the ledger, and what would be in the internal log. It does not
// predict who gets what: it judges whether what the dispatcher deals may be dealt, and
// whether it deals all that it must.
type model struct {
	d       *Dispatcher
	ledger  *individualcommit.Ledger
	counts  map[int64][]byte // the records of the log
	records map[int64]*record
	end     int64
	now     int64
	limits  Limits
	next    *Config
	config  Config
	waiting []string
	start   int64 // of the log
	trace   []string
	// untold is what an operation has decided that the ledger does not know.
	untold struct {
		keep    bool
		out     Changes
		settled []int64
	}
}

func newModel(c Config) *model {
	m := &model{
		ledger: new(individualcommit.Ledger), counts: map[int64][]byte{}, records: map[int64]*record{},
		limits: c.Limits, config: c,
	}
	m.d = New(c, m.ledger)
	return m
}

// note keeps what was done, for the message when it goes wrong.
func (m *model) note(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf(format, args...))
}

// append adds records to the log; absent ones have no entry in keys.
func (m *model) append(keys ...*Key) {
	shown := ""
	for _, k := range keys {
		switch {
		case k == nil:
			shown += " absent"
		case k.Null:
			shown += " null"
		default:
			shown += fmt.Sprintf(" %x", k.Hash>>56)
		}
	}
	m.note("append at %d:%s", m.end, shown)
	for _, k := range keys {
		if k != nil {
			r := &record{state: Available, key: *k}
			if k.Null {
				r.key.Hash = keyfilter.Hash(nil, m.end)
			}
			m.records[m.end] = r
		}
		m.end++
	}
}

func (m *model) offsets() []int64 { return slices.Sorted(maps.Keys(m.records)) }

// read is what the log has between two offsets.
func (m *model) read(from, to int64) Records {
	r := Records{Start: from, End: to}
	for offset := from; offset < to; offset++ {
		rec := m.records[offset]
		if rec == nil {
			continue
		}
		if n := len(r.Runs); n > 0 && r.Runs[n-1].End == offset {
			r.Runs[n-1].End++
		} else {
			r.Runs = append(r.Runs, Run{Start: offset, End: offset + 1})
		}
		k := rec.key
		if k.Null {
			k.Hash = 0
		}
		r.Keys = append(r.Keys, k)
	}
	return r
}

// settled carries out what the dispatcher says is to be logged, and checks that it is
// what the model says became committed.
func (m *model) settled(out *Changes, want []int64) error {
	if m.untold.keep { // the ledger hears of it with the next operation
		m.untold.out, m.untold.settled = *out, want
		return nil
	}
	var got []int64
	for _, r := range out.Commit {
		for offset := r.Start; offset < r.End; offset++ {
			got = append(got, offset)
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("committed %v, should be %v", got, want)
	}
	if len(out.Commit) > 0 {
		delta, err := m.ledger.Decide(individualcommit.Request{Offset: individualcommit.NoOffset, Commit: out.Commit}, m.end)
		if err != nil {
			return err
		}
		m.ledger.Apply(delta)
	}
	m.closeAbsent()
	for _, b := range out.Counts {
		if value := m.d.AppendCounts(nil, b); value != nil {
			m.counts[b] = value
		} else {
			delete(m.counts, b)
		}
	}
	return m.check()
}

// skip leaves out so many offsets.
func (m *model) skip(n int64) {
	m.note("skip %d from %d", n, m.end)
	m.end += n
	m.closeAbsent()
}

// nextRecord is the offset of the first record from one on, or the end.
func (m *model) nextRecord(offset int64) int64 {
	next := m.end
	for o := range m.records {
		if o >= offset {
			next = min(next, o)
		}
	}
	return next
}

func (m *model) closeAbsent() {
	for m.ledger.Stable() < m.end && m.records[m.ledger.Stable()] == nil {
		m.ledger.Close(m.nextRecord(m.ledger.Stable()))
	}
}

// check compares the dispatcher and the log of counts with the model, offset by offset.
func (m *model) check() error {
	if err := m.d.CheckInvariants(); err != nil {
		return err
	}
	logged := map[int64]countRun{}
	for block, value := range m.counts {
		if err := parseCountRuns(value, func(c countRun) {
			for i := range c.n {
				logged[block*BlockOffsets+int64(c.at+i)] = c
			}
		}); err != nil {
			return err
		}
	}
	for offset, r := range m.records {
		s := m.d.Explain(offset)
		if r.state == Settled {
			if s.State != Unknown || !m.ledger.IsCommitted(offset) {
				return fmt.Errorf("offset %d is settled, and %v", offset, s.State)
			}
			continue
		}
		if m.ledger.IsCommitted(offset) {
			return fmt.Errorf("offset %d is %v, and committed", offset, r.state)
		}
		if s.State == Unknown {
			s.State = Available // not fed, or read again
		}
		c := logged[offset]
		mark := uint8(0)
		if r.state == Archiving {
			mark = markExhausted
			if r.cause == Rejected {
				mark = markRejected
			}
		}
		if s.State != r.state || s.Member != r.member || s.Deliveries != r.deliveries || int(c.count) != r.deliveries || c.mark != mark ||
			(r.state == Acquired && s.DeadlineMs != r.deadline) {
			return fmt.Errorf("offset %d: %+v, should be %+v, logged %+v", offset, s, *r, c)
		}
		if s.Keyed && (!m.ordered(r) || s.KeyHash != r.key.Hash) || r.state == Archiving && s.Cause != r.cause {
			return fmt.Errorf("offset %d: %+v, should be %+v", offset, s, *r)
		}
	}
	return m.checkHoldings()
}

// checkHoldings compares what members are told to have with the model.
func (m *model) checkHoldings() error {
	acquired, pending := map[string]int{}, map[string]int{}
	for _, r := range m.records {
		switch r.state {
		case Acquired:
			acquired[r.member]++
		case Pending:
			if r.member != "" {
				pending[r.member]++
			}
		}
	}
	for _, s := range m.d.Members() {
		if s.Acquired != acquired[s.Member] || s.Pending != pending[s.Member] {
			return fmt.Errorf("member %+v has acquired %d, and %d pending", s, acquired[s.Member], pending[s.Member])
		}
		delete(acquired, s.Member)
		delete(pending, s.Member)
	}
	if len(acquired)+len(pending) > 0 {
		return fmt.Errorf("not told of: acquired %v, pending %v", acquired, pending)
	}
	for from := range min(m.end, 3) {
		at := from
		for held := range m.d.Holdings(from) {
			for ; at < held.End; at++ {
				r := m.records[at]
				if is, told := r != nil && r.state == Acquired, at >= held.Start; is != told {
					return fmt.Errorf("offset %d is acquired: %v, told: %v", at, is, told)
				} else if is && (r.member != held.Member || r.deadline != held.DeadlineMs || r.deliveries != held.Deliveries) {
					return fmt.Errorf("offset %d: %+v, should be %+v", at, held, *r)
				}
			}
		}
		for ; at < m.end; at++ {
			if r := m.records[at]; r != nil && r.state == Acquired {
				return fmt.Errorf("offset %d is acquired, and not told of from %d on", at, from)
			}
		}
	}
	return nil
}

func (m *model) ordered(r *record) bool { return m.config.Mode != RoundRobin && !r.key.Null }

// mayDeal says why a record may not be dealt to a member now, "" if it may; and if it is
// asked so, why it need not: what is pending of a member that is gone keeps earlier
// records of its key back once it was read.
func (m *model) mayDeal(offset int64, member string, must bool) string {
	r := m.records[offset]
	if r == nil || r.state != Available {
		return "not available"
	}
	if m.config.Mode == KeyRange {
		if why := m.mayDealLane(m.laneOf(r), member); why != "" {
			return why
		}
	}
	if !m.ordered(r) {
		return ""
	}
	for other, o := range m.records {
		if !m.ordered(o) || o.key.Hash != r.key.Hash || other == offset {
			continue
		}
		taken := o.state == Acquired || o.state == Pending
		switch {
		case taken && o.state == Pending && o.member == "" && other > offset && !must:
		case taken && o.member != member:
			return fmt.Sprintf("%q has offset %d of the key", o.member, other)
		case other < offset && (o.state == Available || o.state == Delayed):
			return fmt.Sprintf("offset %d of the key is before it", other)
		}
	}
	return ""
}

func (m *model) laneOf(r *record) int32 {
	return m.config.Assignment.Buckets().At(m.config.Line.Point(m.config.Partition, uint16(r.key.Hash>>48)), m.config.Line)
}

func (m *model) mayDealLane(lane int32, member string) string {
	if m.config.Assignment.Holder(lane) != member {
		return "of another's bucket"
	}
	for offset, r := range m.records {
		if (r.state == Acquired || r.state == Pending) && m.laneOf(r) == lane && r.member != member && r.member != "" {
			return fmt.Sprintf("%q still has offset %d of the bucket", r.member, offset)
		}
	}
	return ""
}

// release is the end of a delivery; it gives the offset if that was archived.
func (m *model) release(offset int64, raise, backoff bool) (archived []int64) {
	r := m.records[offset]
	r.member = ""
	if raise {
		r.deliveries++
		if r.deliveries >= m.limits.Deliveries {
			if m.limits.DeadLetters {
				r.state, r.cause = Archiving, Exhausted
				return nil
			}
			m.settle(offset)
			return []int64{offset}
		}
	}
	r.state = Available
	if backoff && m.limits.BackoffMs > 0 {
		r.state = Delayed
		r.deadline = m.now + min(m.limits.BackoffMaxMs, m.limits.BackoffMs<<(r.deliveries-1))
	}
	if !m.ordered(r) {
		return nil
	}
	for other, o := range m.records {
		if other > offset && m.ordered(o) && o.key.Hash == r.key.Hash && o.state == Acquired {
			o.state, o.member = Available, ""
		}
	}
	return nil
}

func (m *model) settle(offset int64) {
	r := m.records[offset]
	r.state, r.member, r.deliveries = Settled, "", 0
}

// expire is what becomes of records by time alone.
func (m *model) expire() (archived []int64) {
	var due []int64
	for _, offset := range m.offsets() {
		switch r := m.records[offset]; {
		case r.state == Acquired && r.deadline <= m.now:
			due = append(due, offset)
		case r.state == Delayed && r.deadline <= m.now:
			r.state = Available
		}
	}
	return m.releaseAll(due, true)
}

func (m *model) releaseAll(offsets []int64, raise bool) (archived []int64) {
	slices.SortFunc(offsets, cmp.Compare)
	for _, offset := range offsets {
		if s := m.records[offset].state; s == Acquired || s == Pending {
			archived = append(archived, m.release(offset, raise, false)...)
		}
	}
	return archived
}

func (m *model) acquired() (n int) {
	for _, r := range m.records {
		if r.state == Acquired {
			n++
		}
	}
	return n
}

// modeChanged follows a change of the mode once it can take effect.
func (m *model) modeChanged() {
	for _, r := range m.records {
		if r.state == Acquired || r.state == Pending {
			return
		}
	}
	if m.next != nil {
		m.config, m.next = *m.next, nil
	}
}
