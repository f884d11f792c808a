package client

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicCache is what a Transactor knows of the topics that it produces to.
type topicCache struct {
	mu     sync.Mutex
	topics map[string]cachedTopic
}

type cachedTopic struct {
	topicInfo
	until time.Time
}

// topicCacheTime is how long new partitions of a topic may go unnoticed.
const topicCacheTime = time.Minute

// find is the topic of that name, from the cache or else asked for with the client, which
// then knows the brokers too.
func (c *topicCache) find(ctx context.Context, cl *kgo.Client, name string) (topicInfo, error) {
	c.mu.Lock()
	known, ok := c.topics[name]
	c.mu.Unlock()
	if ok && time.Now().Before(known.until) {
		return known.topicInfo, nil
	}
	t, err := loadTopicToProduce(ctx, cl, name)
	if err != nil {
		return topicInfo{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.topics == nil {
		c.topics = make(map[string]cachedTopic)
	}
	c.topics[name] = cachedTopic{t, time.Now().Add(topicCacheTime)}
	return t, nil
}

// forget has a topic asked for anew.
func (c *topicCache) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.topics, name)
}

// loadTopicToProduce asks for a topic, which may be made for that if the client was told so.
func loadTopicToProduce(ctx context.Context, cl *kgo.Client, name string) (topicInfo, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation, _ = cl.OptValue(kgo.AllowAutoTopicCreation).(bool)
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &name
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return topicInfo{}, fmt.Errorf("load metadata of topic %s: %w", name, err)
	}
	if len(resp.Topics) != 1 {
		return topicInfo{}, fmt.Errorf("load metadata of topic %s: the broker did not answer for it", name)
	}
	info := parseTopic(&resp.Topics[0])
	if info.err == nil && len(info.partitions) == 0 {
		info.err = fmt.Errorf("topic %s: %w", name, kerr.LeaderNotAvailable)
	}
	return info, info.err
}

// partitioning says which partition a record goes to, by kgo's partitioners. It is used by
// one transaction at a time.
type partitioning struct {
	by     kgo.Partitioner
	topics map[string]kgo.TopicPartitioner
}

func newPartitioning(cl *kgo.Client) partitioning {
	by, _ := cl.OptValue(kgo.RecordPartitioner).(kgo.Partitioner)
	return partitioning{by: by, topics: make(map[string]kgo.TopicPartitioner)}
}

// begin lets records without a key go elsewhere than before.
func (p *partitioning) begin() {
	for _, t := range p.topics {
		if t, ok := t.(kgo.TopicPartitionerOnNewBatch); ok {
			t.OnNewBatch()
		}
	}
}

// pick is the partition of a record among n.
func (p *partitioning) pick(r *kgo.Record, n int) int32 {
	t := p.topics[r.Topic]
	if t == nil {
		t = p.by.ForTopic(r.Topic)
		p.topics[r.Topic] = t
	}
	if t, ok := t.(kgo.TopicBackupPartitioner); ok {
		return int32(t.PartitionByBackup(r, n, &noBackup{n: n}))
	}
	return int32(t.Partition(r, n))
}

// noBackup says of every partition that nothing waits for it.
type noBackup struct{ next, n int }

// Next implements kgo.TopicBackupIter.
func (b *noBackup) Next() (int, int64) {
	b.next++
	return b.next - 1, 0
}

// Rem implements kgo.TopicBackupIter.
func (b *noBackup) Rem() int { return b.n - b.next }

// producing are the options of a kgo client about batches.
type producing struct {
	codec    protocol.Codec
	maxBytes int
}

func newProducing(cl *kgo.Client) producing {
	p := producing{codec: protocol.CodecNone, maxBytes: 1_000_000}
	if n, ok := cl.OptValue(kgo.ProducerBatchMaxBytes).(int32); ok && n > 0 {
		p.maxBytes = int(n)
	}
	if codecs, ok := cl.OptValue(kgo.ProducerBatchCompression).([]kgo.CompressionCodec); ok && len(codecs) > 0 {
		p.codec = codecOf(codecs[0])
	}
	return p
}

// codecOf is the codec that kgo means. It tells only by compressing something.
func codecOf(codec kgo.CompressionCodec) protocol.Codec {
	compressor, err := kgo.DefaultCompressor(codec)
	if err != nil || compressor == nil {
		return protocol.CodecNone
	}
	_, kind := compressor.Compress(new(bytes.Buffer), []byte("codec"))
	return protocol.Codec(kind)
}
