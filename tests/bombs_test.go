package tests

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// bombs are small batches that decompress to much more than max.decoded.batch.bytes, one
// in each codec.
func bombs(t *testing.T) map[protocol.Codec][]byte {
	t.Helper()
	all := make(map[protocol.Codec][]byte)
	for codec, size := range map[protocol.Codec]int{
		protocol.CodecGzip: 60 << 20, protocol.CodecSnappy: 12 << 20, protocol.CodecLz4: 60 << 20, protocol.CodecZstd: 60 << 20,
	} {
		all[codec] = compressed(t, codec, size)
	}
	return all
}

// compressed is a batch of one record whose value is so many zeros.
func compressed(t *testing.T, codec protocol.Codec, size int) []byte {
	t.Helper()
	o := protocol.PlainBatch(0)
	o.Codec = codec
	var b protocol.BatchBuilder
	b.Reset(o)
	b.Append([]byte("bomb"), make([]byte, size), nil, 1)
	batch, err := b.Build(nil)
	require.NoError(t, err)
	require.Less(t, len(batch), 1<<20)
	return batch
}

// produceAll appends batches to a topic and returns them as they are stored.
func produceAll(t *testing.T, c *wire.Conn, topic string, batches ...[]byte) (stored []byte) {
	t.Helper()
	for _, batch := range batches {
		resp, err := c.Do(wire.ProduceRequest(topic, 0, -1, batch))
		require.NoError(t, err)
		base, err := wire.ProducedAt(resp)
		require.NoError(t, err)
		batch = bytes.Clone(batch)
		protocol.SetBaseOffset(batch, base)
		protocol.SetLeaderEpoch(batch, 0)
		stored = append(stored, batch...)
	}
	return stored
}

// TestBombsInFilteredFetches has many readers with filters fetch batches that decompress
// to more than the broker looks into: they get them whole, as if they matched.
func TestBombsInFilteredFetches(t *testing.T) {
	p := startProcess(t, t.TempDir(), smallMemory...)
	c := dial(t, p.addr)
	_, err := c.MakeTopic("bombs")
	require.NoError(t, err)
	var want []byte
	for _, batch := range bombs(t) {
		want = append(want, produceAll(t, c, "bombs", batch)...)
	}
	quiet := startCalm(t, p.addr, "calm")
	var readers sync.WaitGroup
	for i := range 16 {
		conn := dial(t, p.addr)
		readers.Go(func() {
			lo := uint16(i * 4096)
			filter := protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: lo, Hi: lo + 4095}}}
			got, err := fetchFiltered(conn, "bombs", 4, filter)
			assert.NoError(t, err)
			assert.True(t, bytes.Equal(want, got), "reader %d: %d bytes, not the %d that were produced", i, len(got), len(want))
		})
	}
	readers.Wait()
	quiet.undisturbed(t)
	peak := p.stop()
	t.Logf("memory: at most %d MiB", peak>>20)
	require.LessOrEqual(t, peak, int64(memoryLimit))
}

// fetchFiltered reads what a filter leaves of a partition's first offsets.
func fetchFiltered(c *wire.Conn, topic string, end int64, filter protocol.KeyFilter) (got []byte, err error) {
	for next := int64(0); next < end; {
		req := wire.FetchRequest(topic, 0, next, 1<<20, wire.Patience)
		req.UnknownTags.Set(protocol.ExtensionTag, filter.AppendTo(nil))
		resp, err := c.Do(req)
		if err != nil {
			return nil, err
		}
		p, err := wire.Fetched(resp)
		if err != nil {
			return nil, err
		}
		field, ok := wire.ExtensionField(&p.UnknownTags)
		if !ok {
			return nil, fmt.Errorf("the answer to a filtered fetch from offset %d has no ScannedTo", next)
		}
		scanned, err := protocol.ParseScannedTo(field)
		if err != nil {
			return nil, err
		}
		if scanned.Next <= next {
			return nil, fmt.Errorf("a filtered fetch from offset %d did not get on", next)
		}
		got, next = append(got, p.RecordBatches...), scanned.Next
	}
	return got, nil
}

