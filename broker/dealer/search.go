package dealer

import (
	"fmt"

	"github.com/lacunamq/lacuna/broker/filter"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
)

// found is a batch in which something may match a filter.
type found struct {
	header  protocol.BatchHeader
	records []cooperative.Candidate
}

// search is read for a filter, with the slot index of its log: it does not look at batches
// in which nothing can match. Of what it passes over it returns nothing, so that the
// records are some of those that are there.
func (r *reader) search(by *filter.Reader, log Log, from int64, f *Filter, s stretch) (cooperative.Records, error) {
	if f.near.All() {
		return r.read(log, from, s)
	}
	r.found = r.found[:0]
	end, err := by.Scan(log, from, f.near, filter.Options{UpTo: s.end, MaxScanBytes: readBytes}, func(d *keyfilter.Decoded) {
		r.note(d, from, f, s)
	})
	if err != nil {
		return cooperative.Records{}, err
	}
	if end <= from {
		return cooperative.Records{}, fmt.Errorf("search from offset %d: there is nothing, with the end at %d", from, s.end)
	}
	r.aborted.reset()
	if s.committed {
		if err := r.aborted.load(log, from, end); err != nil {
			return cooperative.Records{}, fmt.Errorf("aborted transactions from offset %d on: %w", from, err)
		}
	}
	r.runs, r.keys = r.runs[:0], r.keys[:0]
	for i := range r.found {
		b := &r.found[i]
		switch {
		case b.header.Control():
			r.aborted.marker(&b.header)
		case s.committed && b.header.Transactional() && r.aborted.has(&b.header):
		default:
			for _, c := range b.records {
				r.add(individualcommit.Run{Start: c.Offset, End: c.Offset + 1})
				r.keys = append(r.keys, c.Key)
			}
		}
	}
	return cooperative.Records{Start: from, End: end, Runs: r.runs, Keys: r.keys}, nil
}

// note keeps what of a batch may match.
func (r *reader) note(d *keyfilter.Decoded, from int64, f *Filter, s stretch) {
	h := d.Header()
	if len(r.found) < cap(r.found) {
		r.found = r.found[:len(r.found)+1]
	} else {
		r.found = append(r.found, found{})
	}
	b := &r.found[len(r.found)-1]
	b.header, b.records = *h, b.records[:0]
	if d.Opaque() && !h.Control() {
		// As it is read for others, who must find the same keys.
		r.runs, r.keys = r.runs[:0], r.keys[:0]
		r.records(h, d.Batch(), individualcommit.Run{Start: max(from, h.BaseOffset), End: h.NextOffset()}, &s)
		i := 0
		for _, run := range r.runs {
			for offset := run.Start; offset < run.End; offset++ {
				b.records = append(b.records, cooperative.Candidate{Offset: offset, Key: r.keys[i]})
				i++
			}
		}
		return
	}
	for offset, key := range f.near.Matches(d, from) {
		b.records = append(b.records, cooperative.Candidate{Offset: offset, Key: keyOf(key, offset)})
	}
}
