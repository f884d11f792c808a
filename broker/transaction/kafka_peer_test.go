package transaction

import (
	"encoding/binary"
	"io"
	"math"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafkaPeer is the coordinator of a Kafka of one broker, in exactly the versions asked for.
type kafkaPeer struct {
	testing.TB
	nc net.Conn
	id int32
}

func newKafkaPeer(t testing.TB, addr string) *kafkaPeer {
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	k := &kafkaPeer{TB: t, nc: nc}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.TimeoutMillis = 10_000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "a", 2, 1
	create.Topics = append(create.Topics, topic)
	k.ask(create, 7)
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorType, find.CoordinatorKeys = 1, []string{"t-1"}
	require.Eventually(t, func() bool { // it makes __transaction_state
		k.ask(find, 4)
		_, err := k.initProducer("first", None)
		return err == nil
	}, time.Minute, 100*time.Millisecond)
	return k
}

func (k *kafkaPeer) ask(req kmsg.Request, version int16) kmsg.Response {
	k.Helper()
	req.SetVersion(version)
	k.id++
	_, err := k.nc.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("script")).AppendRequest(nil, req, k.id))
	require.NoError(k, err)
	var size [4]byte
	_, err = io.ReadFull(k.nc, size[:])
	require.NoError(k, err)
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err = io.ReadFull(k.nc, frame)
	require.NoError(k, err)
	require.EqualValues(k, k.id, binary.BigEndian.Uint32(frame))
	resp := req.ResponseKind()
	frame = frame[4:]
	if resp.IsFlexible() {
		frame = frame[1:] // no tags
	}
	require.NoError(k, resp.ReadFrom(frame))
	return resp
}

func kafkaError(code int16) *kerr.Error {
	err, _ := kerr.ErrorForCode(code).(*kerr.Error)
	return err
}

func (k *kafkaPeer) initProducer(id string, expected Producer) (Producer, *kerr.Error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, 60_000
	req.ProducerID, req.ProducerEpoch = expected.ID, expected.Epoch
	resp := k.ask(req, 5).(*kmsg.InitProducerIDResponse)
	return Producer{resp.ProducerID, resp.ProducerEpoch}, kafkaError(resp.ErrorCode)
}

func (k *kafkaPeer) add(id string, p Producer, version int8, tps ...TopicPartition) *kerr.Error {
	if version == 2 {
		return k.addOrVerify(id, p, false, tps)
	}
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, p.ID, p.Epoch
	for _, tp := range tps {
		topic := kmsg.NewAddPartitionsToTxnRequestTopic()
		topic.Topic, topic.Partitions = tp.Topic, []int32{tp.Partition}
		req.Topics = append(req.Topics, topic)
	}
	resp := k.ask(req, 3).(*kmsg.AddPartitionsToTxnResponse)
	return kafkaError(resp.Topics[0].Partitions[0].ErrorCode)
}

func (k *kafkaPeer) verify(id string, p Producer, tp TopicPartition) *kerr.Error {
	return k.addOrVerify(id, p, true, []TopicPartition{tp})
}

func (k *kafkaPeer) addOrVerify(id string, p Producer, verify bool, tps []TopicPartition) *kerr.Error {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	txn := kmsg.NewAddPartitionsToTxnRequestTransaction()
	txn.TransactionalID, txn.ProducerID, txn.ProducerEpoch, txn.VerifyOnly = id, p.ID, p.Epoch, verify
	for _, tp := range tps {
		topic := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
		topic.Topic, topic.Partitions = tp.Topic, []int32{tp.Partition}
		txn.Topics = append(txn.Topics, topic)
	}
	req.Transactions = append(req.Transactions, txn)
	resp := k.ask(req, 5).(*kmsg.AddPartitionsToTxnResponse)
	require.Zero(k, resp.ErrorCode)
	return kafkaError(resp.Transactions[0].Topics[0].Partitions[0].ErrorCode)
}

func (k *kafkaPeer) end(id string, p Producer, version int8, commit bool) (Producer, *kerr.Error) {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = id, p.ID, p.Epoch, commit
	wire := int16(4)
	if version == 2 {
		wire = 5
	}
	resp := k.ask(req, wire).(*kmsg.EndTxnResponse)
	if version != 2 {
		resp.ProducerID, resp.ProducerEpoch = -1, -1
	}
	return Producer{resp.ProducerID, resp.ProducerEpoch}, kafkaError(resp.ErrorCode)
}

// describe waits until markers are written.
func (k *kafkaPeer) describe(id string) (d Description) {
	k.Helper()
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	require.Eventually(k, func() bool {
		s := k.ask(req, 0).(*kmsg.DescribeTransactionsResponse).TransactionStates[0]
		require.Zero(k, s.ErrorCode)
		d = Description{
			Producer: Producer{s.ProducerID, s.ProducerEpoch},
			Status:   Status(slices.Index(statusNames[:], s.State)), TimeoutMs: s.TimeoutMillis, StartMs: s.StartTimestamp,
		}
		for _, t := range s.Topics {
			for _, p := range t.Partitions {
				d.Partitions = append(d.Partitions, TopicPartition{t.Topic, p})
			}
		}
		d.Partitions = sorted(d.Partitions)
		return !d.Status.ending()
	}, time.Minute, time.Millisecond)
	return d
}

func (k *kafkaPeer) exhaust(id string) (p Producer) {
	for p.Epoch < math.MaxInt16-1 {
		var err *kerr.Error
		p, err = k.initProducer(id, None)
		require.Nil(k, err)
	}
	return p
}
