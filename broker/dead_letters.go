package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// The headers of a dead letter (KIP-1191). Their values are text.
const (
	letterTopic         = "__dlq.errors.topic"
	letterPartition     = "__dlq.errors.partition"
	letterOffset        = "__dlq.errors.offset"
	letterGroup         = "__dlq.errors.group"
	letterDeliveryCount = "__dlq.errors.delivery.count"
	letterMessage       = "__dlq.errors.message"
)

// letterCauses are Kafka's words for why a record got a dead letter.
var letterCauses = map[cooperative.Cause]string{
	cooperative.Rejected:  "Offset rejected by client.",
	cooperative.Exhausted: "Offset delivery count exceeded the threshold.",
}

// deadLetters writes the dead letters of share groups, as Kafka 4.4 does (KIP-1191): to
// the partition of the group's dead-letter topic that has the record's partition number
// modulo their count. Other than in Kafka a letter that cannot be written waits.
type deadLetters struct{ b *Broker }

// Write is part of dealer.DeadLetters.
func (d deadLetters) Write(ctx context.Context, group string, tp extension.TopicPartition, letters []cooperative.DeadLetter) (left []cooperative.DeadLetter, err error) {
	settings := d.b.groupValues(group)
	name := settings.Text("errors.deadletterqueue.topic.name")
	source := d.b.topics.partitionOf(tp.Topic, tp.Partition)
	switch {
	case name == "": // the group has no such topic any more
		return nil, nil
	case source == nil: // the records are gone, and the ledger goes too
		return nil, nil
	case source.topic.name == name:
		// A letter about a letter would be dealt to the group that failed on it, and so on
		// for ever. The record stays where it is, in that topic.
		return nil, nil
	}
	to, err := d.topic(name)
	if err != nil {
		return letters, fmt.Errorf("dead-letter topic %q of group %q: %w", name, group, err)
	}
	w := &letterWriter{d: d, group: group, source: source, to: to, copyRecords: settings.Bool("errors.deadletterqueue.copy.record.enable")}
	return w.write(ctx, letters)
}

// topic is the dead-letter topic with that name, made if it is missing and may be.
func (d deadLetters) topic(name string) (*topic, error) {
	settings := d.b.settings()
	values := settings.configs.Values()
	prefix := values.Text("errors.deadletterqueue.topic.name.prefix")
	switch {
	case strings.HasPrefix(name, "__"):
		return nil, errors.New("its name must not start with __")
	case !strings.HasPrefix(name, prefix):
		return nil, fmt.Errorf("its name does not start with %q (errors.deadletterqueue.topic.name.prefix)", prefix)
	}
	m := d.b.controller.image.Load().TopicByName(name)
	if m == nil {
		if !values.Bool("errors.deadletterqueue.auto.create.topics.enable") {
			return nil, errors.New("there is no such topic; create it with errors.deadletterqueue.group.enable=true, " +
				"or set errors.deadletterqueue.auto.create.topics.enable of the broker")
		}
		return d.create(name, settings)
	}
	if !settings.configs.Topic(m.Config).Bool("errors.deadletterqueue.group.enable") {
		return nil, errors.New("errors.deadletterqueue.group.enable of the topic is false")
	}
	t, refused := d.b.topics.find("", m.ID, true)
	if refused != nil {
		return nil, refused
	}
	return t, nil
}

// create makes a dead-letter topic. Letters have the time at which they were written, so
// the topic must not give them another.
func (d deadLetters) create(name string, s *brokerSettings) (*topic, error) {
	t, err := d.b.controller.createTopic(metadata.Topic{Name: name, Partitions: s.NumPartitions, Config: map[string]string{
		"errors.deadletterqueue.group.enable": "true", "message.timestamp.type": "CreateTime",
	}})
	if errors.Is(err, metadata.ErrTopicExists) { // somebody else was quicker; it is looked at next time
		return nil, kerr.LeaderNotAvailable
	}
	return t, err
}

// letterWriter writes letters about records of one partition.
type letterWriter struct {
	d           deadLetters
	group       string
	source      *partition
	to          *topic
	copyRecords bool

	log     *commitlog.Log
	most    int // max.message.bytes
	builder protocol.BatchBuilder
	in      []cooperative.DeadLetter // the batch that is being built
	batches []letterBatch
	left    []cooperative.DeadLetter
	err     error // why the first that is left is
}

// letterBatch is letters that were appended together.
type letterBatch struct {
	letters []cooperative.DeadLetter
	flush   *commitlog.Flush
}

