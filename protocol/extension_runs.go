package protocol

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Run is the offsets [Start, End).
type Run struct{ Start, End int64 }

// appendRuns appends runs, which rise, are not empty and do not touch.
func appendRuns(dst []byte, runs []Run) []byte {
	var base int64
	if len(runs) > 0 {
		base = runs[0].Start
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(base))
	dst = binary.AppendUvarint(dst, uint64(len(runs))+1)
	at := base
	for _, r := range runs {
		dst = binary.AppendUvarint(dst, uint64(r.Start-at))
		dst = binary.AppendUvarint(dst, uint64(r.End-r.Start))
		at = r.End
	}
	return dst
}

// runs reads runs into dst[:0], reallocated as needed, within what left allows.
func (f *fields) runs(dst []Run, left *int, what string) []Run {
	dst = dst[:0]
	at := f.int64(what)
	n := f.arrayLen(2, what)
	if f.err != nil {
		return dst
	}
	if err := take(left, n, "runs"); err != nil {
		f.err = err
		return dst
	}
	if cap(dst) < n {
		dst = make([]Run, 0, n)
	}
	b := f.b
	for i := range n {
		skip, k := binary.Uvarint(b)
		if k <= 0 {
			f.fail("%s: run %d does not fit", what, i)
			return dst[:0]
		}
		length, l := binary.Uvarint(b[k:])
		if l <= 0 {
			f.fail("%s: run %d does not fit", what, i)
			return dst[:0]
		}
		b = b[k+l:]
		start, end, ok := stepRun(at, skip, length)
		if !ok || length == 0 || (skip == 0 && i > 0) {
			f.fail("%s: run %d skips %d and has %d offsets after %d", what, i, skip, length, at)
			return dst[:0]
		}
		dst = append(dst, Run{start, end})
		at = end
	}
	f.b = b
	return dst
}

// stepRun is the run of length offsets that begins skip after at; ok is false if it
// leaves the range of offsets.
func stepRun(at int64, skip, length uint64) (start, end int64, ok bool) {
	start = at + int64(skip)
	if skip > math.MaxInt64 || length > math.MaxInt64 || start < at || start < 0 {
		return 0, 0, false
	}
	end = start + int64(length)
	return start, end, end >= start
}

// disjoint checks that no offset is in both a and b.
func disjoint(a, b []Run) error {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].End <= b[0].Start:
			a = a[1:]
		case b[0].End <= a[0].Start:
			b = b[1:]
		default:
			return fmt.Errorf("%w: offset %d is both to commit and to reopen",
				ErrInvalidExtension, max(a[0].Start, b[0].Start))
		}
	}
	return nil
}
