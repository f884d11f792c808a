package compat

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

// franz is the Go client kgo.
type franz struct{}

var kgoCodecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func (franz) produce(ctx context.Context, addr string, x text) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(x.topic),
		kgo.ProducerBatchCompression(kgoCodecs[x.codec]), kgo.RequiredAcks(kgo.AllISRAcks()))
	if err != nil {
		return err
	}
	defer client.Close()
	failed := make(chan error, 1)
	for i, line := range x.lines {
		client.Produce(ctx, &kgo.Record{Key: x.appendKey(nil, i), Value: line}, func(_ *kgo.Record, err error) {
			if err == nil {
				return
			}
			select {
			case failed <- fmt.Errorf("produce line %d of %s: %w", i, x.topic, err):
			default: // the first error is enough
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return fmt.Errorf("produce to %s: %w", x.topic, err)
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func (franz) consume(ctx context.Context, addr string, readings []*reading) error {
	byTopic := map[string]*reading{}
	var topics []string
	want := 0
	for _, r := range readings {
		byTopic[r.topic] = r
		topics = append(topics, r.topic)
		want += len(r.lines)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	stored := map[string]int{} // the codecs of each topic's batches, a bit for each
	for got := 0; got < want; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("after %d of %d records: %w", got, want, err)
		}
		for it := fetches.RecordIter(); !it.Done(); got++ {
			rec := it.Next()
			stored[rec.Topic] |= 1 << rec.Attrs.CompressionType()
			if rec.Value == nil {
				rec.Value = []byte("(null)")
			}
			err := byTopic[rec.Topic].add(item{partition: rec.Partition, offset: rec.Offset, key: rec.Key, value: rec.Value})
			if err != nil {
				return err
			}
		}
	}
	for _, r := range readings {
		if !storedAs(r.codec, stored[r.topic]) {
			return fmt.Errorf("%s was written with %s and comes with the codecs %05b", r.topic, r.codec, stored[r.topic])
		}
	}
	return nil
}

// storedAs says whether a broker has kept a producer's codec: it comes back, and no other,
// but for batches that the producer left uncompressed since they did not become smaller.
func storedAs(codec string, seen int) bool {
	const uncompressed = 1 << 0
	want := 1 << slices.Index([]string{"none", "gzip", "snappy", "lz4", "zstd"}, codec)
	return seen&want != 0 && seen&^(want|uncompressed) == 0
}
