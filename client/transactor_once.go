package client

import (
	"errors"
	"fmt"
)

// txnClaim is a record of a group that a transaction acknowledges.
type txnClaim struct {
	group string
	TopicPartition
	offset int64
}

// checkOnce refuses a transaction that acknowledges two deliveries of one record: what was
// made of it would be committed twice. A process may have both, since whoever lost a record
// hears of that later than another one gets it; and the broker does not refuse the second,
// as anybody may ask again for what is pending in the transaction.
func (tx *Txn) checkOnce() error {
	n := 0
	for _, a := range tx.acks {
		n += a.count()
	}
	if n < 2 {
		return nil
	}
	deliveries := make(map[txnClaim]any, n)
	var err error
	for _, a := range tx.acks {
		a.claims(func(c txnClaim, delivery any) {
			if had, ok := deliveries[c]; ok && had != delivery && err == nil {
				err = &PartitionError{
					Topic: c.Topic, Partition: c.Partition, Group: c.group, Doing: "acknowledge in a transaction",
					Err: errors.Join(ErrConflict, fmt.Errorf("offset %d was delivered twice, and the transaction has both", c.offset)),
				}
			}
			deliveries[c] = delivery
		})
	}
	return err
}

func (a *workerAcks) count() int { return len(a.deliveries) }

func (a *workerAcks) claims(yield func(c txnClaim, delivery any)) {
	for _, d := range a.deliveries {
		yield(txnClaim{a.w.cfg.group, TopicPartition{d.record.Topic, d.record.Partition}, d.record.Offset}, d)
	}
}

func (a *readerAcks) count() int { return len(a.records) }

func (a *readerAcks) claims(yield func(c txnClaim, delivery any)) {
	for _, r := range a.records {
		yield(txnClaim{a.r.cfg.group, TopicPartition{r.Topic, r.Partition}, r.Offset}, r)
	}
}
