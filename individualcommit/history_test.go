package individualcommit

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// history is a random life of one partition of the internal log: a State that changes
// and the log that it writes, which a cleaner eats away at.
type history struct {
	rnd     *rand.Rand
	state   *State
	log     []logged
	batches int
	durable int             // batches that no crash takes back
	ids     []ID            // of all ledgers there may be
	data    map[ID]*dataLog // the logs that the ledgers are of
	after   []string        // what the State was after each batch
	starts  []map[ID]int64  // the log starts then
}

// logged is a record in the log, as the cleaner left it.
type logged struct {
	Record
	batch int
}

// dataLog stands for the log of a topic partition.
type dataLog struct{ start, end int64 }

// absent tells which offsets of a data log hold no record.
func absent(offset int64) bool { return offset%11 == 3 || offset%17 == 0 }

func newHistory(seed uint64) *history {
	h := &history{rnd: rand.New(rand.NewPCG(seed, 11)), data: map[ID]*dataLog{}}
	h.state = h.newState(0)
	for _, group := range []string{"g", "group-2"} {
		for partition := range int32(2) {
			id := ID{Group: group, Topic: [16]byte{1}, Partition: partition}
			h.ids = append(h.ids, id)
			h.data[id] = &dataLog{end: 30}
		}
	}
	h.commitBatch(nil)
	return h
}

// newState is a State with a ring so small that it goes round all the time.
func (h *history) newState(ownerEpoch int32) *State {
	s := NewState(ownerEpoch)
	s.ring, s.deltasMin = 3, 150
	return s
}

// commitBatch appends records as one batch, sometimes twice, as a writer may that did
// not learn of its success.
func (h *history) commitBatch(records []Record) {
	times := 1
	if h.rnd.IntN(8) == 0 {
		times = 2
	}
	for range times {
		for _, r := range records {
			h.log = append(h.log, logged{Record{bytes.Clone(r.Key), bytes.Clone(r.Value)}, h.batches})
		}
	}
	h.batches++
	starts := map[ID]int64{}
	for id, d := range h.data {
		starts[id] = d.start
	}
	h.after, h.starts = append(h.after, digest(h.state)), append(h.starts, starts)
}

// closeAbsent is what the broker does whenever the stable offset has moved.
func closeAbsent(l *Ledger, start int64) {
	l.AdvanceStart(start)
	for absent(l.Stable()) {
		l.Close(l.Stable() + 1)
	}
}

func (h *history) step() {
	id := h.ids[h.rnd.IntN(len(h.ids))]
	d, e := h.data[id], h.state.Get(id)
	var w Records
	switch op := h.rnd.IntN(20); {
	case op == 0:
		d.start = min(d.start+h.rnd.Int64N(4), d.end)
	case op == 1 && e != nil:
		h.state.Delete(&w, e)
	case op == 2 && e != nil:
		d.end = max(d.end-h.rnd.Int64N(10), d.start)
		h.state.Clamp(&w, e, d.end)
	case op <= 4 && e != nil:
		p := Producer{h.rnd.Int64N(2), int16(h.rnd.IntN(2))}
		q := StageRequest{Offset: NoOffset, Commit: h.runs(d)}
		if h.rnd.IntN(4) == 0 {
			q.Offset, q.Metadata = h.rnd.Int64N(d.end+5), h.metadata()
		}
		if e.Ledger.CheckStage(p, q.Commit, d.end) == nil {
			h.state.Stage(&w, e, p, q)
		}
	case op == 5 && e != nil && h.rnd.IntN(2) == 0: // as while it cannot be read
		h.state.decide(&w, e, h.rnd.Int64N(2), h.rnd.IntN(3) > 0)
		h.commitBatch(w.All())
		w.Reset()
		h.state.SettleOutcomes(&w, e, d.end, int64(h.batches))
	case op <= 7 && e != nil:
		p := Producer{h.rnd.Int64N(2), int16(h.rnd.IntN(2))}
		h.state.EndTransaction(&w, e, p, h.rnd.IntN(3) > 0, d.end, int64(h.batches))
	case op == 8:
		d.end += h.rnd.Int64N(20)
	case op <= 11 && e != nil:
		for range 1 + h.rnd.IntN(3) {
			h.state.LogCounts(&w, e, h.rnd.Int64N(4), h.counts())
		}
	default:
		h.request(&w, id)
	}
	if e := h.state.Get(id); e != nil {
		closeAbsent(e.Ledger, d.start)
	}
	h.commitBatch(w.All())
}

