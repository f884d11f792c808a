package broker_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// wire is a connection on which a test sends requests byte by byte.
type wire struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
	next int32
}

func dial(t *testing.T, b *broker.Broker) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", b.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	return &wire{t: t, conn: conn, in: bufio.NewReader(conn)}
}

// frame is the bytes of req at version.
func (w *wire) frame(req kmsg.Request, version int16) []byte {
	req.SetVersion(version)
	w.next++
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("wire")).AppendRequest(nil, req, w.next)
}

// send sends requests in one go, each at its version.
func (w *wire) send(frames ...[]byte) {
	var all []byte
	for _, f := range frames {
		all = append(all, f...)
	}
	_, err := w.conn.Write(all)
	require.NoError(w.t, err)
}

// receive reads the next answer into resp and returns its correlation id.
func (w *wire) receive(resp kmsg.Response) int32 {
	w.t.Helper()
	var size [4]byte
	_, err := io.ReadFull(w.in, size[:])
	require.NoError(w.t, err)
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err = io.ReadFull(w.in, body)
	require.NoError(w.t, err)
	id := int32(binary.BigEndian.Uint32(body))
	body = body[4:]
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		body = body[1:]
	}
	require.NoError(w.t, resp.ReadFrom(body))
	return id
}

// requireClosed checks that the broker closes the connection without an answer.
func (w *wire) requireClosed() {
	w.t.Helper()
	_, err := w.in.ReadByte()
	require.ErrorIs(w.t, err, io.EOF)
}

func makeTopic(t *testing.T, w *wire, name string) [16]byte {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = true
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	w.send(w.frame(req, 12))
	resp := kmsg.MetadataResponse{Version: 12}
	w.receive(&resp)
	require.Zero(t, resp.Topics[0].ErrorCode)
	return resp.Topics[0].TopicID
}

func batch(t *testing.T, values ...string) []byte {
	t.Helper()
	var builder protocol.BatchBuilder
	builder.Reset(protocol.PlainBatch(0))
	for _, v := range values {
		builder.Append(nil, []byte(v), nil, 1)
	}
	b, err := builder.Build(nil)
	require.NoError(t, err)
	return b
}

func produceRequest(topic string, acks int16, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks = acks
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: records}}}}
	return req
}

