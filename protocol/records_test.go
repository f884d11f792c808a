package protocol

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// testRecord is a record as a test means it.
type testRecord struct {
	delta      int32
	timestamp  int64
	key, value []byte
	headers    []Header
}

func drawBytes(t *rapid.T, what string) []byte {
	if rapid.IntRange(0, 4).Draw(t, what+" kind") == 0 {
		return nil
	}
	return rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, what)
}

// drawRecords draws at least one record, with holes between the offsets if sparse.
func drawRecords(t *rapid.T, sparse bool) []testRecord {
	records := make([]testRecord, rapid.IntRange(1, 30).Draw(t, "records"))
	delta := int32(-1)
	for i := range records {
		delta++
		if sparse {
			delta += rapid.Int32Range(0, 1000).Draw(t, "hole")
		}
		r := testRecord{
			delta:     delta,
			timestamp: rapid.Int64Range(-1, 1<<42).Draw(t, "timestamp"),
			key:       drawBytes(t, "key"),
			value:     drawBytes(t, "value"),
		}
		for range rapid.IntRange(0, 2).Draw(t, "headers") {
			r.headers = append(r.headers, Header{Key: rapid.StringN(0, 5, -1).Draw(t, "header"), Value: drawBytes(t, "header value")})
		}
		records[i] = r
	}
	return records
}

func drawOptions(t *rapid.T) BatchOptions {
	o := PlainBatch(rapid.Int64Range(0, 1<<50).Draw(t, "base"))
	o.LeaderEpoch = rapid.Int32Range(-1, 100).Draw(t, "epoch")
	o.Codec = Codec(rapid.IntRange(0, 4).Draw(t, "codec"))
	if rapid.Bool().Draw(t, "idempotent") {
		o.ProducerID = rapid.Int64Range(0, 1<<50).Draw(t, "pid")
		o.ProducerEpoch = rapid.Int16Range(0, 1<<14).Draw(t, "producer epoch")
		o.BaseSequence = rapid.Int32Range(0, 1<<30).Draw(t, "sequence")
		o.Transactional = rapid.Bool().Draw(t, "transactional")
	}
	return o
}

func buildBatch(t require.TestingT, b *BatchBuilder, o BatchOptions, records []testRecord) []byte {
	b.Reset(o)
	for _, r := range records {
		b.AppendAt(r.delta, r.key, r.value, r.headers, r.timestamp)
	}
	batch, err := b.Build(nil)
	require.NoError(t, err)
	return batch
}

// readBatch decodes a batch into what buildBatch was given.
func readBatch(t require.TestingT, batch []byte) (BatchHeader, []testRecord) {
	h, err := ParseBatchHeader(batch)
	require.NoError(t, err)
	require.NoError(t, VerifyCRC(&h, batch))
	records, err := DecompressRecords(nil, &h, batch, 1<<20)
	require.NoError(t, err)
	var out []testRecord
	it := IterateRecords(&h, records)
	raw := 0
	for it.Next() {
		r := it.Record()
		got := testRecord{delta: int32(r.Offset - h.BaseOffset), timestamp: r.TimestampMs, key: r.Key, value: r.Value}
		headers := IterateHeaders(r.Headers)
		for headers.Next() {
			got.headers = append(got.headers, headers.Header())
		}
		require.Equal(t, records[raw:raw+len(r.Raw)], r.Raw)
		raw += len(r.Raw)
		out = append(out, got)
	}
	require.NoError(t, it.Err())
	require.False(t, it.Next(), "the end stays the end")
	return h, out
}

func TestBatchRoundTrip(t *testing.T) {
	var b BatchBuilder
	rapid.Check(t, func(t *rapid.T) {
		o := drawOptions(t)
		records := drawRecords(t, rapid.Bool().Draw(t, "sparse"))
		batch := buildBatch(t, &b, o, records)
		h, got := readBatch(t, batch)
		require.Equal(t, records, got)
		require.Equal(t, records[0].timestamp, h.FirstTimestamp)
		require.Equal(t, slices.MaxFunc(records, func(a, b testRecord) int { return int(a.timestamp - b.timestamp) }).timestamp, h.MaxTimestamp)
		require.Equal(t, records[len(records)-1].delta, h.LastOffsetDelta)
		require.Equal(t, o, BatchOptions{
			BaseOffset: h.BaseOffset, LeaderEpoch: h.LeaderEpoch, Codec: h.Codec(), Transactional: h.Transactional(),
			Control: h.Control(), ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, BaseSequence: h.BaseSequence,
		})
		requireKgoAgrees(t, batch, h, records)
	})
}