func (h *history) request(w *Records, id ID) {
	d, e := h.data[id], h.state.Get(id)
	q := Request{Offset: NoOffset}
	var metadata *string
	switch h.rnd.IntN(6) {
	case 0:
		q.Offset, metadata = h.rnd.Int64N(d.end+5), h.metadata()
	case 1:
		q.Reopen = h.runs(d)
	default:
		q.Commit = h.runs(d)
	}
	l := NewLedger(d.start+2, d.start, d.end)
	if e != nil {
		l = e.Ledger
	}
	delta, err := l.Decide(q, d.end)
	switch {
	case err != nil:
	case e == nil:
		h.state.Found(w, id, l, delta, metadata, int64(h.batches))
	case !delta.Empty():
		h.state.Log(w, e, delta, metadata, int64(h.batches))
	}
}

func (h *history) metadata() *string {
	s := fmt.Sprintf("metadata %d", h.batches)
	return &s
}

// counts are some delivery counts, or none any more.
func (h *history) counts() []byte {
	if h.rnd.IntN(3) == 0 {
		return nil
	}
	return fmt.Appendf(nil, "counts %d", h.rnd.IntN(3))
}

func (h *history) runs(d *dataLog) []Run {
	var runs []Run
	for at := d.start; ; {
		at += 1 + h.rnd.Int64N(12)
		end := at + 1 + h.rnd.Int64N(4)
		if end > d.end || len(runs) == 4 {
			return runs
		}
		runs, at = append(runs, Run{Start: at, End: end}), end
	}
}

// clean removes any of the durable records that a later durable one supersedes, and
// tombstones that nothing older is left for.
func (h *history) clean() {
	h.durable += h.rnd.IntN(h.batches - h.durable + 1)
	share := h.rnd.Float64()
	last, seen := map[string]int{}, map[string]bool{}
	for i, r := range h.log {
		if r.batch < h.durable {
			last[string(r.Key)] = i
		}
	}
	kept := h.log[:0]
	for i, r := range h.log {
		superseded := r.batch < h.durable && last[string(r.Key)] > i
		tombstone := r.batch < h.durable && r.Value == nil && !seen[string(r.Key)]
		if (superseded || tombstone) && h.rnd.Float64() < share {
			continue
		}
		seen[string(r.Key)] = true
		kept = append(kept, r)
	}
	h.log = kept
}

