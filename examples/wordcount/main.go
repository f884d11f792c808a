// Command wordcount counts words in a store, exactly once. It writes the words of some files
// to a topic, counts them, and prints the most frequent ones. Run again it goes on from the
// counts that it has, which are in the directory -state.
//
//	go run ./examples/wordcount README.md
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/processor"
)

func main() {
	brokers := flag.String("brokers", "127.0.0.1:9092", "brokers to connect to first, with commas between them")
	state := flag.String("state", "wordcount-state", "directory of the counts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, strings.Split(*brokers, ","), *state, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "wordcount:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, brokers []string, state string, files []string) error {
	kafka, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return err
	}
	defer kafka.Close()
	admin := kadm.NewClient(kafka)
	for _, topic := range []string{"words", "counts"} {
		if _, err := admin.CreateTopic(ctx, 2, 1, nil, topic); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("create topic %s: %w", topic, err)
		}
	}
	app, err := processor.Open(ctx, "wordcount", processor.Topology{
		Inputs: []string{"words"}, Sinks: []string{"counts"},
		Processors: []processor.Node{{Name: "count", Stores: []string{"counts"}, New: processor.ProcessFunc(count)}},
	}, processor.SeedBrokers(brokers...), processor.StateDir(state), processor.ExactlyOnce(), processor.Name("wordcount"))
	if err != nil {
		return err
	}
	err = writeWords(ctx, kafka, files)
	if err == nil {
		err = printCounts(ctx, brokers, admin, app)
	}
	return errors.Join(err, app.Close(context.WithoutCancel(ctx)))
}

// count is what is done with a word: its count in the store and in the sink goes up by one.
func count(c *processor.Context, word *kgo.Record) error {
	counts, err := c.Store("counts")
	if err != nil {
		return err
	}
	before, _, err := counts.Get(word.Key)
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(string(before)) // none is 0
	after := strconv.AppendInt(nil, int64(n+1), 10)
	if err := counts.Put(word.Key, after); err != nil {
		return err
	}
	return c.Forward(&kgo.Record{Key: word.Key, Value: after})
}

// writeWords writes each word of the files as a record, with the word for a key.
func writeWords(ctx context.Context, kafka *kgo.Client, files []string) error {
	var records []*kgo.Record
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, word := range strings.FieldsFunc(strings.ToLower(string(text)), func(r rune) bool { return !unicode.IsLetter(r) }) {
			records = append(records, &kgo.Record{Topic: "words", Key: []byte(word)})
		}
	}
	fmt.Printf("%d words\n", len(records))
	return kafka.ProduceSync(ctx, records...).FirstErr()
}

// printCounts reads the sink until as much has come as there are words in the input, and
// prints the ten highest counts.
func printCounts(ctx context.Context, brokers []string, admin *kadm.Client, app *processor.App) error {
	ends, err := admin.ListEndOffsets(ctx, "words")
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("find the end of the words: %w", err)
	}
	var words int64
	ends.Each(func(o kadm.ListedOffset) { words += o.Offset })
	sink, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics("counts"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	defer sink.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // if it cannot go on, no more counts come
		select {
		case <-app.Failed():
			cancel()
		case <-ctx.Done():
		}
	}()
	counts := make(map[string]int)
	for words > 0 && ctx.Err() == nil {
		fetched := sink.PollFetches(ctx)
		if err := fetched.Err(); err != nil && ctx.Err() == nil {
			return err
		}
		fetched.EachRecord(func(r *kgo.Record) {
			counts[string(r.Key)], _ = strconv.Atoi(string(r.Value))
			words--
		})
	}
	all := slices.SortedFunc(maps.Keys(counts), func(x, y string) int { return cmp.Or(counts[y]-counts[x], cmp.Compare(x, y)) })
	for _, word := range all[:min(len(all), 10)] {
		fmt.Printf("%6d %s\n", counts[word], word)
	}
	return app.Err()
}
