package tests

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/tests/wire"
)

// tally notes what happened to each offset of one partition. Its fields may be read once
// nobody writes any more.
type tally struct {
	t         *testing.T
	delivered []bool
	asked     []bool // to be committed
	answered  []bool // and it was confirmed
	notAgain  []bool // that must not be delivered; nil: any may be

	mu struct {
		sync.Mutex
		deliveries, answers int
		faults              []string
	}
}

func newTally(t *testing.T, offsets int) *tally {
	return &tally{t: t, delivered: make([]bool, offsets), asked: make([]bool, offsets), answered: make([]bool, offsets)}
}

// count is how many are true.
func count(set []bool) (n int) {
	for _, b := range set {
		if b {
			n++
		}
	}
	return n
}

// deliver notes a record that a Reader delivered. It must be the right one, for the first
// time, and not committed before.
func (y *tally) deliver(r *kgo.Record) {
	y.mu.Lock()
	defer y.mu.Unlock()
	switch {
	case y.delivered[r.Offset]:
		y.faultLocked("offset %d was delivered twice", r.Offset)
	case y.notAgain != nil && y.notAgain[r.Offset]:
		y.faultLocked("offset %d was delivered although it is committed", r.Offset)
	case string(r.Value) != line(int(r.Offset)) || string(r.Key) != lineKey(int(r.Offset)):
		y.faultLocked("offset %d is %q: %q", r.Offset, r.Key, r.Value)
	}
	y.delivered[r.Offset] = true
	y.mu.deliveries++
}

// await waits until so many records have been delivered, and so many commits answered.
func (y *tally) await(deliveries, answers int) {
	y.t.Helper()
	require.Eventually(y.t, func() bool {
		y.mu.Lock()
		defer y.mu.Unlock()
		return y.mu.deliveries >= deliveries && y.mu.answers >= answers || len(y.mu.faults) > 0
	}, 5*wire.Patience, time.Millisecond, "too few records were delivered, or commits answered")
	require.Empty(y.t, y.faults())
}

// ask notes that records are to be committed.
func (y *tally) ask(records []*kgo.Record) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, r := range records {
		y.asked[r.Offset] = true
	}
}

// answer notes that they are.
func (y *tally) answer(records []*kgo.Record) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, r := range records {
		y.answered[r.Offset] = true
	}
	y.mu.answers += len(records)
}

func (y *tally) fault(format string, args ...any) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.faultLocked(format, args...)
}

func (y *tally) faultLocked(format string, args ...any) {
	if len(y.mu.faults) < 20 {
		y.mu.faults = append(y.mu.faults, fmt.Sprintf(format, args...))
	}
}

func (y *tally) faults() []string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.mu.faults
}
