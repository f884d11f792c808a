package main

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/lacunamq/lacuna/bench/peers/load"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// makeBatch builds an uncompressed record batch of magic 2.
func makeBatch(records, valueBytes int) []byte {
	var body []byte
	keys := load.NewKeys(4096, false)
	values := load.NewValues(valueBytes, 1)
	for i := range records {
		key, value := keys.Key(i&4095), values.Make(uint64(i), 0)
		var r []byte
		r = append(r, 0)
		r = binary.AppendVarint(r, 0)
		r = binary.AppendVarint(r, int64(i))
		r = binary.AppendVarint(r, int64(len(key)))
		r = append(r, key...)
		r = binary.AppendVarint(r, int64(len(value)))
		r = append(r, value...)
		r = append(r, 0)
		body = binary.AppendVarint(body, int64(len(r)))
		body = append(body, r...)
	}
	b := make([]byte, 61, 61+len(body))
	binary.BigEndian.PutUint32(b[8:], uint32(49+len(body)))
	b[16] = 2
	binary.BigEndian.PutUint32(b[23:], uint32(records-1))
	binary.BigEndian.PutUint32(b[57:], uint32(records))
	b = append(b, body...)
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return b
}

// hashKeys walks the records of a batch and hashes their keys.
func hashKeys(batch []byte, records int) (sum uint64) {
	body := batch[61:]
	for range records {
		size, n := binary.Varint(body)
		rec := body[n : n+int(size)]
		body = body[n+int(size):]
		rec = rec[1:]
		for range 2 { // timestamp and offset
			_, n = binary.Varint(rec)
			rec = rec[n:]
		}
		keySize, n := binary.Varint(rec)
		sum += uint64(murmur2(rec[n : n+int(keySize)]))
	}
	return sum
}

// wire measures walking, checking, encoding and decoding what Kafka's protocol carries.
func wire() {
	const records = 130
	batch := makeBatch(records, 100)
	report("walk records of a batch + hash keys", "ns/record", 5, perOp(20_000*records, func(n int) {
		for range n / records {
			sink += hashKeys(batch, records)
		}
	}))
	report("CRC check of that batch", "ns/record", 5, perOp(20_000*records, func(n int) {
		for range n / records {
			sink += uint64(crc32.Checksum(batch[21:], castagnoli))
		}
	}))
	produce := produceRequest(batch)
	encoding("kmsg encode Produce (1 batch, 15 KiB)", 200_000, produce)
	decoding("kmsg decode Produce", 200_000, produce, func() kmsg.Request { return kmsg.NewPtrProduceRequest() })
	fetch := fetchRequest()
	encoding("kmsg encode Fetch (1 partition)", 500_000, fetch)
	decoding("kmsg decode Fetch", 500_000, fetch, func() kmsg.Request { return kmsg.NewPtrFetchRequest() })
	answer := fetchAnswer(fetch, batch)
	var out []byte
	report("kmsg encode Fetch response (15 KiB)", "ns/response", 5, perOp(200_000, func(n int) {
		for range n {
			out = answer.AppendTo(out[:0])
		}
	}))
	decoding("kmsg decode ShareFetch with 50 ack ranges", 100_000, shareFetchRequest(50),
		func() kmsg.Request { return kmsg.NewPtrShareFetchRequest() })
}

func encoding(name string, n int, req kmsg.Request) {
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("x"))
	var out []byte
	report(name, "ns/request", 5, perOp(n, func(n int) {
		for range n {
			out = f.AppendRequest(out[:0], req, 1)
		}
	}))
}

func decoding(name string, n int, req kmsg.Request, empty func() kmsg.Request) {
	body := req.AppendTo(nil)
	report(name, "ns/request", 5, perOp(n, func(n int) {
		for range n {
			q := empty()
			q.SetVersion(req.GetVersion())
			if err := q.ReadFrom(body); err != nil {
				panic(err)
			}
		}
	}))
}

func produceRequest(batch []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version = 9
	t := kmsg.NewProduceRequestTopic()
	t.Topic = "bench"
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = batch
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func fetchRequest() *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = 16
	t := kmsg.NewFetchRequestTopic()
	t.Partitions = append(t.Partitions, kmsg.NewFetchRequestTopicPartition())
	req.Topics = append(req.Topics, t)
	return req
}

func fetchAnswer(req *kmsg.FetchRequest, batch []byte) *kmsg.FetchResponse {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	t := kmsg.NewFetchResponseTopic()
	p := kmsg.NewFetchResponseTopicPartition()
	p.RecordBatches = batch
	t.Partitions = append(t.Partitions, p)
	resp.Topics = append(resp.Topics, t)
	return resp
}

func shareFetchRequest(ackRanges int) *kmsg.ShareFetchRequest {
	req := kmsg.NewPtrShareFetchRequest()
	req.Version = 2
	group := "g"
	req.GroupID, req.MemberID = &group, &group
	t := kmsg.NewShareFetchRequestTopic()
	p := kmsg.NewShareFetchRequestTopicPartition()
	for i := range int64(ackRanges) {
		a := kmsg.NewShareFetchRequestTopicPartitionAcknowledgementBatch()
		a.FirstOffset, a.LastOffset, a.AcknowledgeTypes = i*10, i*10+8, []int8{1}
		p.AcknowledgementBatches = append(p.AcknowledgementBatches, a)
	}
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}
