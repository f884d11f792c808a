package compat

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// kafkaScript starts Apache Kafka and runs its tools.
const kafkaScript = "../../bench/peers/kafka/kafka.sh"

// kafkaDir is the folder of the jars that kafkaScript runs.
func kafkaDir() string { return filepath.Join(cacheDir, "kafka") }

// python is the interpreter of the virtual environment that holds the Python clients.
func python() string { return filepath.Join(cacheDir, "venv", "bin", "python") }

// run feeds input to a program and hands each line that it prints to line, which owns it
// until it returns. A failure carries the end of what the program said on stderr.
func run(ctx context.Context, input io.Reader, line func([]byte) error, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error {
		if errors.Is(context.Cause(ctx), errKilled) {
			return cmd.Process.Kill()
		}
		return cmd.Process.Signal(syscall.SIGTERM)
	}
	cmd.WaitDelay = 10 * time.Second
	cmd.Stdin = input
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	lines := bufio.NewReaderSize(out, 1<<20)
	var lineErr error
	for lineErr == nil {
		var b []byte
		b, err = lines.ReadSlice('\n')
		if len(b) > 0 {
			lineErr = line(bytes.TrimSuffix(b, []byte("\n")))
		}
		if err != nil {
			break
		}
	}
	if lineErr != nil {
		cmd.Cancel()
	}
	waitErr := cmd.Wait()
	switch {
	case lineErr != nil:
		return fmt.Errorf("%s: %w", name, lineErr)
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("%s: read its output: %w", name, err)
	case waitErr != nil:
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), waitErr, tail(said.Bytes()))
	}
	return nil
}

// tail is the end of what a program said, enough to see why it failed.
func tail(b []byte) string {
	const most = 2000
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return strings.TrimSpace(string(b))
}

// ignore is for a program whose output does not matter.
func ignore([]byte) error { return nil }

// requireTool fails a test early when setup.sh has not installed what it runs.
func requireTool(t *testing.T, path string) {
	t.Helper()
	if _, err := exec.LookPath(path); err != nil {
		_, err = os.Stat(path)
		require.NoErrorf(t, err, "%s is missing: run tests/compat/setup.sh", path)
	}
}