func fetchRequest(topic string, offset int64, wait time.Duration) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(wait.Milliseconds()), 1, 1<<20
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = offset, 1<<20
	req.Topics = []kmsg.FetchRequestTopic{{Topic: topic, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	return req
}

func TestPipelinedRequestsTakeEffectInOrder(t *testing.T) {
	b := start(t, nil)
	w := dial(t, b)
	makeTopic(t, w, "pipe")
	w.send(
		w.frame(produceRequest("pipe", -1, batch(t, "a")), 9),
		w.frame(produceRequest("pipe", 0, batch(t, "b")), 9),
		w.frame(produceRequest("pipe", 1, batch(t, "c")), 9),
		w.frame(fetchRequest("pipe", 2, time.Hour), 11),
		w.frame(produceRequest("pipe", -1, batch(t, "d")), 9),
		w.frame(kmsg.NewPtrApiVersionsRequest(), 3),
	)
	first := w.next - 5
	produced := func(base int64, id int32) {
		resp := kmsg.ProduceResponse{Version: 9}
		require.Equal(t, id, w.receive(&resp))
		require.Zero(t, resp.Topics[0].Partitions[0].ErrorCode)
		require.Equal(t, base, resp.Topics[0].Partitions[0].BaseOffset)
	}
	produced(0, first)
	produced(2, first+2)
	fetched := kmsg.FetchResponse{Version: 11}
	require.Equal(t, first+3, w.receive(&fetched))
	require.NotEmpty(t, fetched.Topics[0].Partitions[0].RecordBatches)
	produced(3, first+4)
	versions := kmsg.ApiVersionsResponse{Version: 3}
	require.Equal(t, first+5, w.receive(&versions))
}

func TestAFetchThatWaitsIsAnsweredByTheNextAppend(t *testing.T) {
	b := start(t, nil)
	w, other := dial(t, b), dial(t, b)
	makeTopic(t, w, "wait")
	w.send(w.frame(fetchRequest("wait", 0, time.Hour), 11))
	other.send(other.frame(produceRequest("wait", 1, batch(t, "x")), 9))
	other.receive(&kmsg.ProduceResponse{Version: 9})
	resp := kmsg.FetchResponse{Version: 11}
	w.receive(&resp)
	require.NotEmpty(t, resp.Topics[0].Partitions[0].RecordBatches)
	require.Equal(t, int64(1), resp.Topics[0].Partitions[0].HighWatermark)
}

func TestTheOffsetOfAnAnsweredRecordIsThere(t *testing.T) {
	b := start(t, func(c *broker.Config) { c.Settings = map[string]string{"log.flush.interval.ms": "3600000"} })
	w := dial(t, b)
	makeTopic(t, w, "one")
	list := kmsg.NewPtrListOffsetsRequest()
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = -1
	list.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "one", Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	w.send(w.frame(produceRequest("one", 1, batch(t, "x")), 9))
	w.receive(&kmsg.ProduceResponse{Version: 9})
	w.send(w.frame(list, 7))
	resp := kmsg.ListOffsetsResponse{Version: 7}
	w.receive(&resp)
	require.Equal(t, int64(1), resp.Topics[0].Partitions[0].Offset, "acks=1 was answered, so the record counts")
}

func TestAStopDoesNotWaitForAFetch(t *testing.T) {
	b := start(t, nil)
	w := dial(t, b)
	makeTopic(t, w, "stop")
	w.send(w.frame(fetchRequest("stop", 0, time.Hour), 11))
	stop(t, b) // fails if it had to cut the connection
}

func TestApiVersionsOfTheFutureIsAnsweredWithTheRanges(t *testing.T) {
	b := start(t, nil)
	w := dial(t, b)
	frame := w.frame(kmsg.NewPtrApiVersionsRequest(), 4)
	binary.BigEndian.PutUint16(frame[6:], 99)
	w.send(frame)
	resp := kmsg.ApiVersionsResponse{Version: 0}
	w.receive(&resp)
	require.Equal(t, kerr.UnsupportedVersion.Code, resp.ErrorCode)
	require.NotEmpty(t, resp.ApiKeys)
}

func TestBytesThatMakeNoSenseEndTheConnection(t *testing.T) {
	b := start(t, nil)
	for name, frame := range map[string][]byte{
		"negative size":   {0xff, 0xff, 0xff, 0xff, 0, 0},
		"over the limit":  {0x7f, 0xff, 0xff, 0xff, 0, 0},
		"no header":       {0, 0, 0, 2, 0, 3},
		"unknown api":     {0, 0, 0, 10, 0x27, 0x10, 0, 0, 0, 0, 0, 1, 0xff, 0xff},
		"unknown version": {0, 0, 0, 10, 0, 3, 0, 99, 0, 0, 0, 1, 0xff, 0xff},
		"client id lies":  {0, 0, 0, 10, 0, 3, 0, 1, 0, 0, 0, 1, 0x7f, 0xff},
		"array lies":      {0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff},
	} {
		t.Run(name, func(t *testing.T) {
			w := dial(t, b)
			w.send(frame)
			w.requireClosed()
		})
	}
}

func TestProduceRefusesWhatIsNoBatch(t *testing.T) {
	b := start(t, nil)
	w := dial(t, b)
	makeTopic(t, w, "bad")
	wrongSum := batch(t, "x")
	wrongSum[len(wrongSum)-1] ^= 1
	oldMagic := batch(t, "x")
	oldMagic[16] = 1
	for name, c := range map[string]struct {
		records []byte
		code    int16
	}{
		"none":      {nil, kerr.InvalidRecord.Code},
		"checksum":  {wrongSum, kerr.CorruptMessage.Code},
		"magic":     {oldMagic, kerr.InvalidRecord.Code},
		"two":       {append(batch(t, "x"), batch(t, "y")...), kerr.InvalidRecord.Code},
		"truncated": {batch(t, "x")[:70], kerr.InvalidRecord.Code},
	} {
		t.Run(name, func(t *testing.T) {
			w.send(w.frame(produceRequest("bad", -1, c.records), 9))
			resp := kmsg.ProduceResponse{Version: 9}
			w.receive(&resp)
			require.Equal(t, kerr.ErrorForCode(c.code), kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode))
		})
	}
}

func TestFetchSessionsTellWhatIsNew(t *testing.T) {
	b := start(t, nil)
	w := dial(t, b)
	makeTopic(t, w, "s")
	fetch := func(id, epoch int32, topics []kmsg.FetchRequestTopic) kmsg.FetchResponse {
		req := fetchRequest("s", 0, 0)
		req.SessionID, req.SessionEpoch, req.Topics = id, epoch, topics
		w.send(w.frame(req, 11))
		resp := kmsg.FetchResponse{Version: 11}
		w.receive(&resp)
		return resp
	}
	at := func(offset int64) []kmsg.FetchRequestTopic { return fetchRequest("s", offset, 0).Topics }

	opened := fetch(0, 0, at(0))
	require.NotZero(t, opened.SessionID)
	require.Len(t, opened.Topics, 1)

	require.Empty(t, fetch(opened.SessionID, 1, nil).Topics, "nothing is new")

	w.send(w.frame(produceRequest("s", -1, batch(t, "x")), 9))
	w.receive(&kmsg.ProduceResponse{Version: 9})
	news := fetch(opened.SessionID, 2, nil)
	require.Len(t, news.Topics, 1)
	require.NotEmpty(t, news.Topics[0].Partitions[0].RecordBatches)

	require.Empty(t, fetch(opened.SessionID, 3, at(1)).Topics)
	require.Equal(t, kerr.InvalidFetchSessionEpoch.Code, fetch(opened.SessionID, 3, nil).ErrorCode)
	require.Equal(t, kerr.FetchSessionIDNotFound.Code, fetch(opened.SessionID+1, 1, nil).ErrorCode)
	require.Zero(t, fetch(opened.SessionID, -1, at(0)).SessionID, "a final fetch closes the session")
	require.Equal(t, kerr.FetchSessionIDNotFound.Code, fetch(opened.SessionID, 4, nil).ErrorCode)
}
