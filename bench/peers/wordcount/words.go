package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// input is what was written, for comparing with what comes out.
type input struct {
	broker string
	words  []string
	counts map[string]uint64
}

// probes is how many different words come after the state was deleted.
const probes = 1000

// readWords reads the first n words of the Go files below dir, all of them several times if
// there are not as many.
func readWords(dir string, n int) ([]string, error) {
	var words []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		if len(words) >= n {
			return fs.SkipAll
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		words = append(words, strings.FieldsFunc(strings.ToLower(string(text)), func(r rune) bool { return !unicode.IsLetter(r) })...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(words) == 0 {
		return nil, fmt.Errorf("no words in the Go files of %s", dir)
	}
	for found := len(words); len(words) < n; {
		words = append(words, words[:min(found, n-len(words))]...)
	}
	return words[:n], nil
}

// toolchainSources is where the Go toolchain has its sources.
func toolchainSources() (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find the Go toolchain: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(root)), "src"), nil
}

// fill creates the topics and writes the words.
func fill(ctx context.Context, broker string, parts int32, words []string) (*input, error) {
	in := &input{broker: broker, words: words, counts: make(map[string]uint64)}
	client, err := kgo.NewClient(kgo.SeedBrokers(broker))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	created, err := kadm.NewClient(client).CreateTopics(ctx, parts, 1, nil, inputTopic, outputTopic)
	if err == nil {
		err = created.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("create topics: %w", err)
	}
	return in, in.write(ctx, words)
}

// write writes words, each as a record with itself as the key, partitioned as all Kafka
// clients do. The value is there because Kafka Streams leaves records without one out.
func (in *input) write(ctx context.Context, words []string) error {
	producer, err := kgo.NewClient(kgo.SeedBrokers(in.broker), kgo.DefaultProduceTopic(inputTopic),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		return err
	}
	defer producer.Close()
	records := make([]*kgo.Record, len(words))
	for i, word := range words {
		records[i] = &kgo.Record{Key: []byte(word), Value: []byte{'1'}}
	}
	if err := producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("write the words: %w", err)
	}
	for _, word := range words {
		in.counts[word]++
	}
	return nil
}

// probe writes one more of some different words.
func (in *input) probe(ctx context.Context) error {
	seen := make(map[string]bool)
	var words []string
	for _, word := range in.words {
		if len(words) == probes {
			break
		}
		if !seen[word] {
			seen[word] = true
			words = append(words, word)
		}
	}
	return in.write(ctx, words)
}
