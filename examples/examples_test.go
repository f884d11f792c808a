package examples

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/broker"
)

// lastLine is the last one of grow.
var lastLine = regexp.MustCompile(`(?m)^produced (\d+) records, counted (\d+), with 5 workers$`)

// bin is where the examples are built.
var bin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "examples"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(bin)
	build := exec.Command("go", "build", "-o", bin, "./latest", "./wordcount", "./grow")
	if out, err := build.CombinedOutput(); err != nil {
		panic(string(out))
	}
	return m.Run()
}

// startBroker starts a broker in memory and returns its address.
func startBroker(t *testing.T) string {
	t.Helper()
	b, err := broker.Start(t.Context(), broker.Config{Listen: []string{"127.0.0.1:0"}, DataDir: "data", FS: vfs.NewMem(),
		Settings: map[string]string{"offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0", "transaction.state.log.num.partitions": "2"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Stop(context.Background())) })
	return b.Addr()
}

// example is a command that runs an example, and what it has printed when it has ended.
func example(t *testing.T, addr, name string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(bin, name), append([]string{"-brokers", addr}, args...)...)
	out := new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

// The latest reading of each sensor comes out; an interrupt ends the program.
func TestLatest(t *testing.T) {
	addr := startBroker(t)
	cmd, out := example(t, addr, "latest", "-every", "200ms")
	require.NoError(t, cmd.Start())
	sink, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics("latest"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.UnknownTopicRetries(-1))
	require.NoError(t, err)
	defer sink.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	sensors := make(map[string]bool)
	for len(sensors) < 10 {
		for _, r := range sink.PollFetches(ctx).Records() {
			sensors[string(r.Key)] = true
		}
		require.NoError(t, ctx.Err(), "only of %v", sensors)
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait(), "%s", out)
	require.Regexp(t, `(?m)^\d\d:\d\d:\d\d: \d+ keys, from bucket 0$`, out.String())
}

// The counts of a second run go on from those of the first.
func TestWordCount(t *testing.T) {
	addr := startBroker(t)
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("To be, or not to be: to be."), 0o600))
	state := filepath.Join(t.TempDir(), "state")
	for _, want := range []string{
		"8 words\n     3 be\n     3 to\n     1 not\n     1 or\n",
		"8 words\n     6 be\n     6 to\n     2 not\n     2 or\n",
	} {
		cmd, out := example(t, addr, "wordcount", "-state", state, text)
		require.NoError(t, cmd.Run(), "%s", out)
		require.Equal(t, want, out.String())
	}
}

// The job grows to five workers, each of which gets keys, and counts all that was produced.
func TestGrow(t *testing.T) {
	cmd, out := example(t, startBroker(t), "grow", "-rate", "2000", "-cost", "50us", "-step", "100ms", "-every", "50ms")
	require.NoError(t, cmd.Run(), "%s", out)
	require.Regexp(t, `(?m)^ *\d+\.\ds +5 .* \[[1-9]\d*( [1-9]\d*){4}\]$`, out.String())
	counts := lastLine.FindStringSubmatch(out.String())
	require.Len(t, counts, 3, "%s", out)
	require.Equal(t, counts[1], counts[2])
}
