package protocol

import (
	"encoding/binary"
	"math"
)

// NoOffset is the Offset of a PendingCommit that has no cumulative commit.
const NoOffset = -1

// Pending is what open transactions hold of a partition, with IndividualGaps, when
// GapsRequest asked for it.
type Pending struct {
	Transactions []PendingCommit
	CompleteTo   int64 // what begins from here on is missing; GapsComplete: nothing is
}

// PendingCommit is what one open transaction commits of a partition, if it commits.
type PendingCommit struct {
	ProducerID    int64
	ProducerEpoch int16
	Offset        int64 // a cumulative commit; NoOffset: none
	Runs          []Run
}

// appendTo appends the value of the tag. The runs rise, are not empty and do not touch.
func (p *Pending) appendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(p.Transactions))+1)
	for i := range p.Transactions {
		t := &p.Transactions[i]
		dst = binary.BigEndian.AppendUint64(dst, uint64(t.ProducerID))
		dst = binary.BigEndian.AppendUint16(dst, uint16(t.ProducerEpoch))
		dst = appendRuns(dst, t.Runs)
		if t.Offset == NoOffset {
			dst = append(dst, noTags)
		} else {
			dst = appendTag64(append(dst, 1), 0, t.Offset)
		}
	}
	if p.CompleteTo == GapsComplete {
		return append(dst, noTags)
	}
	return appendTag64(append(dst, 1), 0, p.CompleteTo)
}

// minPendingBytes is the least that a PendingCommit takes: producer, no runs, no tags.
const minPendingBytes = 8 + 2 + 8 + 1 + 1

// parsePending reads the value of the tag; a fault goes to f.
func parsePending(f *fields, value []byte) *Pending {
	p := &Pending{CompleteTo: GapsComplete}
	in := fields{b: value}
	n := in.arrayLen(minPendingBytes, "transactions")
	left := math.MaxInt
	for range n {
		t := PendingCommit{ProducerID: in.int64("producer id"), ProducerEpoch: int16(in.uint16("producer epoch")), Offset: NoOffset}
		t.Runs = in.runs(nil, &left, "pending")
		for tag := in.tags(); tag.next(&in); {
			if tag.number == 0 {
				t.Offset = tag.int64(&in, "offset")
			}
		}
		p.Transactions = append(p.Transactions, t)
	}
	for tag := in.tags(); tag.next(&in); {
		if tag.number == 0 {
			p.CompleteTo = tag.int64(&in, "complete_to")
		}
	}
	if err := in.end(); err != nil && f.err == nil {
		f.err = err
	}
	return p
}
