package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// produceOptions are the flags of produce.
type produceOptions struct {
	topic        string
	partition    int32
	keyDelimiter string
	codec        string
	acks         string
	headers      []string
	tombstones   bool
	linger       time.Duration
	quiet        bool
}

func produceCommand(c *cli) *cobra.Command {
	var o produceOptions
	cmd := &cobra.Command{
		Use:   "produce",
		Short: "Write lines from standard input",
		Long: `Write the lines of standard input to a topic, one record each, until the input ends.
The exit code is 0 if every record was acknowledged.`,
		Example: `  seq 10 | lacuna produce --topic numbers
  lacuna produce -t orders -K : <<< 'order-1:new'
  lacuna produce -t logs --codec zstd < /var/log/syslog`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.produce(cmd.Context(), o) },
	}
	c.connectFlags(cmd)
	f := cmd.Flags()
	f.StringVarP(&o.topic, "topic", "t", "", "topic to write to; created if the broker does that")
	f.Int32VarP(&o.partition, "partition", "p", -1, "partition to write to (-1: by key, or spread)")
	f.StringVarP(&o.keyDelimiter, "key-delimiter", "K", "", "what separates the key from the value in a line")
	f.StringVarP(&o.codec, "codec", "z", "none", "compression: none, gzip, snappy, lz4 or zstd")
	f.StringVar(&o.acks, "acks", "all", "all: durable; 1: written; 0: sent")
	f.StringArrayVarP(&o.headers, "header", "H", nil, "record header, KEY=VALUE; may repeat")
	f.BoolVar(&o.tombstones, "tombstones", false, "a key with an empty value is a tombstone (null value)")
	f.DurationVar(&o.linger, "linger", 5*time.Millisecond, "how long a record waits for others to be sent with")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no progress and no summary on a terminal")
	return cmd
}

// What produce reads ahead of the broker: several full batches, also of short lines.
const (
	maxBufferedRecords = 1 << 18
	maxBufferedBytes   = 64 << 20
)

// deliveryTimeout is how long produce tries to deliver a record, as in Kafka.
const deliveryTimeout = 2 * time.Minute

// options are those of the producer.
func (o *produceOptions) options() ([]kgo.Opt, error) {
	if o.topic == "" {
		return nil, usagef("produce needs a topic: say --topic NAME")
	}
	opts := []kgo.Opt{kgo.AllowAutoTopicCreation(), kgo.ProducerLinger(o.linger), kgo.DefaultProduceTopic(o.topic),
		kgo.MaxBufferedRecords(maxBufferedRecords), kgo.MaxBufferedBytes(maxBufferedBytes),
		kgo.RecordDeliveryTimeout(deliveryTimeout)}
	if o.partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	codec, ok := codecs[o.codec]
	if !ok {
		return nil, usagef("--codec is %q: it is none, gzip, snappy, lz4 or zstd", o.codec)
	}
	opts = append(opts, kgo.ProducerBatchCompression(codec))
	switch o.acks {
	case "all", "-1":
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, usagef("--acks is %q: it is all, 1 or 0", o.acks)
	}
	return opts, nil
}

// record makes the record of a line, which it keeps.
func (o *produceOptions) record(line []byte, headers []kgo.RecordHeader) *kgo.Record {
	r := &kgo.Record{Value: line, Partition: o.partition, Headers: headers}
	if o.keyDelimiter == "" {
		return r
	}
	if key, value, ok := strings.Cut(string(line), o.keyDelimiter); ok {
		r.Key, r.Value = []byte(key), []byte(value)
		if value == "" && o.tombstones {
			r.Value = nil
		}
	}
	return r
}

// flushTimeout is how long produce and consume, once interrupted, try to finish.
const flushTimeout = 10 * time.Second

func (c *cli) produce(ctx context.Context, o produceOptions) error {
	opts, err := o.options()
	if err != nil {
		return err
	}
	headers, err := recordHeaders(o.headers)
	if err != nil {
		return err
	}
	cl, err := c.connect(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	// Producing would wait for a broker that is not there, and say nothing.
	if err := cl.Ping(ctx); err != nil {
		return c.reach(err)
	}
	if c.inTerminal && !o.quiet {
		fmt.Fprintf(c.err, "writing to %s; one record a line, Ctrl-D ends\n", o.topic)
	}
	p := &production{cl: cl, start: time.Now(), bar: c.newBar("producing", inputSize(c.in), true, o.quiet || c.inTerminal)}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.fail = cancel
	read := make(chan error, 1)
	// Reading may hang in a terminal or a pipe, so an interrupt does not wait for it.
	go func() { read <- p.readLines(ctx, c.in, &o, headers) }()
	select {
	case err = <-read:
	case <-ctx.Done():
	}
	if err == nil && ctx.Err() != nil {
		if err = p.firstError(); err == nil {
			err = errors.New("interrupted")
		}
	}
	flushing, stop := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer stop()
	if err == nil {
		flushing = ctx // the input ended by itself, there is no hurry
	}
	flushErr := cl.Flush(flushing)
	p.bar.finish()
	if err == nil { // else that is why the others failed
		if err = p.firstError(); err == nil {
			err = flushErr
		}
	}
	if err := c.reach(err); err != nil {
		return fmt.Errorf("%s acknowledged before it failed: %w", plural(p.acknowledged(), "record", "records"), err)
	}
	if c.errTerminal && !o.quiet {
		took := time.Since(p.start)
		fmt.Fprintf(c.err, "%s, %s in %s\n", plural(p.acknowledged(), "record", "records"), humanize.IBytes(uint64(p.bytes)), took.Round(time.Millisecond))
	}
	return nil
}

// production is one run of produce.
type production struct {
	cl    *kgo.Client
	bar   *bar
	start time.Time
	fail  context.CancelCauseFunc
	bytes int64 // of the lines read

	mu struct {
		sync.Mutex
		acked int64
		err   error
	}
}

// readLines produces a record for each line until the input ends.
func (p *production) readLines(ctx context.Context, in io.Reader, o *produceOptions, headers []kgo.RecordHeader) error {
	r := bufio.NewReaderSize(in, 1<<16)
	for n := int64(1); ctx.Err() == nil; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read line %d: %w", n, err)
		}
		p.bytes += int64(len(line))
		p.bar.add(len(line))
		if line[len(line)-1] == '\n' {
			line = line[:len(line)-1]
		}
		p.cl.Produce(ctx, o.record(line, headers), func(r *kgo.Record, err error) { p.done(n, r, err) })
	}
	return nil
}

// done takes in the outcome for one line. The first failure stops the run: what comes
// after it should not be written as if nothing had happened.
func (p *production) done(line int64, r *kgo.Record, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.mu.acked++
		return
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		err = topicError(r.Topic, err)
	}
	if p.mu.err == nil {
		p.mu.err = fmt.Errorf("produce line %d: %w", line, err)
		p.fail(p.mu.err)
	}
}

func (p *production) firstError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.err
}

func (p *production) acknowledged() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.acked
}

func recordHeaders(pairs []string) (headers []kgo.RecordHeader, err error) {
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, usagef("--header %q: it has the form KEY=VALUE", pair)
		}
		headers = append(headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
	}
	return headers, nil
}
