package processor_test

import (
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// anyPoint is every step.
const anyPoint crashPoint = ""

// diskPoint is the step before an operation of a disk: a write, a sync or another change, and
// of what; none if the operation changes nothing. Directories of topics bear ids.
func diskPoint(op errorfs.Op, topic func(id string) string) (p crashPoint, ok bool) {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return "", false
	}
	kind := "change"
	switch op.Kind {
	case errorfs.OpFileWrite, errorfs.OpFileWriteAt:
		kind = "write"
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		kind = "sync"
	}
	parts := strings.Split(strings.Trim(op.Path, "/"), "/")
	what := parts[0]
	switch {
	case what == "data" && len(parts) > 2 && parts[1] == "topics":
		what = topic(parts[2])
	case what == "data" && len(parts) > 1:
		what = "broker's " + parts[1]
	case what == "state" && len(parts) > 2:
		what = "store"
	}
	if !strings.HasSuffix(op.Path, ".log") {
		what += "'s other files"
	}
	return crashPoint(kind + " " + what), true
}

// crashTrap kills whom it is set for at a step.
type crashTrap struct {
	mu struct {
		sync.Mutex
		at     crashPoint
		of     any // whose step; nil: anybody's
		left   int // steps to let by; below 0: not set
		spring func()
		fired  chan struct{}
	}
}

// set sets the trap for the n-th step of that kind, from 1, of somebody. What springs kills at
// once, and calls nothing that passes by the trap. The channel is closed after that.
func (t *crashTrap) set(of any, at crashPoint, n int, spring func()) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.at, t.mu.of, t.mu.left, t.mu.spring = at, of, n, spring
	t.mu.fired = make(chan struct{})
	return t.mu.fired
}

// unset takes the trap away. It tells whether it had sprung.
func (t *crashTrap) unset() (sprung bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sprung = t.mu.left == 0
	t.mu.left = -1
	return sprung
}

// pass is called by who is at a step.
func (t *crashTrap) pass(who any, at crashPoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.left <= 0 || t.mu.of != who || t.mu.at != anyPoint && t.mu.at != at {
		return
	}
	if t.mu.left--; t.mu.left == 0 {
		t.mu.spring()
		close(t.mu.fired)
	}
}
