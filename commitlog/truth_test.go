package commitlog

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/protocol"
)

// truth is the naive account of what was appended to a log: all of it, in order.
type truth struct {
	batches []truthBatch
}

// truthBatch is a batch as it was stored.
type truthBatch struct {
	h      protocol.BatchHeader
	bytes  []byte
	marker *protocol.EndTxnMarker
}

// add notes a batch that Append has stamped.
func (tr *truth) add(batch []byte) {
	h, err := protocol.ParseBatchHeader(batch)
	if err != nil {
		panic(err)
	}
	b := truthBatch{h: h, bytes: slices.Clone(batch)}
	if m, ok, err := protocol.ParseEndTxnMarker(&h, batch[protocol.BatchHeaderLen:]); err == nil && ok {
		b.marker = &m
	}
	tr.batches = append(tr.batches, b)
}

func (tr *truth) end() int64 {
	if n := len(tr.batches); n > 0 {
		return tr.batches[n-1].h.NextOffset()
	}
	return 0
}

func (tr *truth) lastEpoch() int32 {
	if n := len(tr.batches); n > 0 {
		return tr.batches[n-1].h.LeaderEpoch
	}
	return -1
}

// below is the account of the batches that end at or below offset.
func (tr *truth) below(end int64) *truth {
	n := 0
	for n < len(tr.batches) && tr.batches[n].h.NextOffset() <= end {
		n++
	}
	return &truth{batches: tr.batches[:n]}
}

// bytesFrom is the stored bytes of the batches that reach beyond start.
func (tr *truth) bytesFrom(start int64) []byte {
	var all []byte
	for _, b := range tr.batches {
		if b.h.NextOffset() > start {
			all = append(all, b.bytes...)
		}
	}
	return all
}

// truthRecord is a record with its batch.
type truthRecord struct {
	batch *truthBatch
	rec   protocol.Record
}

// records is all records of data batches.
func (tr *truth) records() []truthRecord {
	var data []truthRecord
	for _, r := range tr.allRecords() {
		if !r.batch.h.Control() {
			data = append(data, r)
		}
	}
	return data
}

// allRecords has the markers too.
func (tr *truth) allRecords() []truthRecord {
	var all []truthRecord
	for i := range tr.batches {
		b := &tr.batches[i]
		if b.h.NumRecords == 0 {
			continue
		}
		records, err := protocol.DecompressRecords(nil, &b.h, b.bytes, 1<<20)
		if err != nil {
			panic(err)
		}
		for it := protocol.IterateRecords(&b.h, records); it.Next(); {
			all = append(all, truthRecord{batch: b, rec: *it.Record()})
		}
	}
	return all
}

// txnOutcome is a transaction of the account.
type txnOutcome struct {
	producerID  int64
	first, last int64 // last is the marker's offset, -1 while it is open
	aborted     bool
}

// txns is all transactions with records, by their first offset.
func (tr *truth) txns() []txnOutcome {
	var all []txnOutcome
	open := map[int64]int{}
	for _, b := range tr.batches {
		i, isOpen := open[b.h.ProducerID]
		switch {
		case b.marker != nil && isOpen:
			all[i].last, all[i].aborted = b.h.BaseOffset, !b.marker.Commit
			delete(open, b.h.ProducerID)
		case b.marker == nil && b.h.Transactional() && !isOpen:
			open[b.h.ProducerID] = len(all)
			all = append(all, txnOutcome{producerID: b.h.ProducerID, first: b.h.BaseOffset, last: -1})
		}
	}
	return all
}

// stable is the last stable offset when everything is visible.
func (tr *truth) stable() int64 {
	for _, x := range tr.txns() {
		if x.last < 0 {
			return x.first
		}
	}
	return tr.end()
}

// abortedOffset tells whether the record belongs to an aborted transaction.
func (tr *truth) abortedOffset(txns []txnOutcome, r *truthRecord) bool {
	if !r.batch.h.Transactional() {
		return false
	}
	for _, x := range txns {
		if x.aborted && x.producerID == r.batch.h.ProducerID && x.first <= r.rec.Offset && r.rec.Offset < x.last {
			return true
		}
	}
	return false
}

// producers is what a log should remember of its producers, none expired.
func (tr *truth) producers() map[int64]ProducerInfo {
	all := map[int64]ProducerInfo{}
	for _, b := range tr.batches {
		if b.h.ProducerID < 0 {
			continue
		}
		p, ok := all[b.h.ProducerID]
		if !ok {
			p = ProducerInfo{ID: b.h.ProducerID, Epoch: -1, LastSequence: -1, CoordinatorEpoch: -1, TxnFirstOffset: -1}
		}
		if p.Epoch != b.h.ProducerEpoch {
			p.Epoch, p.LastSequence = b.h.ProducerEpoch, -1
		}
		p.LastTimestampMs = b.h.MaxTimestamp
		switch {
		case b.marker != nil:
			p.CoordinatorEpoch, p.TxnFirstOffset = b.marker.CoordinatorEpoch, -1
		default:
			p.LastSequence = int32((int64(b.h.BaseSequence) + int64(b.h.LastOffsetDelta)) % (1 << 31))
			if b.h.Transactional() && p.TxnFirstOffset < 0 {
				p.TxnFirstOffset = b.h.BaseOffset
			}
		}
		all[p.ID] = p
	}
	return all
}

// sameRecord tells whether two records are the same to a reader.
func sameRecord(a, b *protocol.Record) bool {
	return a.Offset == b.Offset && a.TimestampMs == b.TimestampMs && bytes.Equal(a.Key, b.Key) &&
		(a.Value == nil) == (b.Value == nil) && bytes.Equal(a.Value, b.Value)
}

// storedTruth is the account of what a log holds.
func storedTruth(t testing.TB, l *Log) *truth {
	t.Helper()
	tr := &truth{}
	for rest := readAll(t, l); len(rest) > 0; {
		h, err := protocol.ParseBatchHeader(rest)
		require.NoError(t, err)
		require.NoError(t, protocol.VerifyCRC(&h, rest[:h.Size()]))
		tr.add(rest[:h.Size()])
		rest = rest[h.Size():]
	}
	return tr
}
