package broker

import (
	"slices"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/protocol"
)

// copiedRecord is what of a record goes into a dead letter: in Kafka its headers do not.
type copiedRecord struct {
	key, value  []byte
	timestampMs int64
	there       bool // there is such a record
}

// sourceRecords reads the records that dead letters are about, a stored batch at a time.
type sourceRecords struct {
	log      *commitlog.Log // nil: they are not to be copied
	decoding *commitlog.DecodeLimiter
	buf      []byte
	next     int64 // below it, those that are there were found
	found    map[int64]copiedRecord
}

// first is the record of the first of the letters, which rise and are asked for in that
// order. One that is gone, or cannot be read, is empty: the letter still says where it was.
func (s *sourceRecords) first(letters []cooperative.DeadLetter) copiedRecord {
	if s.log == nil {
		return copiedRecord{}
	}
	if letters[0].Offset >= s.next {
		s.load(letters)
	}
	return s.found[letters[0].Offset]
}

// load reads the batch that holds the first of the letters, and keeps the records of those
// that it holds.
func (s *sourceRecords) load(letters []cooperative.DeadLetter) {
	s.found, s.next = make(map[int64]copiedRecord), letters[0].Offset+1
	got, err := s.log.Read(s.buf[:0], letters[0].Offset, commitlog.ReadOptions{MaxBytes: 1, UpTo: s.log.Bounds().HighWatermark, MinOne: true})
	if err != nil {
		return
	}
	s.buf = got.Data
	h, err := protocol.ParseBatchHeader(got.Data)
	if err != nil {
		return
	}
	s.next = max(s.next, min(got.Next, h.NextOffset()))
	// What can be read of a damaged batch is copied.
	_ = s.decoding.Records(&h, got.Data[:h.Size()], func(records []byte) error {
		it := protocol.IterateRecords(&h, records)
		for i := 0; it.Next() && i < len(letters); {
			r := it.Record()
			for i < len(letters) && letters[i].Offset < r.Offset {
				i++
			}
			if i < len(letters) && letters[i].Offset == r.Offset {
				s.found[r.Offset] = copiedRecord{slices.Clone(r.Key), slices.Clone(r.Value), r.TimestampMs, true}
			}
		}
		return it.Err()
	})
}
