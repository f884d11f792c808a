package keyfilter

import (
	"iter"

	"github.com/lacunamq/lacuna/protocol"
)

// Verdict is what a filter makes of a batch.
type Verdict uint8

// The verdicts.
const (
	None Verdict = iota // no record matches: there is nothing to send
	Some                // a batch with those that match was built
	All                 // all match, or the batch is opaque: it is sent as it is stored
)

// String is the verdict in a word.
func (v Verdict) String() string {
	return [...]string{"none", "some", "all"}[v]
}

// Rebuilder makes the batches to send. It keeps its buffers, so it allocates nothing
// in steady state, and belongs to one user at a time. The zero value is ready.
type Rebuilder struct {
	plain []byte // the records to compress
}

// Append appends to dst what the filter leaves of the batch to a reader from offset
// from on, and says what that was: the batch as stored, a rebuilt one, or nothing.
//
// A rebuilt batch has everything of the original's header, last offset delta,
// timestamps, producer fields, flags and codec included, but its length, count and
// checksum; the bytes of its records are unchanged, so their offsets and timestamps read
// as before. It also leaves out records below from, which the reader would skip.
func (r *Rebuilder) Append(dst []byte, d *Decoded, f *Filter, from int64) ([]byte, Verdict) {
	if d.opaque {
		return append(dst, d.batch...), All
	}
	n := d.Len()
	first := d.firstAt(from)
	start, end := f.nextRun(d, first)
	switch {
	case start == n:
		return dst, None
	case start == first && end == n && f.allMatch(d, first):
		return append(dst, d.batch...), All
	}
	compressed := d.header.Codec() != protocol.CodecNone
	at := len(dst)
	dst = append(dst, d.batch[:protocol.BatchHeaderLen]...)
	out := dst
	if compressed {
		out = r.plain[:0]
	}
	count := 0
	for start < n {
		out = append(out, d.records[d.starts[start]:d.starts[end]]...)
		count += end - start
		start, end = f.nextRun(d, end)
	}
	if compressed {
		r.plain = out
		var err error
		if out, err = protocol.CompressRecords(dst, d.header.Codec(), out); err != nil {
			// The codec decoded the batch, so this does not happen; a reader that gets too
			// much loses nothing.
			return append(dst[:at], d.batch...), All
		}
	}
	protocol.SetRecords(out[at:], count)
	return out, Some
}

// Matches yields the offsets and keys of the matching records at or above from, which are
// those of d; of an opaque batch none.
func (f *Filter) Matches(d *Decoded, from int64) iter.Seq2[int64, []byte] {
	return func(yield func(int64, []byte) bool) {
		for start, end := f.nextRun(d, d.firstAt(from)); start < d.Len(); start, end = f.nextRun(d, end) {
			for i := start; i < end; i++ {
				if !yield(d.Offset(i), d.key(i)) {
					return
				}
			}
		}
	}
}

// nextRun is the first run [start, end) of matching records at or after from; start is
// the number of records if there is none.
func (f *Filter) nextRun(d *Decoded, from int) (start, end int) {
	n := d.Len()
	for start = f.may.next(d.slots, from); start < n; start = f.may.next(d.slots, start+1) {
		if f.matchAt(d, start) {
			break
		}
	}
	if start == n {
		return n, n
	}
	for end = start + 1; end < n && f.matchAt(d, end); end++ {
	}
	return start, end
}

// allMatch tells whether the records below the first-th match, too.
func (f *Filter) allMatch(d *Decoded, first int) bool {
	for i := range first {
		if !f.matchAt(d, i) {
			return false
		}
	}
	return true
}

// matchAt tells whether record i matches.
func (f *Filter) matchAt(d *Decoded, i int) bool {
	slot := slotAt(d.slots, i)
	return f.ranges.contains(slot) || !f.exact() && f.may.contains(slot) && f.matchSlot(slot, d.key(i))
}
