package processor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/lacunamq/lacuna/statestore"
)

// A durable state keeps the stream time of its task, and when punctuations by it are due next,
// in the commits of the units of work: so one that became due across a restart is made up for.
// Numbers are VARINT, moments nanoseconds since 1970:
//
//	stream time => version(1 byte) moment count punctuations; punctuation => every next
var streamTimeKey = []byte{0, 't'}

const streamTimeVersion = 1

// keptSchedule is a punctuation by stream time, as it was before a restart.
type keptSchedule struct {
	every time.Duration
	next  time.Time
}

// appendStreamTime appends stream time, which has begun, and the punctuations by it.
func (s *schedules) appendStreamTime(b []byte, streamTime time.Time) []byte {
	n := 0
	for _, sch := range s.all {
		if sch.by == StreamTime {
			n++
		}
	}
	b = binary.AppendVarint(append(b, streamTimeVersion), streamTime.UnixNano())
	b = binary.AppendVarint(b, int64(n))
	for _, sch := range s.all {
		if sch.by == StreamTime {
			b = binary.AppendVarint(binary.AppendVarint(b, int64(sch.every)), sch.next.UnixNano())
		}
	}
	return b
}

// decodeStreamTime reads what appendStreamTime wrote. Errors wrap statestore.ErrCorrupt.
func decodeStreamTime(b []byte) (streamTime time.Time, kept []keptSchedule, err error) {
	malformed := fmt.Errorf("%w: the stream time", statestore.ErrCorrupt)
	if len(b) == 0 || b[0] != streamTimeVersion {
		return time.Time{}, nil, malformed
	}
	b = b[1:]
	number := func() (n int64) {
		n, size := binary.Varint(b)
		if size <= 0 {
			err, b = malformed, nil
			return 0
		}
		b = b[size:]
		return n
	}
	streamTime = time.Unix(0, number())
	for n := number(); n > 0 && err == nil; n-- {
		k := keptSchedule{every: time.Duration(number())}
		k.next = time.Unix(0, number())
		kept = append(kept, k)
	}
	if err != nil || len(b) > 0 {
		return time.Time{}, nil, malformed
	}
	return streamTime, kept, nil
}

// restoreStreamTime has a chain go on where the state is.
func (c *chain) restoreStreamTime() error {
	stored, ok, err := c.state.backing.Get(streamTimeKey)
	if err != nil || !ok {
		return err
	}
	c.streamTime, c.schedules.kept, err = decodeStreamTime(stored)
	return err
}

// keepStreamTime adds the stream time to what is about to be committed. There is nearly always room
// for it; if there is not, a state that is opened before the next unit goes on from an earlier one.
func (t *task) keepStreamTime() error {
	if t.app.topology.Ack == AckOnPunctuate || t.chain.streamTime.IsZero() {
		return nil
	}
	t.state.value = t.chain.schedules.appendStreamTime(t.state.value[:0], t.chain.streamTime)
	err := t.store.Put(streamTimeKey, t.state.value)
	if errors.Is(err, statestore.ErrUncommittedFull) {
		return nil
	}
	return err
}
