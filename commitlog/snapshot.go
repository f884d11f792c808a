package commitlog

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
)

// A producer snapshot is the producers' section of an index file, big endian:
//
//	version u8 (1), then for each producer, by id:
//	id i64, epoch i16, coordinator epoch i32, first offset of its open transaction i64 (-1),
//	last seen i64, timestamp i64, batches u8,
//	then for each batch: last sequence i32, offset delta i32, last offset i64, timestamp i64
const (
	snapshotVersion     = 1
	snapshotProducerLen = 8 + 2 + 4 + 8 + 8 + 8 + 1
	snapshotBatchLen    = 4 + 4 + 8 + 8
)

// appendTo appends a snapshot. Transactions whose marker is written are over in it:
// what a snapshot covers is durable, so the marker is visible.
func (ps *producers) appendTo(dst []byte) []byte {
	be := binary.BigEndian
	dst = append(dst, snapshotVersion)
	ids := make([]int64, 0, len(ps.byID))
	for id := range ps.byID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		p := ps.byID[id]
		dst = be.AppendUint64(dst, uint64(p.id))
		dst = be.AppendUint16(dst, uint16(p.epoch))
		dst = be.AppendUint32(dst, uint32(p.coordinatorEpoch))
		dst = be.AppendUint64(dst, uint64(p.txnFirst))
		dst = be.AppendUint64(dst, uint64(p.lastSeenMs))
		dst = be.AppendUint64(dst, uint64(p.timestampMs))
		dst = append(dst, byte(p.kept))
		for _, b := range p.batches[:p.kept] {
			dst = be.AppendUint32(dst, uint32(b.lastSequence))
			dst = be.AppendUint32(dst, uint32(b.offsetDelta))
			dst = be.AppendUint64(dst, uint64(b.lastOffset))
			dst = be.AppendUint64(dst, uint64(b.timestampMs))
		}
	}
	return dst
}

// parseProducers reads a snapshot.
func parseProducers(b []byte) (*producers, error) {
	if len(b) == 0 || b[0] != snapshotVersion {
		return nil, fmt.Errorf("%w: producer snapshot of %d bytes, not of version %d", errCorruptFile, len(b), snapshotVersion)
	}
	ps := newProducers()
	var open []txn
	for b = b[1:]; len(b) > 0; {
		p, rest, err := parseProducer(b)
		if err != nil {
			return nil, err
		}
		if ps.byID[p.id] != nil {
			return nil, fmt.Errorf("%w: producer %d twice in a snapshot", errCorruptFile, p.id)
		}
		*ps.get(p.id) = p
		if p.txnFirst != noTxn {
			open = append(open, txn{producerID: p.id, first: p.txnFirst, last: noTxn})
		}
		b = rest
	}
	sort.Slice(open, func(i, j int) bool {
		return compareInts(open[i].first, open[j].first, open[i].producerID, open[j].producerID) < 0
	})
	for _, t := range open {
		ps.txns.begin(t.producerID, t.first)
	}
	return ps, nil
}

func parseProducer(b []byte) (p producer, rest []byte, err error) {
	be := binary.BigEndian
	if len(b) < snapshotProducerLen {
		return p, nil, fmt.Errorf("%w: producer snapshot ends early", errCorruptFile)
	}
	p = producer{
		id:               int64(be.Uint64(b)),
		epoch:            int16(be.Uint16(b[8:])),
		coordinatorEpoch: int32(be.Uint32(b[10:])),
		txnFirst:         int64(be.Uint64(b[14:])),
		lastSeenMs:       int64(be.Uint64(b[22:])),
		timestampMs:      int64(be.Uint64(b[30:])),
		kept:             int8(b[38]),
	}
	b = b[snapshotProducerLen:]
	if p.kept < 0 || p.kept > keptBatches || len(b) < int(p.kept)*snapshotBatchLen || p.txnFirst < noTxn {
		return p, nil, fmt.Errorf("%w: producer %d in a snapshot", errCorruptFile, p.id)
	}
	for i := range p.batches[:p.kept] {
		p.batches[i] = producedBatch{
			lastSequence: int32(be.Uint32(b)),
			offsetDelta:  int32(be.Uint32(b[4:])),
			lastOffset:   int64(be.Uint64(b[8:])),
			timestampMs:  int64(be.Uint64(b[16:])),
		}
		b = b[snapshotBatchLen:]
	}
	return p, b, nil
}
