package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// fetchBytes is what one fetch asks for at most, Kafka's default for a partition.
const fetchBytes = 1 << 20

// fetcher reads one partition with raw requests, over a connection of its own.
type fetcher struct {
	tb       testing.TB
	conn     *wire.Conn
	request  *kmsg.FetchRequest
	filtered bool
	next     int64
	codecs   kgo.Decompressor

	// What came so far.
	records, batches, bytes int
}

// newFetcher connects a fetcher; without a filter it reads everything.
func newFetcher(tb testing.TB, t *target, topic string, filter *protocol.KeyFilter) *fetcher {
	tb.Helper()
	f := &fetcher{tb: tb, conn: t.dial(tb), request: wire.FetchRequest(topic, 0, 0, fetchBytes, 0), codecs: kgo.DefaultDecompressor()}
	if filter != nil {
		f.filtered = true
		f.request.UnknownTags.Set(protocol.ExtensionTag, filter.AppendTo(nil))
	}
	return f
}

// restart goes to the beginning of a topic, over the same connection.
func (f *fetcher) restart(topic string) {
	f.request.Topics[0].Topic = topic
	f.next, f.records, f.batches, f.bytes = 0, 0, 0, 0
}

// fetch sends one request from where the last answer ended. What it returns aliases the
// connection's buffer.
func (f *fetcher) fetch() *kmsg.FetchResponseTopicPartition {
	f.request.Topics[0].Partitions[0].FetchOffset = f.next
	resp, err := f.conn.Do(f.request)
	require.NoError(f.tb, err)
	p, err := wire.Fetched(resp)
	require.NoError(f.tb, err)
	f.bytes += len(p.RecordBatches)
	for rest := p.RecordBatches; len(rest) >= protocol.BatchHeaderLen; {
		h, err := protocol.ParseBatchHeader(rest)
		if err != nil {
			f.tb.Fatal(err)
		}
		if h.Size() > len(rest) {
			break // Kafka cuts the last batch where max bytes end
		}
		f.batches++
		f.records += int(h.NumRecords)
		f.next = h.NextOffset()
		rest = rest[h.Size():]
	}
	if f.filtered {
		field, ok := wire.ExtensionField(&p.UnknownTags)
		require.True(f.tb, ok, "the answer has no ScannedTo")
		scanned, err := protocol.ParseScannedTo(field)
		require.NoError(f.tb, err)
		f.next = scanned.Next
	}
	return p
}

// readTo fetches up to an offset; the answers are not decoded.
func (f *fetcher) readTo(end int) {
	for f.next < int64(end) {
		f.fetch()
	}
}

// decodeTo fetches up to an offset and decodes the records as a kgo client does, and
// counts those that keep says yes to.
func (f *fetcher) decodeTo(end int, keep func(*kgo.Record) bool) (kept int) {
	for f.next < int64(end) {
		from := f.next
		p := f.fetch()
		out, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "t", Offset: from}, p, f.codecs, nil)
		require.NoError(f.tb, out.Err)
		for _, r := range out.Records {
			if keep == nil || keep(r) {
				kept++
			}
		}
	}
	return kept
}
