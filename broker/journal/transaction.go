package journal

import (
	"fmt"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
)

// Transaction is the producer in whose transaction records are appended. A producer has
// one at a time; its marker in the journal's partition ends it.
type Transaction struct {
	ProducerID    int64
	ProducerEpoch int16
}

// Transactional is a State that takes records of transactions. Others see their records
// like any others, and no markers.
type Transactional interface {
	// End takes the marker at offset, after the records before it: all records of the
	// producer since its last marker are committed, or aborted. t has the marker's epoch,
	// which may be above that of the records. Compaction removes the records of aborted
	// transactions, and markers of transactions of which nothing is left, so that End may
	// come for a transaction without records. An error ends the recovery.
	End(offset int64, t Transaction, commit bool) error
}

// AppendInTransaction is Append for records that count once the transaction is committed
// by a marker. The log refuses a producer of an older epoch than it knows with
// commitlog.ErrInvalidProducerEpoch; nothing was appended then, and the log goes on.
func (j *Journal) AppendInTransaction(t Transaction, records []Record) (Receipt, error) {
	return j.append(protocol.BatchOptions{
		Transactional: true, ProducerID: t.ProducerID, ProducerEpoch: t.ProducerEpoch, BaseSequence: -1,
	}, commitlog.AppendOptions{Internal: true}, records)
}

// InTransaction tells whether a producer has an open transaction in the journal.
func (j *Journal) InTransaction(producerID int64) bool { return j.log.InTransaction(producerID) }

// AppendMarker ends the producer's transaction in this partition. The transaction version
// is Kafka's transaction.version, as the transaction coordinator runs it. The log refuses
// a marker of an older producer epoch with commitlog.ErrInvalidProducerEpoch, of an older
// coordinator with commitlog.ErrCoordinatorFenced; nothing was appended then, and the log
// goes on.
func (j *Journal) AppendMarker(m protocol.EndTxnMarker, transactionVersion int16, timestampMs int64) (Receipt, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	batch, err := j.mu.builder.AppendEndTxnMarker(j.mu.batch[:0], m, timestampMs)
	if err != nil {
		return Receipt{}, fmt.Errorf("journal %s: build the marker of producer %d: %w", j.name, m.ProducerID, err)
	}
	receipt, err := j.appendLocked(batch, commitlog.AppendOptions{Internal: true, TransactionVersion: transactionVersion})
	if err != nil {
		return Receipt{}, fmt.Errorf("journal %s: append the marker of producer %d: %w", j.name, m.ProducerID, err)
	}
	return receipt, nil
}
