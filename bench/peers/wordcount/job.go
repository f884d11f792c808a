package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"runtime/pprof"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/processor"
)

// The topics of every job.
const (
	inputTopic  = "words"
	outputTopic = "counts"
)

// jobCommand is the job as a processor of Lacuna, until it is told to stop.
func jobCommand(ctx context.Context, args []string) (err error) {
	fs := flag.NewFlagSet("job", flag.ExitOnError)
	broker := fs.String("b", "127.0.0.1:9092", "broker host:port")
	dir := fs.String("dir", "wordcount-state", "directory of the counts")
	threads := fs.Int("threads", 1, "tasks that the group is founded with")
	exactlyOnce := fs.Bool("eo", false, "exactly once")
	changelog := fs.String("changelog", "", "topic to keep the state in, from which it is restored instead of from the input")
	profile := fs.String("cpuprofile", "", "write a CPU profile to this file")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer func() { err = firstOf(err, f.Close()) }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	opts := []processor.Option{
		// Kafka Streams' producer does not compress either.
		processor.KafkaOpts(kgo.SeedBrokers(*broker), kgo.ProducerBatchCompression(kgo.NoCompression())),
		processor.StateDir(*dir), processor.Name("wordcount"), processor.InitialBuckets(int32(*threads)),
		processor.OnEvents(processor.Hooks{
			Failed:    func(err error) { fmt.Fprintln(os.Stderr, "failed, trying again:", err) },
			Restarted: func(bucket int32, err error) { fmt.Fprintf(os.Stderr, "task %d begins anew: %v\n", bucket, err) },
		}),
	}
	if *exactlyOnce {
		opts = append(opts, processor.ExactlyOnce())
	}
	if *changelog != "" {
		opts = append(opts, processor.Changelog(*changelog))
	}
	return processor.Run(ctx, "wordcount", processor.Topology{
		Inputs: []string{inputTopic}, Sinks: []string{outputTopic},
		Processors: []processor.Node{{Name: "count", Stores: []string{"counts"}, New: processor.ProcessFunc(count)}},
	}, opts...)
}

// count adds one to the count of a word, 8 bytes in big endian as Kafka Streams has it too.
func count(c *processor.Context, word *kgo.Record) error {
	counts, err := c.Store("counts")
	if err != nil {
		return err
	}
	before, found, err := counts.Get(word.Key)
	if err != nil {
		return err
	}
	n := uint64(1)
	if found {
		n += binary.BigEndian.Uint64(before)
	}
	after := binary.BigEndian.AppendUint64(make([]byte, 0, 8), n)
	if err := counts.Put(word.Key, after); err != nil {
		return err
	}
	return c.Forward(&kgo.Record{Key: word.Key, Value: after})
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
