package client

import (
	"errors"
	"fmt"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// errAnswer marks an answer that came and makes no sense.
var errAnswer = errors.New("bad answer to a fetch")

// decoded is one partition's part of an answer to a fetch.
type decoded struct {
	records []*kgo.Record
	aborted []Run // records of the Reader's slots, of transactions that were aborted
	next    int64 // where to fetch next
	epoch   int32 // leader epoch of the last record, -1 if there is none

	highWatermark, lastStable int64 // the ends of the log
}

// decode reads the records of an answer and drops those that the Reader did not ask for: a
// broker passes a batch whole that it cannot look into.
func (r *Reader) decode(w *wanted, p *kmsg.FetchResponseTopicPartition) (decoded, error) {
	d := decoded{epoch: -1, highWatermark: p.HighWatermark, lastStable: p.LastStableOffset}
	r.receivedBytes.Add(int64(len(p.RecordBatches)))
	got, next := kgo.ProcessFetchPartition(r.processing(w, r.cfg.isolation()), p, r.decompressor, nil)
	if got.Err != nil {
		return r.skipCommitted(w, &d, got.Err)
	}
	r.receivedRecords.Add(int64(len(got.Records)))
	if n := len(got.Records); n > 0 {
		d.epoch = got.Records[n-1].LeaderEpoch
	}
	if w.slots != nil {
		echo, ok := extension(&p.UnknownTags)
		if !ok {
			return d, fmt.Errorf("%w: %w", errAnswer, ErrNoEcho)
		}
		scanned, err := protocol.ParseScannedTo(echo)
		if err != nil {
			return d, fmt.Errorf("%w: %w", errAnswer, err)
		}
		if scanned.Next < w.from {
			return d, fmt.Errorf("%w: scanned to %d, from %d", errAnswer, scanned.Next, w.from)
		}
		next = scanned.Next
	}
	d.next = next
	if r.cfg.readCommitted && len(p.AbortedTransactions) > 0 {
		d.aborted = r.aborted(w, p, got.Records, next)
	}
	d.records = w.matching(got.Records, next)
	return d, nil
}

// skipCommitted passes over a batch that is too large to decompress, if all of it is
// committed: whoever cannot read it either can so tell every reader to go on.
func (r *Reader) skipCommitted(w *wanted, d *decoded, err error) (decoded, error) {
	var large *kgo.ErrDecompressTooLarge
	if !errors.As(err, &large) {
		return decoded{}, fmt.Errorf("%w: %w", errAnswer, err)
	}
	rest := Run{Start: max(w.from, large.Offset), End: large.NextOffset}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.mu.partitions[w.tp]
	rest.Start = max(rest.Start, p.stable)
	if r.commits == nil || !p.closed.Includes(rest) {
		return decoded{}, fmt.Errorf("%w: %w: commit offsets %d to %d to go on behind it", errAnswer, ErrBatchTooLarge, large.Offset, large.NextOffset-1)
	}
	d.next = large.NextOffset
	return *d, nil
}

func (r *Reader) processing(w *wanted, level kgo.IsolationLevel) kgo.ProcessFetchPartitionOpts {
	return kgo.ProcessFetchPartitionOpts{Topic: w.tp.Topic, Partition: w.tp.Partition, Offset: w.from, IsolationLevel: level}
}

// matching keeps, in place, the records that the Reader asked for, below next.
func (w *wanted) matching(records []*kgo.Record, next int64) []*kgo.Record {
	kept := records[:0]
	for _, record := range records {
		if record.Offset < next && w.slots.matches(record) {
			kept = append(kept, record)
		}
	}
	clear(records[len(kept):])
	return kept
}

// aborted are the offsets of the Reader's records that reading committed ones left out. It
// decodes the answer once more, which only happens where a transaction was aborted.
func (r *Reader) aborted(w *wanted, p *kmsg.FetchResponseTopicPartition, committed []*kgo.Record, next int64) (runs []Run) {
	all, _ := kgo.ProcessFetchPartition(r.processing(w, kgo.ReadUncommitted()), p, r.decompressor, nil)
	for _, record := range all.Records {
		if len(committed) > 0 && committed[0].Offset == record.Offset {
			committed = committed[1:]
			continue
		}
		if record.Offset < next && w.slots.matches(record) {
			runs = appendRuns(runs, []Run{{Start: record.Offset, End: record.Offset + 1}})
		}
	}
	return runs
}
