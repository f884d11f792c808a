package cooperative

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// BlockOffsets is how many offsets the counts of one record of the log are for.
const BlockOffsets = 1024

const blockWords = BlockOffsets / wordBits

// The version of the value of counts, and what the entry of an offset says besides.
const (
	countsVersion = 0
	markExhausted = 1 // it waits for its dead letter: its deliveries reached the limit
	markRejected  = 2 // it waits for its dead letter: it was rejected
)

// ErrCorrupt marks counts that cannot be read.
var ErrCorrupt = errors.New("corrupt delivery counts")

// ErrUnknownVersion marks counts that a later Lacuna wrote.
var ErrUnknownVersion = errors.New("unknown version of delivery counts")

// logCounts tells that the counts of an offset's block are to be logged.
func (d *Dispatcher) logCounts(offset int64, out *Changes) {
	if block := offset / BlockOffsets; !d.logged.Contains(block) {
		d.logged.Add(Run{Start: block, End: block + 1})
	}
	out.count(offset)
}

// forgetCounts forgets the counts of records that are done, and if they were the last of
// their block, says so.
func (d *Dispatcher) forgetCounts(number int64, mask uint64, out *Changes) {
	if !d.ended.forget(number, mask) {
		return
	}
	block := number / blockWords
	for n := block * blockWords; n < (block+1)*blockWords; n++ {
		if d.ended.find(n) != nil {
			return
		}
	}
	if d.logged.Contains(block) {
		d.logged.Remove(Run{Start: block, End: block + 1})
		out.count(block * BlockOffsets)
	}
}

// Reopened tells that committed offsets were reopened, and are to be fed again. They
// start without deliveries, so what the log says of them has to go.
func (d *Dispatcher) Reopened(runs []Run, out *Changes) {
	for _, r := range runs {
		last := (r.End - 1) / BlockOffsets
		for b, ok := d.logged.Next(r.Start / BlockOffsets); ok && b.Start <= last; b, ok = d.logged.Next(b.End) {
			for block := b.Start; block < b.End && block <= last; block++ {
				out.count(block * BlockOffsets)
			}
		}
		d.rewindFor(r)
	}
	out.Tidy()
}

// rewindFor lets what is known of a reopened run stay out of the way of its feeding.
func (d *Dispatcher) rewindFor(r Run) {
	if r.Start < d.frontier {
		d.refed = max(d.refed, d.frontier)
	}
}

// AppendCounts appends the value of the record with the counts of a block, without the
// version and owner epoch that each value of the internal log starts with. It is made of
// runs of offsets:
//
//	Counts => version INT8, runs UVARINT, runs * (skip UVARINT, length UVARINT, count UINT8, mark UINT8)
//
// `skip` is how many offsets of the block lie between the run before and this one. An
// empty value, nothing appended, says that there are no counts: the record is to be a
// tombstone.
func (d *Dispatcher) AppendCounts(dst []byte, block int64) []byte {
	var runs [BlockOffsets]countRun
	n := 0
	for number := block * blockWords; number < (block+1)*blockWords; number++ {
		ended := d.ended.find(number)
		if ended == nil {
			continue
		}
		exhausted, rejected := d.archivingOf(number)
		eachBit(number, ended.mask, func(offset int64) {
			_, bit := wordOf(offset)
			c := countRun{at: int(offset % BlockOffsets), n: 1, count: ended.counts[offset&(wordBits-1)]}
			switch {
			case exhausted&bit != 0:
				c.mark = markExhausted
			case rejected&bit != 0:
				c.mark = markRejected
			}
			if n > 0 && runs[n-1].extends(c) {
				runs[n-1].n++
				return
			}
			runs[n] = c
			n++
		})
	}
	if n == 0 {
		return dst
	}
	return appendCountRuns(dst, runs[:n])
}

// archivingOf are the masks of a word's records that wait for their dead letters.
func (d *Dispatcher) archivingOf(number int64) (exhausted, rejected uint64) {
	wi := d.pages.find(number)
	if wi == none {
		return 0, 0
	}
	d.eachPart(wi, func(hi uint32, part uint64) {
		switch h := d.holds.at(hi); {
		case h.state != Archiving:
		case h.cause == Rejected:
			rejected |= part
		default:
			exhausted |= part
		}
	})
	return exhausted, rejected
}

type countRun struct {
	at, n       int // offsets of the block
	count, mark uint8
}

func (c countRun) extends(next countRun) bool {
	return c.at+c.n == next.at && c.count == next.count && c.mark == next.mark
}

