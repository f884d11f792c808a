package dealer

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/cooperative"
)

// Records that come again soon after each other lose one delivery by a crash at most, also
// when the disk is slower than who releases them.
func TestACrashTakesBackOneDelivery(t *testing.T) {
	r := newRig(t)
	r.groups.join("a", "b")
	r.produceN(1)
	require.Equal(t, []int16{1}, r.counts("a", 1))
	r.slow.Store(true)
	release := []cooperative.Ack{{Run: cooperative.Run{Start: 0, End: 1}, Type: cooperative.Release}}
	r.d.BeginAcknowledge("g", "a", tp, release)
	require.Equal(t, []int16{2}, r.counts("b", 1))
	r.d.BeginAcknowledge("g", "b", tp, release)
	require.Equal(t, []int16{3}, r.counts("a", 1))
	r.slow.Store(false)
	r.crash()
	r.groups.join("a")
	require.Equal(t, []int16{3}, r.counts("a", 1), "the third delivery has not ended")
}

// crashingLetters takes what a crash leaves of the disk when the first letters are written.
type crashingLetters struct {
	r    *rig
	left chan *vfs.MemFS
}

func (c crashingLetters) Write(context.Context, string, extension.TopicPartition, []cooperative.DeadLetter) ([]cooperative.DeadLetter, error) {
	select {
	case c.left <- c.r.fs.CrashClone(vfs.CrashCloneCfg{}):
	default:
	}
	return nil, nil
}

// A record that has a dead letter is dealt to nobody, whenever the broker crashes.
func TestDeadLettersAreOfWhatIsDurable(t *testing.T) {
	r := newRig(t)
	letters := crashingLetters{r, make(chan *vfs.MemFS, 1)}
	r.letters = letters
	r.crash()
	r.change(func(s *Settings) { s.Limits.DeadLetters = true })
	r.groups.join("a")
	r.produceN(2)
	require.Equal(t, []int64{0}, r.fetch("a", 1))
	r.slow.Store(true)
	r.d.BeginAcknowledge("g", "a", tp, []cooperative.Ack{{Run: cooperative.Run{Start: 0, End: 1}, Type: cooperative.Reject}})
	left := <-letters.left
	r.slow.Store(false)
	r.crashTo(left)
	r.groups.join("a")
	require.Equal(t, []int64{1}, r.fetch("a", 2))
}
