package tests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/tests/wire"
)

// TestFaults lets a file operation fail somewhere in a random history, and in half of the
// runs all that come after it. Nothing that was confirmed may be lost by it, whether the
// machine crashes then, or the broker is stopped, another one goes on when the disk is
// well again, and the machine crashes under that.
func TestFaults(t *testing.T) {
	t.Cleanup(func() { leavePebbles(t) })
	for seed := range seeds(t, scaled(2, 10)) {
		total := faultyRun(t, uint64(seed), 1<<62, false)
		t.Logf("seed %d: %d operations change the disk", seed, total)
		step := max(1, total/int64(scaled(8, 60)))
		for at := int64(seed) % step; at < total; at += step {
			for _, lasting := range []bool{false, true} {
				t.Run(fmt.Sprintf("seed=%d/at=%d/lasting=%v", seed, at, lasting), func(t *testing.T) {
					faultyRun(t, uint64(seed), at, lasting)
				})
			}
		}
	}
}

// faultyRun runs a history in which one operation that changes the disk fails, and all
// after it when the fault is lasting. It returns how many there were.
func faultyRun(t *testing.T, seed uint64, at int64, lasting bool) int64 {
	var ops atomic.Int64
	var ended atomic.Bool
	h := newHistory(t, seed)
	h.inject = func(op errorfs.Op) error {
		n := ops.Add(1) - 1
		if n == at || lasting && n > at || ended.Load() {
			return &os.PathError{Op: "write", Path: op.Path, Err: syscall.EIO}
		}
		return nil
	}
	if h.startFaulty() {
		h.runUntilFault(40)
	}
	crash := crash{fs: h.mem.CrashClone(vfs.CrashCloneCfg{}), model: h.mu.model.clone(), change: h.mu.change}
	if h.b != nil {
		ctx, cancel := context.WithTimeout(context.Background(), wire.Patience)
		defer cancel()
		if err := h.b.Stop(ctx); err != nil {
			require.NotErrorIs(t, err, context.DeadlineExceeded, "the broker does not stop")
		}
	}
	total := ops.Load()
	ended.Store(true)
	h.recover(&crash, 4, 0)
	// And when its process ends, another one goes on over what it left, synced or not, and
	// the machine crashes after that.
	crash.fs, crash.stopping = h.mem, true
	h.recover(&crash, 4, 1)
	return total
}

// startFaulty starts the broker, which may fail; then it can be started again.
func (h *history) startFaulty() bool {
	h.config.FS = errorfs.Wrap(ofProcess{h.mem}, errorfs.InjectorFunc(h.beforeOp))
	b, err := broker.Start(h.t.Context(), h.config)
	if err != nil {
		require.ErrorContains(h.t, err, syscall.EIO.Error())
		return false
	}
	h.b = b
	h.conn = dial(h.t, b.Addr())
	return true
}

// ofProcess is a file system as a process has it that ends: of its locks nothing is left.
type ofProcess struct{ vfs.FS }

func (ofProcess) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// runUntilFault does n random operations, or fewer if a request fails. The broker answers
// all the same.
func (h *history) runUntilFault(n int) {
	defer func() {
		var failed requestFailed
		if err, ok := recover().(error); ok && errors.As(err, &failed) {
			h.t.Logf("a request failed: %v", failed)
			topics, err := dial(h.t, h.b.Addr()).Topics()
			require.NoError(h.t, err)
			require.NotEmpty(h.t, topics)
		} else if ok {
			panic(err)
		}
	}()
	for range n {
		h.step()
	}
}
