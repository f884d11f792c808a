package client

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// decode reads the answer to a fetch. The errors are about partitions.
func (src *shareSource) decode(f *shareFetch, resp *kmsg.ShareFetchResponse) (got shareFetched, errs []*PartitionError) {
	w := src.w
	got.deadline = time.Now().Add(lockTimeout(resp.AcquisitionLockTimeoutMillis))
	got.acks = ackErrors(f.acks)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		w.mu.Lock()
		name := w.mu.names[t.TopicID]
		w.mu.Unlock()
		for j := range t.Partitions {
			p := &t.Partitions[j]
			at := sharePartition{t.TopicID, p.Partition}
			fail := func(err error) {
				errs = append(errs, &PartitionError{Topic: name, Partition: p.Partition, Group: w.cfg.group, Doing: "fetch", Err: err})
			}
			if _, asked := got.acks[at]; asked {
				got.acks[at] = kerr.ErrorForCode(p.AcknowledgeErrorCode)
			}
			if err := answerError(p.ErrorCode, p.ErrorMessage); err != nil {
				fail(err)
				continue
			}
			acquired := acquiredRuns(p.AcquiredRecords)
			if len(acquired) == 0 {
				continue
			}
			records, err := w.decodeRecords(name, p)
			deliveries, absent := match(src.session, at, acquired, records)
			if err != nil {
				fail(fmt.Errorf("%w: %w", errAnswer, err))
				for i := range absent {
					absent[i].kind = ackRelease // they may be what could not be read
				}
			}
			got.deliveries = append(got.deliveries, deliveries...)
			if len(absent) > 0 {
				got.gaps = append(got.gaps, ackPart{at, absent})
			}
		}
	}
	return got, errs
}

// decodeRecords reads the records of a partition, as far as they can be read.
func (w *Worker) decodeRecords(topic string, p *kmsg.ShareFetchResponseTopicPartition) ([]*kgo.Record, error) {
	as := kmsg.NewFetchResponseTopicPartition()
	as.Partition, as.RecordBatches = p.Partition, p.Records
	got, _ := kgo.ProcessFetchPartition(decompressing(topic, p.Partition), &as, w.decompressor, nil)
	return got.Records, got.Err
}

// acquiredRun is a run of offsets that were acquired, both ends included, and how often
// they were delivered.
type acquiredRun struct {
	first, last int64
	count       int
}

// acquiredRuns are the runs in order, without what makes no sense.
func acquiredRuns(acquired []kmsg.ShareFetchResponseTopicPartitionAcquiredRecord) []acquiredRun {
	runs := make([]acquiredRun, 0, len(acquired))
	for i := range acquired {
		a := &acquired[i]
		runs = append(runs, acquiredRun{first: max(a.FirstOffset, 0), last: a.LastOffset, count: max(int(a.DeliveryCount), 1)})
	}
	slices.SortStableFunc(runs, func(a, b acquiredRun) int { return cmp.Compare(a.first, b.first) })
	kept, next := runs[:0], int64(0)
	for _, r := range runs {
		if r.first = max(r.first, next); r.first > r.last {
			continue
		}
		next = r.last + 1
		kept = append(kept, r)
	}
	return kept
}

// match finds the records that were acquired among those that came, and the offsets that
// were acquired and hold none. Both the runs and the records are in order.
func match(ss *shareSession, at sharePartition, acquired []acquiredRun, records []*kgo.Record) (deliveries []*delivery, absent []ackItem) {
	made := make([]delivery, 0, len(records)) // never grows: pointers into it are given away
	gap := func(first, next int64) {
		if first < next {
			absent = append(absent, ackItem{first: first, last: next - 1, kind: ackGap})
		}
	}
	for _, run := range acquired {
		next := run.first
		for len(records) > 0 && records[0].Offset <= run.last {
			r := records[0]
			records = records[1:]
			if r.Offset < next {
				continue
			}
			gap(next, r.Offset)
			next = r.Offset + 1
			made = append(made, delivery{record: ShareRecord{Record: r, DeliveryCount: run.count}, at: at, session: ss})
			deliveries = append(deliveries, &made[len(made)-1])
		}
		gap(next, run.last+1)
	}
	return deliveries, absent
}
