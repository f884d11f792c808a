package dealer

import (
	"errors"
	"slices"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Filter says which records a fetch takes, by their keys. Keys are told apart by their
// hashes of 64 bits, as everywhere in dealing.
type Filter struct {
	id     string // equal filters have equal ids
	slots  *keyfilter.Filter
	hashes map[uint64]struct{}
	// near takes all that may match, by its slot.
	near *keyfilter.Filter
}

// NewFilter makes the filter of a request from its field, which is copied.
func NewFilter(field []byte) (*Filter, error) {
	id := string(field)
	asked, err := protocol.ParseKeyFilter([]byte(id))
	if err != nil {
		return nil, errors.Join(kerr.InvalidRequest, err)
	}
	f := &Filter{id: id, hashes: make(map[uint64]struct{}, len(asked.Keys))}
	for _, key := range asked.Keys {
		f.hashes[keyfilter.Hash(key, 0)] = struct{}{}
	}
	if len(asked.Ranges) > 0 {
		if f.slots, err = keyfilter.New(protocol.KeyFilter{Ranges: asked.Ranges}); err != nil {
			return nil, errors.Join(kerr.InvalidRequest, err)
		}
	}
	near := slices.Clone(asked.Ranges)
	for hash := range f.hashes {
		near = append(near, protocol.SlotRange{Lo: uint16(hash >> 48), Hi: uint16(hash >> 48)})
	}
	if f.near, err = keyfilter.New(protocol.KeyFilter{Ranges: near}); err != nil {
		return nil, errors.Join(kerr.InvalidRequest, err)
	}
	return f, nil
}

// matches tells whether a record with that key is taken. One whose key could not be read
// is: it is for the client to say what is wrong with it.
func (f *Filter) matches(k cooperative.Key) bool {
	if k.Null && k.Hash == 0 {
		return true
	}
	if f.slots != nil && f.slots.MayMatch(uint16(k.Hash>>48)) {
		return true
	}
	_, wanted := f.hashes[k.Hash]
	return wanted && !k.Null
}

// sieve is what is known of the records that a member's filter takes. It stays from one
// fetch to the next while the filter is the same, so that the log is searched once.
type sieve struct {
	filter *Filter
	next   int64                   // the log was searched up to here
	found  []cooperative.Candidate // rising; those that are not committed, or were not when it was looked last
	// hungry tells to search although no fetch waits: the last one did not wait for it.
	hungry bool
}

// maxFound is how many records a sieve holds. When it is full the search goes on once some
// of them are done.
const maxFound = 1 << 17

// full tells whether the search has to wait.
func (s *sieve) full() bool { return len(s.found) >= maxFound }

// from is where the search goes on: at the first offset from next on that is open.
func (s *sieve) from(l *individualcommit.Ledger) int64 { return l.FirstOpen(s.next) }

// take takes in what was read of the log.
func (s *sieve) take(got *cooperative.Records, l *individualcommit.Ledger) {
	from := s.from(l)
	if from < got.Start || from >= got.End || s.full() {
		return
	}
	i := 0
	for _, run := range got.Runs {
		for offset := run.Start; offset < run.End; offset++ {
			k := got.Keys[i]
			i++
			if offset >= from && s.filter.matches(k) && !l.IsCommitted(offset) {
				s.hungry = false
				s.found = append(s.found, cooperative.Candidate{Offset: offset, Key: k})
			}
		}
	}
	s.next = got.End
}

// open are the records found that are not committed.
func (s *sieve) open(l *individualcommit.Ledger) []cooperative.Candidate {
	s.found = slices.DeleteFunc(s.found, func(c cooperative.Candidate) bool { return l.IsCommitted(c.Offset) })
	return s.found
}

// sift prepares for a fetch of a member. The ledger's lock is held.
func (p *partition) sift(q *Query) {
	s := &p.locked
	old := s.sieves[q.Member]
	switch {
	case q.Filter == nil:
		delete(s.sieves, q.Member)
	case old == nil || old.filter.id != q.Filter.id:
		s.sieves[q.Member] = &sieve{filter: q.Filter, hungry: true}
	default:
		old.hungry = true
	}
}

// acquire has the dispatcher deal to a fetch. The ledger's lock is held.
func (p *partition) acquire(dst []cooperative.Delivery, q *Query, w cooperative.Want) []cooperative.Delivery {
	s := &p.locked
	if q.Filter == nil {
		return s.dealing.Acquire(dst, q.Member, w, p.d.nowMs(), &s.changes)
	}
	sieve := s.sieves[q.Member]
	if sieve == nil {
		return dst
	}
	open := sieve.open(s.book)
	// As without filters, those who wait for the same share it.
	alike := 1
	for member, other := range s.waiting {
		if member != q.Member && other.fetch.q.Filter != nil && other.fetch.q.Filter.id == q.Filter.id {
			alike++
		}
	}
	w.MaxRecords = min(w.MaxRecords, max((len(open)+alike-1)/alike, (w.MaxRecords+7)/8))
	return s.dealing.AcquireOnly(dst, q.Member, open, w, p.d.nowMs(), &s.changes)
}

// serveFiltered deals to the fetches with filters that wait. Each is tried after every
// change, so that no kind of change can be forgotten. The ledger's lock is held.
func (p *partition) serveFiltered() {
	s := &p.locked
	for member, w := range s.waiting {
		if w.fetch.q.Filter != nil && p.mayFetch(member) && p.deal(w.fetch, w.index) {
			delete(s.waiting, member)
		}
	}
}

// nextSift is where the log is to be searched next for fetches with filters, and by which
// of them, nil if there is nothing to search. The ledger's lock is held.
func (p *partition) nextSift(l *individualcommit.Ledger) (from int64, by *Filter) {
	s := &p.locked
	readable := p.readable()
	for member, sieve := range s.sieves {
		if _, waits := s.waiting[member]; (waits || sieve.hungry) && !sieve.full() {
			if at := sieve.from(l); at < readable && (by == nil || at < from) {
				from, by = at, sieve.filter
			}
		}
	}
	return from, by
}

// search searches the log for the fetches with a filter.
func (p *partition) search(from int64, by *Filter) error {
	got, err := p.reader.search(p.d.opts.Filters, p.log, from, by, p.stretch(p.readable(), true))
	if errors.Is(err, commitlog.ErrOffsetOutOfRange) {
		return p.ledger.Advance()
	}
	if err != nil {
		return err
	}
	_, err = p.do(func(l *individualcommit.Ledger) {
		for _, sieve := range p.locked.sieves {
			if sieve.filter.id == by.id {
				sieve.take(&got, l)
			}
		}
	})
	return err
}
