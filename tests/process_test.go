package tests

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/tests/wire"
)

// built is the lacuna binary that the tests build.
var built struct {
	dir  string
	path string
	err  error
	once sync.Once
}

// lacuna is the path of the binary, built with the first test that asks for it.
func lacuna(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "lacuna-tests-"); built.err != nil {
			return
		}
		built.path = filepath.Join(built.dir, "lacuna")
		cmd := exec.Command("go", "build", "-trimpath", "-o", built.path, "../cmd/lacuna")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build lacuna: %w: %s", err, out)
		}
	})
	require.NoError(t, built.err)
	return built.path
}

// process is a broker in a process of its own, which can be killed.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	addr string
	log  string        // file of what it said on stderr
	read chan struct{} // closed when all of its stdout has been read
	done bool          // it has ended and was waited for
}

var saidListening = regexp.MustCompile(`listening on\s+(\S+)`)

// startProcess starts `lacuna serve` over a data directory and returns when it listens.
// What is left of it when the test ends is killed.
func startProcess(t *testing.T, dataDir string, flags ...string) *process {
	t.Helper()
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--data-dir", dataDir, "--log-level", "warn"}, flags...)
	p := &process{t: t, cmd: exec.Command(lacuna(t), args...), read: make(chan struct{})}
	said, err := os.CreateTemp(t.TempDir(), "lacuna-*.log")
	require.NoError(t, err)
	defer said.Close()
	p.log, p.cmd.Stderr = said.Name(), said
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(p.kill)
	lines := bufio.NewScanner(out)
	for p.addr == "" && lines.Scan() {
		if m := saidListening.FindStringSubmatch(lines.Text()); m != nil {
			p.addr = m[1]
		}
	}
	go func() {
		defer close(p.read)
		io.Copy(io.Discard, out) // until it ends
	}()
	require.NotEmpty(t, p.addr, "lacuna serve did not start: %s", p.said())
	return p
}

// said is the end of what the process said on stderr.
func (p *process) said() string {
	said, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(said[max(0, len(said)-4000):])
}

// kill ends the process as kill -9 does, and waits until it is gone.
func (p *process) kill() {
	if p.done {
		return
	}
	p.cmd.Process.Kill()
	p.wait()
}

func (p *process) wait() error {
	p.done = true
	<-p.read
	return p.cmd.Wait()
}

// stop stops the process cleanly and returns the most memory that it ever used, in bytes.
func (p *process) stop() int64 {
	p.t.Helper()
	peak, known := p.peakMemory()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	ended := time.AfterFunc(wire.Patience, func() { p.cmd.Process.Signal(syscall.SIGQUIT) })
	defer ended.Stop()
	require.NoError(p.t, p.wait(), "lacuna did not stop cleanly: %s", p.said())
	if !known { // macOS, where it is in bytes
		peak = int64(p.cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
	}
	return peak
}

var peakLine = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peakMemory is what Linux says of it. The rusage of a child there counts its parent's
// memory too, from before its exec.
func (p *process) peakMemory() (int64, bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, false
	}
	m := peakLine.FindSubmatch(status)
	require.NotNil(p.t, m)
	kb, err := strconv.ParseInt(string(m[1]), 10, 64)
	require.NoError(p.t, err)
	return kb << 10, true
}

// running checks that the process has not ended by itself.
func (p *process) running() {
	p.t.Helper()
	select {
	case <-p.read:
		require.Fail(p.t, "lacuna is gone", p.said())
	default:
	}
}

// dial connects to a broker and closes the connection when the test ends.
func dial(t *testing.T, addr string) *wire.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wire.Patience)
	defer cancel()
	c, err := wire.Dial(ctx, addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}