// replayed is the State that the log makes when it ends after the given batch: all of it
// in order, or from a view that holds the last value of each key up to another batch.
func (h *history) replayed(t *testing.T, view, batch int) *State {
	s := h.newState(h.state.ownerEpoch)
	values := map[string][]byte{}
	for _, r := range h.log {
		switch {
		case r.batch > view:
		case r.Value == nil:
			delete(values, string(r.Key))
		default:
			values[string(r.Key)] = r.Value
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		require.NoError(t, s.Apply([]byte(key), values[key]))
	}
	for _, r := range h.log {
		if r.batch > view && r.batch <= batch {
			require.NoError(t, s.Apply(r.Key, r.Value))
		}
	}
	for e := range s.All() {
		require.NoError(t, e.Trouble(), "%v", e.ID)
		closeAbsent(e.Ledger, h.starts[batch][e.ID])
	}
	return s
}

// digest is all that a State says of its ledgers, as text.
func digest(s *State) string {
	var lines []string
	for e := range s.All() {
		l := e.Ledger
		line := fmt.Sprintf("%v: stable %d, committed %d, max %d, %d gaps %v, %d cumulatives, %q at %d",
			e.ID, l.Stable(), l.Committed(), l.MaxCommit(), l.GapCount(), slices.Collect(l.Gaps(0)),
			l.Cumulatives(), e.Metadata, e.LastCommitMs)
		for _, key := range e.stagedKeys() {
			st := e.staged[key]
			p := Producer{key.producerID, st.producerEpoch}
			line += fmt.Sprintf(", %v holds %v of %v, found: %v", key, st.commit, slices.Collect(l.Staged(p)), slices.Contains(s.Staging(p), e.ID))
		}
		for _, key := range e.outcomeKeys() {
			line += fmt.Sprintf(", %v is decided: %v", key, e.outcomes[key])
		}
		for number, counts := range e.Counts() {
			line += fmt.Sprintf(", block %d has %q", number, counts)
		}
		lines = append(lines, line)
	}
	for p := range s.staging {
		lines = append(lines, fmt.Sprintf("%v holds something of %d ledgers", p, len(s.Staging(p))))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestLogHistories is the test of the log's scheme: whatever the cleaner took and
// wherever a crash cuts the log off, what is replayed is what was durable.
func TestLogHistories(t *testing.T) {
	seeds := uint64(60)
	if os.Getenv("LACUNA_LONG") != "" {
		seeds = 10_000
	}
	for seed := range seeds {
		h := newHistory(seed)
		for range 60 + h.rnd.IntN(60) {
			h.step()
			if h.rnd.IntN(6) == 0 {
				h.clean()
			}
			if h.rnd.IntN(30) == 0 { // a new owner takes over at the end of the log
				h.state = h.replayed(t, -1, h.batches-1)
				h.state.ownerEpoch++
			}
		}
		for e := range h.state.All() {
			require.NoError(t, e.Ledger.CheckInvariants())
		}
		require.Equal(t, memoryOf(h.state), h.state.memory)
		last := max(h.durable-1, 0)
		for batch := last; batch < h.batches; batch++ {
			for _, view := range []int{-1, batch, last + h.rnd.IntN(batch-last+1)} {
				s := h.replayed(t, view, batch)
				require.Equal(t, h.after[batch], digest(s), "seed %d, view up to batch %d, log to %d of %d", seed, view, batch, h.batches)
				require.Equal(t, s.memory, memoryOf(s))
			}
		}
		h.requireBounded(t)
	}
}

func memoryOf(s *State) int64 {
	n := int64(0)
	for _, of := range s.groups {
		for _, e := range of {
			n += e.memory - e.countsBytes
			for _, b := range e.counts {
				n += blockBytes + int64(cap(b.value))
			}
		}
	}
	return n
}

// requireBounded checks what a thorough cleaner leaves: one snapshot and a ring of deltas
// for each ledger and owner, and the counts of the blocks that have any.
func (h *history) requireBounded(t *testing.T) {
	counts := map[string]int{}
	last := map[string][]byte{}
	for _, r := range h.log {
		last[string(r.Key)] = r.Value
	}
	for key, value := range last {
		k, err := ParseKey([]byte(key))
		require.NoError(t, err)
		switch {
		case value == nil || k.Kind == KindPending || k.Kind == KindOutcome:
		case k.Kind == KindCounts:
			e := h.state.Get(k.ID)
			require.NotNil(t, e, "counts are left of a ledger that is gone")
			require.Equal(t, value[6:], e.counts[k.Block].value)
			require.Equal(t, k.OwnerEpoch, e.counts[k.Block].epoch)
		default:
			counts[fmt.Sprintf("%v %d %d", k.ID, k.OwnerEpoch, k.Kind)]++
		}
	}
	for what, n := range counts {
		require.LessOrEqual(t, n, int(h.state.ring), what)
	}
}
