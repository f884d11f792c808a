package dealer

import (
	"fmt"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
)

// readBytes is how much of the log is read ahead at a time.
const readBytes = 1 << 20

// keepBytes is how large a buffer is kept for the next time.
const keepBytes = 4 << 20

// stretch says what is to be read of a log.
type stretch struct {
	end       int64 // up to which
	committed bool  // without what transactions aborted
	keyed     bool  // with the keys
}

// reader finds the records of a log that may be dealt. It keeps its buffers, so what it
// returns is valid until it reads again.
type reader struct {
	buf     []byte
	decode  *commitlog.DecodeLimiter
	runs    []individualcommit.Run
	keys    []cooperative.Key
	batches []batch // those that were read
	found   []found // in a search
	aborted abortedProducers
}

// read reads from an offset on, about readBytes at a time.
func (r *reader) read(log Log, from int64, s stretch) (cooperative.Records, error) {
	r.runs, r.keys, r.batches = r.runs[:0], r.keys[:0], r.batches[:0]
	if from >= s.end {
		return cooperative.Records{Start: from, End: from}, nil
	}
	// What is read ends with a batch, which may lie beyond the stretch.
	got, err := log.Read(r.buf[:0], from, commitlog.ReadOptions{MaxBytes: readBytes, UpTo: log.Bounds().HighWatermark, MinOne: true})
	if err != nil {
		return cooperative.Records{}, fmt.Errorf("read from offset %d: %w", from, err)
	}
	if r.buf = got.Data; cap(r.buf) > keepBytes {
		r.buf = nil
	}
	end := min(got.Next, s.end)
	if end <= from {
		return cooperative.Records{}, fmt.Errorf("read from offset %d: there is nothing, with the end at %d", from, s.end)
	}
	r.aborted.reset()
	if s.committed {
		if err := r.aborted.load(log, from, end); err != nil {
			return cooperative.Records{}, fmt.Errorf("aborted transactions from offset %d on: %w", from, err)
		}
	}
	for rest := got.Data; len(rest) > 0; {
		h, err := protocol.ParseBatchHeader(rest)
		if err != nil {
			return cooperative.Records{}, fmt.Errorf("batch behind offset %d: %w", end, err)
		}
		stored := rest[:h.Size()]
		rest = rest[h.Size():]
		if h.BaseOffset < end {
			r.take(&h, stored, individualcommit.Run{Start: max(from, h.BaseOffset), End: min(end, h.NextOffset())}, &s)
		}
	}
	return cooperative.Records{Start: from, End: end, Runs: r.runs, Keys: r.keys}, nil
}

// take notes the records of a batch that lie within.
func (r *reader) take(h *protocol.BatchHeader, stored []byte, within individualcommit.Run, s *stretch) {
	if h.Control() {
		r.aborted.marker(h)
		return
	}
	if s.committed && h.Transactional() && r.aborted.has(h) {
		return
	}
	r.batches = append(r.batches, batch{
		Run:         individualcommit.Run{Start: h.BaseOffset, End: h.NextOffset()},
		recordBytes: (len(stored) + int(h.NumRecords) - 1) / max(int(h.NumRecords), 1),
	})
	if whole := int64(h.NumRecords) == int64(h.LastOffsetDelta)+1; whole && !s.keyed {
		r.add(within)
		return
	}
	r.records(h, stored, within, s)
}

// records notes the records of a batch that lie within, by looking at each.
func (r *reader) records(h *protocol.BatchHeader, stored []byte, within individualcommit.Run, s *stretch) {
	at := within.Start
	err := r.decode.Records(h, stored, func(records []byte) error {
		it := protocol.IterateRecords(h, records)
		for it.Next() && it.Record().Offset < within.End {
			if record := it.Record(); record.Offset >= within.Start {
				r.addRecord(record, s)
				at = record.Offset + 1
			}
		}
		return it.Err()
	})
	if err != nil && at < within.End {
		r.addUnread(individualcommit.Run{Start: at, End: within.End}, s)
	}
}

func (r *reader) addRecord(record *protocol.Record, s *stretch) {
	r.add(individualcommit.Run{Start: record.Offset, End: record.Offset + 1})
	if s.keyed {
		r.keys = append(r.keys, keyOf(record.Key, record.Offset))
	}
}

func keyOf(key []byte, offset int64) cooperative.Key {
	return cooperative.Key{Hash: keyfilter.Hash(key, offset), Null: key == nil}
}

// addUnread notes offsets of which it is not known whether they hold records, or with what
// key: they are dealt, since it is for the client to say what is wrong with them.
func (r *reader) addUnread(run individualcommit.Run, s *stretch) {
	r.add(run)
	if s.keyed {
		for range run.End - run.Start {
			r.keys = append(r.keys, cooperative.Key{Null: true})
		}
	}
}

func (r *reader) add(run individualcommit.Run) {
	if n := len(r.runs); n > 0 && r.runs[n-1].End == run.Start {
		r.runs[n-1].End = run.End
		return
	}
	r.runs = append(r.runs, run)
}

// abortedProducers follows along a log whose records are of a transaction that was
// aborted, as a consumer under read_committed does.
type abortedProducers struct {
	txns []commitlog.AbortedTxn // by first offset, those that have not begun yet
	in   map[int64]bool         // producers in a transaction that was aborted
}

func (a *abortedProducers) reset() {
	a.txns = nil
	clear(a.in)
}

func (a *abortedProducers) load(log Log, from, to int64) (err error) {
	a.txns, err = log.AbortedTxns(from, to)
	if a.in == nil && len(a.txns) > 0 {
		a.in = make(map[int64]bool)
	}
	return err
}

// has tells whether the records of a batch were aborted.
func (a *abortedProducers) has(h *protocol.BatchHeader) bool {
	for len(a.txns) > 0 && a.txns[0].FirstOffset <= h.LastOffset() {
		a.in[a.txns[0].ProducerID] = true
		a.txns = a.txns[1:]
	}
	return a.in[h.ProducerID]
}

// marker ends the transaction of a producer.
func (a *abortedProducers) marker(h *protocol.BatchHeader) {
	a.has(h) // the transaction may begin with a batch that was passed over
	delete(a.in, h.ProducerID)
}