// requireKgoAgrees decodes the batch with kgo.
func requireKgoAgrees(t require.TestingT, batch []byte, h BatchHeader, want []testRecord) {
	part, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{},
		&kmsg.FetchResponseTopicPartition{RecordBatches: batch}, kgo.DefaultDecompressor(), nil)
	require.NoError(t, part.Err)
	require.Len(t, part.Records, len(want))
	for i, r := range part.Records {
		require.Equal(t, h.BaseOffset+int64(want[i].delta), r.Offset)
		require.Equal(t, want[i].timestamp, r.Timestamp.UnixMilli())
		require.Equal(t, string(want[i].key), string(r.Key))
		require.Equal(t, string(want[i].value), string(r.Value))
		require.Len(t, r.Headers, len(want[i].headers))
		for j, header := range r.Headers {
			require.Equal(t, want[i].headers[j].Key, header.Key)
			require.Equal(t, string(want[i].headers[j].Value), string(header.Value))
		}
	}
}

// TestKgoBatches decodes what kmsg encodes.
func TestKgoBatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t, false)
		first := records[0].timestamp
		last := first
		var encoded []byte
		for _, r := range records {
			last = max(last, r.timestamp)
			kr := kmsg.Record{TimestampDelta64: r.timestamp - first, OffsetDelta: r.delta, Key: r.key, Value: r.value}
			for _, h := range r.headers {
				kr.Headers = append(kr.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
			}
			kr.Length = int32(len(kr.AppendTo(nil)) - 1) // a zero length takes one byte
			encoded = kr.AppendTo(encoded)
		}
		batch := (&kmsg.RecordBatch{
			Length: int32(BatchHeaderLen - batchPrefixLen + len(encoded)), PartitionLeaderEpoch: -1, Magic: 2,
			LastOffsetDelta: int32(len(records) - 1), FirstTimestamp: first, MaxTimestamp: last,
			ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(len(records)), Records: encoded,
		}).AppendTo(nil)
		RenewCRC(batch)
		_, err := CheckProduced(batch, CheckOptions{})
		require.NoError(t, err)
		_, got := readBatch(t, batch)
		require.Equal(t, records, got)
	})
}

// rawRecord makes one record out of its fields, with whatever length.
func rawRecord(length int, body ...byte) []byte {
	return append(binary.AppendVarint(nil, int64(length)), body...)
}

