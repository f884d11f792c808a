package main

import (
	"bytes"
	"context"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// screen collects what a command writes while it runs.
type screen struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// serving runs `lacuna serve` until stop is called, and returns its address.
func serving(t *testing.T, dir string) (addr string, stop func() (code int, out, err string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var out, errs screen
	done := make(chan int, 1)
	go func() {
		args := []string{"serve", "--listen", "127.0.0.1:0", "--data-dir", dir, "--admin", "127.0.0.1:0",
			"--set", "offsets.topic.num.partitions=2"}
		done <- run(ctx, args, streams{in: &bytes.Buffer{}, out: &out, err: &errs})
	}()
	listening := regexp.MustCompile(`listening on +(\S+)`)
	require.Eventually(t, func() bool { return listening.MatchString(out.String()) }, time.Minute, time.Millisecond,
		"it does not say where it listens")
	return listening.FindStringSubmatch(out.String())[1], func() (int, string, string) {
		cancel()
		return <-done, out.String(), errs.String()
	}
}

// command runs one command line and returns what it printed.
func command(t *testing.T, in string, args ...string) (code int, out, err string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, streams{in: bytes.NewBufferString(in), out: &stdout, err: &stderr})
	return code, stdout.String(), stderr.String()
}

func TestServeSaysWhatItDoesAndStopsCleanly(t *testing.T) {
	dir := t.TempDir()
	addr, stop := serving(t, dir)
	code, _, errs := command(t, "hello\n", "produce", "-b", addr, "-t", "greetings")
	require.Zero(t, code, errs)

	code, _, errs = command(t, "", "serve", "--listen", "127.0.0.1:0", "--data-dir", dir)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "in use by another broker")
	require.Contains(t, errs, "--data-dir")
	code, _, errs = command(t, "", "serve", "--listen", addr, "--data-dir", t.TempDir())
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "choose a place with --listen")

	code, out, errs := stop()
	require.Zero(t, code, errs)
	for _, want := range []string{"lacuna " + version() + " is ready", "data in       " + dir, "fsync on", "http://127.0.0.1:",
		"lacuna produce -b " + addr, "Ctrl-C, or kill -TERM", "stopping\nstopped\n"} {
		require.Contains(t, out, want)
	}

	code, out, errs = command(t, "", "fsck", dir)
	require.Zero(t, code, errs)
	require.Contains(t, out, "nothing is wrong")

	again, stop := serving(t, dir)
	code, out, errs = command(t, "", "consume", "-b", again, "-t", "greetings", "--exit")
	require.Zero(t, code, errs)
	require.Equal(t, "hello\n", out)
	stop()
}
