package tests

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// eosPatience is how long nothing new may be seen.
const eosPatience = 2 * time.Minute

// eosAccount is what the workers said and what a reader of committed records saw beside
// them.
type eosAccount struct {
	t       *testing.T
	ordered bool // outputs of a key come in the order of their inputs

	mu struct {
		sync.Mutex
		changed chan struct{} // closed with each change
		fates   map[string]string
		told    map[string]int // how many have each fate
		seen    *eosSeen
		at      map[eosOffset]string // what was seen at an offset
		again   int                  // records that were read more than once
		notes   []string             // the last ones
		faults  []string
	}
}

func newEOSAccount(t *testing.T, ordered bool) *eosAccount {
	a := &eosAccount{t: t, ordered: ordered}
	a.mu.changed = make(chan struct{})
	a.mu.fates = make(map[string]string)
	a.mu.told = make(map[string]int)
	a.mu.seen, a.mu.at = newEOSSeen(ordered), make(map[eosOffset]string)
	return a
}

// hear takes in a line of a process of workers.
func (a *eosAccount) hear(line string) {
	what, rest, _ := strings.Cut(line, "|")
	attempt, why, _ := strings.Cut(rest, "|")
	if attempt == "" {
		a.note("%s %s", what, why)
		return
	}
	a.tell(attempt, what)
}

// tell takes in the fate of an attempt.
func (a *eosAccount) tell(attempt, fate string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.fates[attempt] = fate
	a.mu.told[fate]++
	a.changedLocked()
}

func (a *eosAccount) note(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.notes = append(a.mu.notes, fmt.Sprintf(format, args...))
	a.mu.notes = a.mu.notes[max(0, len(a.mu.notes)-20):]
}

func (a *eosAccount) fault(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.faults = append(a.mu.faults, fmt.Sprintf(format, args...))
	a.changedLocked()
}

func (a *eosAccount) changedLocked() {
	close(a.mu.changed)
	a.mu.changed = make(chan struct{})
}

// see takes in a record that a reader of committed ones was given. A reader may read on from
// before where it was when its connection broke, and then finds the same there.
func (a *eosAccount) see(partition int32, offset int64, value string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	value = strings.TrimRight(value, "\x00") // of a filler, which is large
	place := eosOffset{partition, offset}
	was, again := a.mu.at[place]
	switch {
	case !again:
		a.mu.at[place] = value
		a.mu.seen.see(partition, value)
	case was == value:
		a.mu.again++
	default:
		a.mu.faults = append(a.mu.faults, fmt.Sprintf("partition %d, offset %d: first %.40q, then %.40q", partition, offset, was, value))
	}
	a.changedLocked()
}

// eosOffset is a place in the output.
type eosOffset struct {
	partition int32
	offset    int64
}

// count is how many inputs have been seen in the output.
func (a *eosAccount) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.mu.seen.by)
}

// tolds is how many attempts had a fate.
func (a *eosAccount) tolds(fate string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.told[fate]
}

// await waits until something holds, for as long as there is progress.
func (a *eosAccount) await(what string, holds func() bool) {
	a.t.Helper()
	patience := time.NewTimer(eosPatience)
	defer patience.Stop()
	for count := a.count(); ; {
		a.mu.Lock()
		changed, faults, notes := a.mu.changed, slices.Concat(a.mu.faults, a.mu.seen.faults), a.mu.notes
		a.mu.Unlock()
		require.Empty(a.t, faults)
		if holds() {
			return
		}
		if n := a.count(); n > count {
			count = n
			patience.Reset(eosPatience)
		}
		select {
		case <-changed:
		case <-patience.C:
			require.Fail(a.t, what, "%d inputs are seen, transactions: %v, notes: %s", count, a.mu.told, strings.Join(notes, "\n"))
		}
	}
}

// compare checks what was seen against what the Transactors told.
func (a *eosAccount) compare(seen *eosSeen) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Empty(a.t, slices.Concat(a.mu.faults, a.mu.seen.faults, seen.faults))
	require.Empty(a.t, seen.halves(), "transactions that are seen in part")
	var lies []string
	for attempt := range seen.attempts {
		switch fate := a.mu.fates[attempt]; fate {
		case eosAborted, eosConflict, eosLost:
			lies = append(lies, fmt.Sprintf("%s was told to be aborted (%s), and is seen", attempt, fate))
		}
	}
	for attempt, fate := range a.mu.fates {
		if _, ok := seen.attempts[attempt]; !ok && fate == eosCommitted {
			lies = append(lies, fmt.Sprintf("%s was told to be committed, and is not seen", attempt))
		}
	}
	require.Empty(a.t, lies)
	for partition, values := range a.mu.seen.values {
		require.LessOrEqual(a.t, len(values), len(seen.values[partition]), "partition %d: records were seen that are gone", partition)
		require.Equal(a.t, values, seen.values[partition][:len(values)], "partition %d: what is seen changes", partition)
	}
}

// eosSeen is what a reader of committed records sees of the output.
type eosSeen struct {
	ordered  bool
	values   map[int32][]string // by partition
	by       map[int64]string   // the attempt that made the output of an input
	attempts map[string]*eosParts
	lastOf   map[string]eosPlace // the last of each key
	faults   []string
}

// eosParts is how much is seen of an attempt.
type eosParts struct{ of, seen int }

// eosPlace is the partition that the outputs of a key are in, and the last input.
type eosPlace struct {
	partition int32
	input     int64
}

func newEOSSeen(ordered bool) *eosSeen {
	return &eosSeen{ordered: ordered, values: make(map[int32][]string), by: make(map[int64]string),
		attempts: make(map[string]*eosParts), lastOf: make(map[string]eosPlace)}
}

func (s *eosSeen) see(partition int32, value string) {
	value = strings.TrimRight(value, "\x00") // of a filler
	s.values[partition] = append(s.values[partition], value)
	o, err := parseEOSOutput(value)
	if err != nil {
		s.faults = append(s.faults, err.Error())
		return
	}
	parts := s.attempts[o.attempt]
	if parts == nil {
		parts = &eosParts{}
		s.attempts[o.attempt] = parts
	}
	if o.input < 0 {
		return
	}
	parts.of = o.of
	parts.seen++
	if first, ok := s.by[o.input]; ok {
		s.faults = append(s.faults, fmt.Sprintf("the output of input %d is seen of %s and of %s", o.input, first, o.attempt))
	}
	s.by[o.input] = o.attempt
	if last, ok := s.lastOf[o.key]; s.ordered && ok && (last.input >= o.input || last.partition != partition) {
		s.faults = append(s.faults, fmt.Sprintf("key %s: input %d of %s in partition %d comes after %+v", o.key, o.input, o.attempt, partition, last))
	}
	s.lastOf[o.key] = eosPlace{partition, o.input}
}

// halves are the attempts of which not all is seen.
func (s *eosSeen) halves() (halves []string) {
	for attempt, p := range s.attempts {
		if p.seen != p.of {
			halves = append(halves, fmt.Sprintf("%s: %d of %d", attempt, p.seen, p.of))
		}
	}
	return halves
}