// write appends the letters in as few batches as the topic admits, and waits until they are
// durable.
func (w *letterWriter) write(ctx context.Context, letters []cooperative.DeadLetter) ([]cooperative.DeadLetter, error) {
	var err error
	if _, w.log, err = w.to.open(w.source.index % int32(len(w.to.partitions()))); err != nil {
		return letters, fmt.Errorf("dead-letter topic %q: %w", w.to.name, err)
	}
	w.most = int(w.to.settings.Load().log.MaxMessageBytes)
	slices.SortFunc(letters, func(a, b cooperative.DeadLetter) int { return cmp.Compare(a.Offset, b.Offset) })
	var records sourceRecords
	if w.copyRecords {
		if _, records.log, err = w.source.topic.open(w.source.index); err != nil {
			return letters, err
		}
		records.decoding = w.d.b.decoding
	}
	for i := range letters {
		if ctx.Err() != nil {
			w.fail(letters[i:], ctx.Err())
			break
		}
		w.add(letters[i], records.first(letters[i:]))
	}
	w.append()
	for _, batch := range w.batches {
		if batch.flush != nil {
			<-batch.flush.Done() // a log ends all its flushes before it closes
			if err := batch.flush.Err(); err != nil {
				w.fail(batch.letters, err)
				continue
			}
		}
		w.d.b.metrics.deadLetters.Add(float64(len(batch.letters)))
	}
	return w.left, w.err
}

// letterOverhead is about what a letter takes besides its headers, key and value.
const letterOverhead = 64

// add puts a letter in the batch. A copy that is too large for the topic is left out: the
// headers say where the record is.
func (w *letterWriter) add(l cooperative.DeadLetter, record copiedRecord) {
	if w.to.compacted() && record.key == nil {
		w.fail([]cooperative.DeadLetter{l}, errors.New("it is compacted, and the dead letter has no key"))
		return
	}
	headers := w.headers(&l)
	size := letterOverhead + len(record.key) + len(record.value)
	for i := range headers {
		size += len(headers[i].Key) + len(headers[i].Value) + 4
	}
	if protocol.BatchHeaderLen+size > w.most && len(record.key)+len(record.value) > 0 {
		w.d.b.log.Warn("a record is too large for its dead-letter topic: the dead letter is written without it",
			zap.String("group", w.group), zap.String("topic", w.source.topic.name), zap.Int32("partition", w.source.index),
			zap.Int64("offset", l.Offset), zap.String("dead-letter topic", w.to.name), zap.Int("max.message.bytes", w.most))
		size -= len(record.key) + len(record.value)
		record = copiedRecord{}
	}
	if w.builder.Count() > 0 && w.builder.Size()+size > w.most {
		w.append()
	}
	if len(w.in) == 0 {
		w.builder.Reset(protocol.PlainBatch(0))
	}
	w.in = append(w.in, l)
	w.builder.Append(record.key, record.value, headers, w.d.b.nowMs())
}

func (w *letterWriter) headers(l *cooperative.DeadLetter) []protocol.Header {
	return []protocol.Header{
		{Key: letterTopic, Value: []byte(w.source.topic.name)},
		{Key: letterPartition, Value: strconv.AppendInt(nil, int64(w.source.index), 10)},
		{Key: letterOffset, Value: strconv.AppendInt(nil, l.Offset, 10)},
		{Key: letterGroup, Value: []byte(w.group)},
		{Key: letterDeliveryCount, Value: strconv.AppendInt(nil, int64(l.Count), 10)},
		{Key: letterMessage, Value: []byte(letterCauses[l.Cause])},
	}
}

// append appends the batch that was built.
func (w *letterWriter) append() {
	letters := w.in
	if w.in = nil; len(letters) == 0 {
		return
	}
	batch, err := w.builder.Build(nil)
	w.builder.Reset(protocol.PlainBatch(0))
	if err != nil {
		w.fail(letters, err)
		return
	}
	done, err := w.log.Append(batch, commitlog.AppendOptions{})
	if err != nil {
		w.fail(letters, err)
		return
	}
	w.batches = append(w.batches, letterBatch{letters, done.Flush})
}

func (w *letterWriter) fail(letters []cooperative.DeadLetter, err error) {
	w.left = append(w.left, letters...)
	if w.err == nil {
		w.err = fmt.Errorf("dead-letter topic %q: %w", w.to.name, err)
	}
}
