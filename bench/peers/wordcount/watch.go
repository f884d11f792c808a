package main

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// watcher reads what a job writes, and knows when it has told of all words.
type watcher struct {
	client *kgo.Client
	counts map[string]uint64
	// records were read, of which so many did not count one up: a word told of twice or left out.
	records, odd int64
}

func watch(broker string) (*watcher, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumeTopics(outputTopic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, err
	}
	return &watcher{client: client, counts: make(map[string]uint64)}, nil
}

func (w *watcher) close() { w.client.Close() }

// await waits until the last count of each word is the one of the input, and calls first
// when the first record comes. A count above the input's is an error.
func (w *watcher) await(ctx context.Context, in *input, first func()) error {
	behind := 0
	for word, n := range in.counts {
		if w.counts[word] != n {
			behind++
		}
	}
	for behind > 0 {
		fetched := w.client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%d words have not their counts yet: %w", behind, context.Cause(ctx))
		}
		if err := fetched.Err(); err != nil {
			return fmt.Errorf("read the counts: %w", err)
		}
		var wrong error
		fetched.EachRecord(func(r *kgo.Record) {
			if first != nil {
				first()
				first = nil
			}
			word, n := string(r.Key), uint64(0)
			if len(r.Value) == 8 {
				n = binary.BigEndian.Uint64(r.Value)
			}
			want, before := in.counts[word], w.counts[word]
			if n == 0 || n > want {
				wrong = fmt.Errorf("the count of %q is %d, there are %d", word, n, want)
			}
			if n != before+1 {
				w.odd++
			}
			if before == want {
				behind++
			}
			if n == want {
				behind--
			}
			w.counts[word] = n
			w.records++
		})
		if wrong != nil {
			return wrong
		}
	}
	return nil
}
