package commitlog

import "sort"

// ProducerInfo describes a producer that the log remembers (DescribeProducers).
type ProducerInfo struct {
	ID               int64
	Epoch            int16
	LastSequence     int32 // -1: none in this epoch
	LastTimestampMs  int64
	CoordinatorEpoch int32 // -1: no marker yet
	TxnFirstOffset   int64 // of its open transaction, -1: none
}

// InTransaction tells whether a producer has an open transaction in the log.
func (l *Log) InTransaction(producerID int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.mu.producers.byID[producerID]
	return p != nil && p.txnFirst != noTxn
}

// Producers lists the remembered producers by id.
func (l *Log) Producers() []ProducerInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	infos := make([]ProducerInfo, 0, len(l.mu.producers.byID))
	for _, p := range l.mu.producers.byID {
		infos = append(infos, ProducerInfo{
			ID:               p.id,
			Epoch:            p.epoch,
			LastSequence:     p.lastSequence(),
			LastTimestampMs:  p.timestampMs,
			CoordinatorEpoch: p.coordinatorEpoch,
			TxnFirstOffset:   p.txnFirst,
		})
	}
	sort.Slice(infos, func(i, j int) bool { return infos[i].ID < infos[j].ID })
	return infos
}
