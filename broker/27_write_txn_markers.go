package broker

import (
	"context"
	"errors"
	"strings"

	"github.com/lacunamq/lacuna/broker/transaction"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// WriteTxnMarkers (27), versions 1 to 2: ends transactions in partitions, whatever their
// coordinator knows. Kafka's brokers send it to each other; here it is for an operator who
// aborts a transaction that hangs (kafka-transactions.sh abort).
//
// v1 added flexible versions, v2 the transaction version of each marker.
func (b *Broker) writeTxnMarkers(c *call, req *kmsg.WriteTxnMarkersRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	type waiting struct {
		at   *kmsg.WriteTxnMarkersResponseMarkerTopicPartition
		wait func(context.Context) error
	}
	var waits []waiting
	for i := range req.Markers {
		m := &req.Markers[i]
		marker := protocol.EndTxnMarker{ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch, Commit: m.Committed, CoordinatorEpoch: m.CoordinatorEpoch}
		answer := kmsg.NewWriteTxnMarkersResponseMarker()
		answer.ProducerID = m.ProducerID
		answer.Topics = make([]kmsg.WriteTxnMarkersResponseMarkerTopic, len(m.Topics))
		for j := range m.Topics {
			at := &answer.Topics[j]
			at.Topic = strings.Clone(m.Topics[j].Topic)
			at.Partitions = make([]kmsg.WriteTxnMarkersResponseMarkerTopicPartition, len(m.Topics[j].Partitions))
			for k, index := range m.Topics[j].Partitions {
				at.Partitions[k].Partition = index
				tp := transaction.TopicPartition{Topic: at.Topic, Partition: index}
				waits = append(waits, waiting{&at.Partitions[k], txnMarkers{b}.begin(tp, marker, int16(m.TransactionVersion))})
			}
		}
		resp.Markers = append(resp.Markers, answer)
	}
	for _, w := range waits {
		if err := w.wait(c.ctx); err != nil {
			w.at.ErrorCode = b.markerCode(err)
		}
	}
	return resp
}

// markerCode is the code for a marker that was not written.
func (b *Broker) markerCode(err error) int16 {
	if errors.Is(err, commitlog.ErrCoordinatorFenced) {
		return kerr.TransactionCoordinatorFenced.Code
	}
	code, _ := b.errorCode(err)
	return code
}