func TestRecordsRefuse(t *testing.T) {
	good := rawRecord(6, 0, 0, 0, 1, 1, 0) // null key and value, no headers
	second := rawRecord(6, 0, 0, 2, 1, 1, 0)
	for name, c := range map[string]struct {
		count int32
		last  int32
		b     []byte
	}{
		"fewer than announced":         {2, 1, good},
		"none":                         {1, 0, nil},
		"more than announced":          {1, 1, append(slices.Clone(good), second...)},
		"trailing byte":                {1, 0, append(slices.Clone(good), 0)},
		"length below 0":               {1, 0, rawRecord(-1, 0, 0, 0, 1, 1, 0)},
		"length 0":                     {1, 0, rawRecord(0)},
		"length too small":             {1, 0, rawRecord(5, 0, 0, 0, 1, 1, 0)},
		"length too large":             {1, 0, rawRecord(7, 0, 0, 0, 1, 1, 0)},
		"length of 2 GiB":              {1, 0, rawRecord(1<<31-1, 0, 0, 0, 1, 1, 0)},
		"length of 33 bits":            {1, 0, []byte{0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 1, 1, 0}},
		"length cut":                   {1, 0, []byte{0x80}},
		"only attributes":              {1, 0, rawRecord(1, 0)},
		"no offset delta":              {1, 0, rawRecord(2, 0, 0)},
		"no key":                       {1, 0, rawRecord(3, 0, 0, 0)},
		"no value":                     {1, 0, rawRecord(4, 0, 0, 0, 1)},
		"no headers":                   {1, 0, rawRecord(5, 0, 0, 0, 1, 1)},
		"key length -2":                {1, 0, rawRecord(6, 0, 0, 0, 3, 1, 0)},
		"key beyond the record":        {1, 0, rawRecord(6, 0, 0, 0, 8, 1, 0)},
		"value beyond the record":      {1, 0, rawRecord(6, 0, 0, 0, 1, 4, 0)},
		"value beyond, next has it":    {2, 1, append(rawRecord(6, 0, 0, 0, 1, 4, 0), second...)},
		"headers below 0":              {1, 0, rawRecord(6, 0, 0, 0, 1, 1, 1)},
		"a header that is missing":     {1, 0, rawRecord(6, 0, 0, 0, 1, 1, 2)},
		"many headers":                 {1, 0, rawRecord(10, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f)},
		"header with a null key":       {1, 0, rawRecord(8, 0, 0, 0, 1, 1, 2, 1, 1)},
		"header value beyond":          {1, 0, rawRecord(8, 0, 0, 0, 1, 1, 2, 0, 2)},
		"header value length -2":       {1, 0, rawRecord(8, 0, 0, 0, 1, 1, 2, 0, 3)},
		"bytes after the headers":      {1, 0, rawRecord(7, 0, 0, 0, 1, 1, 0, 0)},
		"offset delta below 0":         {1, 0, rawRecord(6, 0, 0, 1, 1, 1, 0)},
		"offset delta past the last":   {1, 0, rawRecord(6, 0, 0, 2, 1, 1, 0)},
		"offset delta twice":           {2, 1, append(slices.Clone(good), good...)},
		"offset delta falls":           {2, 1, append(slices.Clone(second), good...)},
		"timestamp delta of 65 bits":   {1, 0, rawRecord(15, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2, 0, 1, 1, 0)},
		"offset delta of 33 bits":      {1, 0, rawRecord(10, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x1f, 1, 1, 0)},
		"fault in the second":          {2, 1, append(slices.Clone(good), rawRecord(5, 0, 0, 2, 1, 1)...)},
		"count above, bytes run out":   {3, 2, append(slices.Clone(good), second...)},
		"header key beyond the record": {1, 0, rawRecord(8, 0, 0, 0, 1, 1, 2, 8, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			h := BatchHeader{NumRecords: c.count, LastOffsetDelta: c.last}
			it := IterateRecords(&h, c.b)
			n := 0
			for it.Next() {
				n++
			}
			require.ErrorIs(t, it.Err(), ErrInvalidRecord)
			require.LessOrEqual(t, n, 2)
			require.False(t, it.Next(), "a fault stays a fault")
		})
	}
	h := BatchHeader{NumRecords: 2, LastOffsetDelta: 1}
	it := IterateRecords(&h, append(slices.Clone(good), second...))
	require.True(t, it.Next())
	require.True(t, it.Next())
	require.False(t, it.Next())
	require.NoError(t, it.Err())
}

func TestNullAndEmpty(t *testing.T) {
	var b BatchBuilder
	b.Reset(PlainBatch(0))
	b.Append(nil, []byte{}, []Header{{Key: "", Value: nil}, {Key: "k", Value: []byte{}}}, -1)
	b.Append([]byte{}, nil, nil, -1)
	_, records := readBatch(t, must1(b.Build(nil)))
	require.Nil(t, records[0].key)
	require.NotNil(t, records[0].value)
	require.Empty(t, records[0].value)
	require.Nil(t, records[0].headers[0].Value)
	require.NotNil(t, records[0].headers[1].Value)
	require.NotNil(t, records[1].key)
	require.Nil(t, records[1].value)
	require.Equal(t, int64(-1), records[1].timestamp)
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	h, batch := benchBatch(t, CodecNone, 100)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		it := IterateRecords(&h, batch[BatchHeaderLen:])
		for it.Next() {
			if it.Record().Key == nil {
				panic("no key")
			}
		}
		if it.Err() != nil {
			panic(it.Err())
		}
	}))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		must1(CheckProduced(batch, CheckOptions{RequireKeys: true}))
	}))
	var b BatchBuilder
	var dst []byte
	key, value := []byte("key"), []byte("value")
	headers := []Header{{"h", value}}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		b.Reset(PlainBatch(0))
		for i := range int64(100) {
			b.Append(key, value, headers, i)
		}
		dst = must1(b.Build(dst[:0]))
		b.Rebuild(&h)
		for it := IterateRecords(&h, batch[BatchHeaderLen:]); it.Next(); {
			b.Keep(it.Record())
		}
		dst = must1(b.Build(dst[:0]))
	}))
}
