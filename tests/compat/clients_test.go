package compat

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A client is one program or library that writes and reads.
type client interface {
	// produce writes a text with its codec, idempotence on, and returns when the broker has
	// acknowledged each line.
	produce(ctx context.Context, addr string, x text) error
	// consume reads topics from their start until each reading has seen its text.
	consume(ctx context.Context, addr string, readings []*reading) error
}

var clients = []struct {
	name   string
	client client
}{
	{"kcat", kcat{}},
	{"confluent-python", confluentPython{}},
	{"java-console", javaConsole{}},
	{"kgo", franz{}},
}

// TestClientsReadWhatTheyWrote lets each client write 200,000 lines of real text in each
// codec, and each client read all of it: the same bytes, in the same order per partition.
func TestClientsReadWhatTheyWrote(t *testing.T) {
	requireTool(t, "kcat")
	requireTool(t, python())
	b := sharedBroker(t)
	const partitions = 3
	lines := sourceLines(t)

	var texts []text
	for _, c := range clients {
		for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
			x := text{topic: fmt.Sprintf("text-%s-%s", c.name, codec), codec: codec, lines: lines}
			if t.Run(fmt.Sprintf("producer=%s/codec=%s", c.name, codec), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				b.createTopic(t, x.topic, partitions)
				require.NoError(t, c.client.produce(ctx, b.addr, x))
			}) {
				texts = append(texts, x)
			}
		}
	}
	for _, c := range clients {
		t.Run("consumer="+c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			var readings []*reading
			for _, x := range texts {
				readings = append(readings, newReading(x))
			}
			require.NoError(t, c.client.consume(ctx, b.addr, readings))
			for _, r := range readings {
				require.NoError(t, r.complete(partitions))
			}
		})
	}
}