func appendCountRuns(dst []byte, runs []countRun) []byte {
	dst = append(dst, countsVersion)
	dst = binary.AppendUvarint(dst, uint64(len(runs)))
	at := 0
	for _, c := range runs {
		dst = binary.AppendUvarint(dst, uint64(c.at-at))
		dst = binary.AppendUvarint(dst, uint64(c.n))
		dst = append(dst, c.count, c.mark)
		at = c.at + c.n
	}
	return dst
}

// parseCountRuns reads the runs of counts and hands them to each.
func parseCountRuns(b []byte, each func(countRun)) error {
	if len(b) == 0 {
		return fmt.Errorf("%w: empty", ErrCorrupt)
	}
	if b[0] != countsVersion {
		return fmt.Errorf("%w: %d", ErrUnknownVersion, b[0])
	}
	b = b[1:]
	uvarint := func() int {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > BlockOffsets {
			b = nil
			return -1
		}
		b = b[n:]
		return int(v)
	}
	at := 0
	n := uvarint()
	for range n {
		skip := uvarint()
		length := uvarint()
		if skip < 0 || length < 1 || at+skip+length > BlockOffsets || len(b) < 2 || b[0] == 0 || b[1] > markRejected {
			return fmt.Errorf("%w: after offset %d of the block", ErrCorrupt, at)
		}
		each(countRun{at: at + skip, n: length, count: b[0], mark: b[1]})
		at += skip + length
		b = b[2:]
	}
	if n < 1 || len(b) != 0 {
		return fmt.Errorf("%w: %d runs and %d bytes after them", ErrCorrupt, n, len(b))
	}
	return nil
}

// CutCounts appends to dst the counts that are left of a block's value without those of the
// offsets of gone; nothing, if none are left. Counts that cannot be read are an error.
func CutCounts(dst []byte, block int64, value []byte, gone Run) ([]byte, error) {
	var runs [BlockOffsets + 1]countRun
	n := 0
	keep := func(c countRun, from, to int) {
		if from = max(from, c.at); from < min(to, c.at+c.n) {
			runs[n] = countRun{at: from, n: min(to, c.at+c.n) - from, count: c.count, mark: c.mark}
			n++
		}
	}
	base := block * BlockOffsets
	start := int(min(max(gone.Start-base, 0), BlockOffsets))
	end := int(min(max(gone.End-base, 0), BlockOffsets))
	if err := parseCountRuns(value, func(c countRun) {
		keep(c, 0, start)
		keep(c, max(start, end), BlockOffsets)
	}); err != nil {
		return dst, fmt.Errorf("block %d: %w", block, err)
	}
	if n == 0 {
		return dst, nil
	}
	return appendCountRuns(dst, runs[:n]), nil
}

// RestoreCounts takes the counts of a block as they were logged, before the first Feed
// and with the ledger as it was recovered. Records that waited for their dead letters do
// so again. Counts that are corrupt are an error and restore nothing.
func (d *Dispatcher) RestoreCounts(block int64, value []byte, out *Changes) error {
	if block < 0 || block > (1<<63-1)/BlockOffsets-1 {
		return fmt.Errorf("%w: block %d", ErrCorrupt, block)
	}
	if err := parseCountRuns(value, func(countRun) {}); err != nil {
		return fmt.Errorf("block %d: %w", block, err)
	}
	d.logged.Add(Run{Start: block, End: block + 1})
	counted := false
	err := parseCountRuns(value, func(c countRun) {
		for offset := block*BlockOffsets + int64(c.at); c.n > 0; offset, c.n = offset+1, c.n-1 {
			if !d.ledger.IsCommitted(offset) {
				d.restoreCount(offset, c, out)
				counted = counted || d.ended.of(offset) > 0
			}
		}
	})
	if counted { // also if one was archived before others were restored
		d.logged.Add(Run{Start: block, End: block + 1})
	}
	return err
}

func (d *Dispatcher) restoreCount(offset int64, c countRun, out *Changes) {
	number, bit := wordOf(offset)
	d.ended.set(offset, c.count)
	if c.mark == 0 || d.isTaken(offset) {
		return
	}
	if !d.config.Limits.DeadLetters { // it was switched off meanwhile
		d.forgetCounts(number, bit, out)
		out.commit(Run{Start: offset, End: offset + 1})
		return
	}
	cause := Exhausted
	if c.mark == markRejected {
		cause = Rejected
	}
	d.awaitDeadLetter(offset, cause, out)
}