// TestBombsInLookups has many clients look timestamps up in batches that have to be
// decompressed for it: some that are too large, and some of nearly the largest size.
func TestBombsInLookups(t *testing.T) {
	p := startProcess(t, t.TempDir(), smallMemory...)
	c := dial(t, p.addr)
	_, err := c.MakeTopic("bombs")
	require.NoError(t, err)
	topics := []string{"bombs"}
	for codec, batch := range bombs(t) {
		produceAll(t, c, "bombs", batch)
		large := "large-" + codec.String()
		_, err := c.MakeTopic(large)
		require.NoError(t, err)
		produceAll(t, c, large, compressed(t, codec, 4<<20-100))
		topics = append(topics, large)
	}
	quiet := startCalm(t, p.addr, "calm")
	var clients sync.WaitGroup
	for range 16 {
		conn := dial(t, p.addr)
		clients.Go(func() {
			for _, topic := range topics {
				for _, timestamp := range []int64{1, -3} {
					_, err := conn.Do(lookup(topic, timestamp))
					assert.NoError(t, err)
				}
			}
		})
	}
	clients.Wait()
	quiet.undisturbed(t)
	peak := p.stop()
	t.Logf("memory: at most %d MiB", peak>>20)
	require.LessOrEqual(t, peak, int64(memoryLimit))
}

// lookup asks a partition for the first offset with a timestamp.
func lookup(topic string, timestamp int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.SetVersion(7)
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = timestamp
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	return req
}

// TestBombsInCompactedTopics produces bombs to a compacted topic, many at a time, and has
// the cleaner meet some that were there before the topic was compacted.
func TestBombsInCompactedTopics(t *testing.T) {
	flags := append([]string{"--set", "log.cleaner.backoff.ms=50", "--set", "log.cleaner.min.cleanable.ratio=0"}, smallMemory...)
	p := startProcess(t, t.TempDir(), flags...)
	c := dial(t, p.addr)
	small := map[string]string{"segment.bytes": "1048576"}
	require.NoError(t, c.CreateTopic("later", 1, small))
	small["cleanup.policy"] = "compact"
	require.NoError(t, c.CreateTopic("compacted", 1, small))
	quiet := startCalm(t, p.addr, "calm")

	all := bombs(t)
	var producers sync.WaitGroup
	for range 4 {
		for codec, batch := range all {
			conn := dial(t, p.addr)
			producers.Go(func() {
				resp, err := conn.Do(wire.ProduceRequest("compacted", 0, -1, batch))
				if assert.NoError(t, err) {
					_, err = wire.ProducedAt(resp)
					assert.ErrorIs(t, err, kerr.MessageTooLarge, "a bomb in %v", codec)
				}
			})
		}
	}
	producers.Wait()

	// The keys before and after the bombs tell when the cleaner has passed.
	produceAll(t, c, "later", keyed(t, "old", 10))
	for _, batch := range all {
		produceAll(t, c, "later", batch)
	}
	produceAll(t, c, "later", keyed(t, "old", 10), keyed(t, "filler", 900<<10), keyed(t, "filler", 900<<10))
	require.NoError(t, alterTopic(c, "later", "cleanup.policy", "compact"))
	require.Eventually(t, func() bool {
		resp, err := c.Do(wire.FetchRequest("later", 0, 0, 1<<10, 0))
		require.NoError(t, err)
		part, err := wire.Fetched(resp)
		require.NoError(t, err)
		h, err := protocol.ParseBatchHeader(part.RecordBatches)
		require.NoError(t, err)
		return h.NumRecords == 0 || h.BaseOffset > 0
	}, wire.Patience, 20*time.Millisecond, "the cleaner did not get past the bombs")
	quiet.undisturbed(t)
	peak := p.stop()
	t.Logf("memory: at most %d MiB", peak>>20)
	require.LessOrEqual(t, peak, int64(memoryLimit))
}

// keyed is a batch of one record with that key and a value of n bytes.
func keyed(t *testing.T, key string, n int) []byte {
	t.Helper()
	var b protocol.BatchBuilder
	b.Reset(protocol.PlainBatch(0))
	b.Append([]byte(key), make([]byte, n), nil, time.Now().UnixMilli())
	batch, err := b.Build(nil)
	require.NoError(t, err)
	return batch
}

// alterTopic sets one setting of a topic.
func alterTopic(c *wire.Conn, topic, name, value string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.SetVersion(1)
	setting := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	setting.Name, setting.Value = name, &value
	req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{
		ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: topic,
		Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{setting},
	}}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode)
}
