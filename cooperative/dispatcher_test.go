package cooperative

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lacunamq/lacuna/keyfilter"
)

// testLeaving finds only what is near, and sweeps late.
var testLeaving = leaving{part: 1}

// testAhead keeps so little that all that is done past it happens in small tests.
var testAhead = ahead{read: 16, reloadAt: 1, reloadUpTo: 4, reloadLeast: 2}

var testMembers = []string{"a", "b", "c", "d"}

func testLimits() Limits {
	return Limits{LockMs: 30_000, Deliveries: 5, Acquired: 1000, WaitingMaxBytes: 1 << 20, BackoffMaxMs: 60_000}
}

// join is the assignment with one more member; in modes without one, none.
func join(a Assignment, member string) Assignment {
	if a == nil {
		return nil
	}
	return a.(keyfilter.Assignment).Join(member)
}

func testConfig(mode Mode) Config {
	c := Config{Mode: mode, Limits: testLimits()}
	if mode == KeyRange {
		c.Line, _ = keyfilter.NewLine(1)
		c.Assignment, _ = keyfilter.NewAssignment(4, 16)
	}
	return c
}

// TestRandomHistories compares the dispatcher with the model after every step of random
// histories.
func TestRandomHistories(t *testing.T) {
	for mode := RoundRobin; mode <= KeyRange; mode++ {
		t.Run(fmt.Sprintf("mode=%d", mode), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { runHistory(t, mode) })
		})
	}
}

func runHistory(t *rapid.T, mode Mode) {
	c := testConfig(mode)
	c.Limits = drawLimits(t)
	m := newModel(c)
	m.d.ahead, m.d.leaving = testAhead, testLeaving
	steps := rapid.IntRange(1, 60).Draw(t, "steps")
	for range steps {
		if err := m.step(t); err != nil {
			t.Fatalf("%v\n%s", err, strings.Join(m.trace, "\n"))
		}
		if rapid.Bool().Draw(t, "serve") {
			if err := m.serve(); err != nil {
				t.Fatalf("%v\n%s", err, strings.Join(m.trace, "\n"))
			}
		}
	}
}

func drawLimits(t *rapid.T) Limits {
	return Limits{
		LockMs:          rapid.Int64Range(1, 50).Draw(t, "lock"),
		Deliveries:      rapid.IntRange(1, 6).Draw(t, "deliveries"),
		Acquired:        rapid.SampledFrom([]int{3, 10, 1000}).Draw(t, "acquired"),
		BackoffMs:       rapid.SampledFrom([]int64{0, 0, 3}).Draw(t, "backoff"),
		BackoffMaxMs:    20,
		WaitingMaxBytes: rapid.SampledFrom([]int64{32, 1 << 20}).Draw(t, "waiting"),
		DeadLetters:     rapid.Bool().Draw(t, "dead letters"),
	}
}

func (m *model) drawRun(t *rapid.T) Run {
	start := max(m.start, m.end)
	if offsets := m.offsets(); len(offsets) > 0 {
		start = max(m.start, rapid.SampledFrom(offsets).Draw(t, "start")+rapid.Int64Range(-2, 2).Draw(t, "shift"))
	}
	return Run{Start: start, End: start + rapid.SampledFrom([]int64{1, 1, 2, 5, 20}).Draw(t, "n")}
}

// drawHeld is runs that a member may hold.
func (m *model) drawHeld(t *rapid.T, member string, s State) (runs []Run) {
	for _, offset := range m.offsets() {
		if r := m.records[offset]; r.state == s && r.member == member && rapid.Bool().Draw(t, "this") {
			if n := len(runs); n > 0 && runs[n-1].End == offset {
				runs[n-1].End++
			} else {
				runs = append(runs, Run{Start: offset, End: offset + 1})
			}
		}
	}
	return runs
}

func (m *model) step(t *rapid.T) error {
	member := rapid.SampledFrom(testMembers).Draw(t, "member")
	switch op := rapid.IntRange(0, 29).Draw(t, "op"); op {
	case 0, 1, 2, 3:
		keys := make([]*Key, rapid.IntRange(1, 30).Draw(t, "records"))
		for i := range keys {
			keys[i] = drawKey(t)
		}
		m.append(keys...)
		m.closeAbsent()
		if rapid.IntRange(0, 3).Draw(t, "skip") == 0 { // to other pages, or holds
			m.skip(rapid.SampledFrom([]int64{70, 300, apart<<(pageShift+wordShift) + 300}).Draw(t, "skipped"))
		}
		return nil
	case 4, 5, 6, 7:
		w := Want{MaxRecords: rapid.IntRange(1, 20).Draw(t, "max"), BatchSize: rapid.IntRange(0, 3).Draw(t, "batch")}
		if rapid.IntRange(0, 3).Draw(t, "soft") == 0 {
			w.BatchEnd = func(offset int64) int64 { return (offset/8 + 1) * 8 }
		}
		return m.acquire(member, w)
	case 8, 9, 10, 11, 12:
		var acks []Ack
		for _, r := range m.drawHeld(t, member, Acquired) {
			acks = append(acks, Ack{r, AckType(rapid.IntRange(0, 4).Draw(t, "type"))})
		}
		if rapid.IntRange(0, 4).Draw(t, "stray") == 0 {
			acks = append(acks, Ack{m.drawRun(t), AckType(rapid.IntRange(0, 4).Draw(t, "type"))})
		}
		if member != "d" {
			return m.acknowledge(member, acks)
		}
		return m.acknowledgeAndServe(member, acks, rapid.SampledFrom(testMembers).Draw(t, "served"))
	case 13, 14:
		return m.tick(rapid.Int64Range(0, 30).Draw(t, "ms"))
	case 15:
		return m.leave(member, rapid.Bool().Draw(t, "raise"))
	case 16:
		return m.stage(member, m.drawHeld(t, member, Acquired))
	case 17:
		return m.endStage([]Run{m.drawRun(t)}, rapid.Bool().Draw(t, "commit"))
	case 18:
		return m.deadLettered([]int64{m.drawRun(t).Start, m.drawRun(t).Start})
	case 19, 20:
		m.d.Wait(member, rapid.IntRange(1, 10).Draw(t, "max"))
		for _, w := range m.waiting {
			if w == member {
				return nil
			}
		}
		m.waiting = append(m.waiting, member)
		return nil
	case 21, 22, 23, 24:
		w := Want{MaxRecords: rapid.IntRange(1, 20).Draw(t, "max"), BatchSize: rapid.IntRange(0, 3).Draw(t, "batch")}
		odd := rapid.Uint64Range(0, 3).Draw(t, "half") // of the keys, by the lowest bits of their hashes
		return m.acquireOnly(member, w, func(k Key) bool { return odd == 3 || k.Hash%3 == odd }, rapid.Int64Range(m.start, m.end).Draw(t, "below"))
	case 25:
		return m.giveBack(member, m.drawDeliveries(t, member))
	}
	return m.rareStep(t, member)
}

// drawDeliveries is some of what a member was dealt, and perhaps something that it was not.
func (m *model) drawDeliveries(t *rapid.T, member string) (deliveries []Delivery) {
	for _, r := range m.drawHeld(t, member, Acquired) {
		for offset := r.Start; offset < r.End; offset++ {
			deliveries = append(deliveries, Delivery{Run{Start: offset, End: offset + 1}, int16(m.records[offset].deliveries) + 1})
		}
	}
	if rapid.IntRange(0, 2).Draw(t, "stray") == 0 {
		deliveries = append(deliveries, Delivery{m.drawRun(t), int16(rapid.IntRange(1, 3).Draw(t, "count"))})
	}
	return deliveries
}

func (m *model) rareStep(t *rapid.T, member string) error {
	switch rapid.IntRange(0, 7).Draw(t, "rare op") {
	case 0:
		m.limits = drawLimits(t)
		m.note("limits %+v", m.limits)
		m.d.SetLimits(m.limits)
		m.config.Limits = m.limits
		if m.next != nil {
			m.next.Limits = m.limits
		}
		return m.check()
	case 1:
		return m.restart()
	case 2:
		r := m.drawRun(t)
		r.End = min(r.End, m.end)
		if r.Start >= r.End {
			return nil
		}
		return m.commitElsewhere(r)
	case 3:
		r := m.drawRun(t)
		r.End = min(r.End, m.end)
		return m.reopen(r)
	case 4:
		if rapid.IntRange(0, 3).Draw(t, "far") > 0 {
			return nil
		}
		return m.advanceStart(rapid.Int64Range(m.start, m.end).Draw(t, "log start"))
	case 5:
		c := testConfig(Mode(rapid.IntRange(0, 2).Draw(t, "mode")))
		if c.Mode == KeyRange {
			c.Assignment = join(c.Assignment, member)
		}
		c.Limits = m.limits
		m.next = nil
		if c.Mode != m.config.Mode || c.Mode == KeyRange {
			m.next = &c
		}
		m.note("mode %d", c.Mode)
		m.d.SetMode(c)
		m.modeChanged()
		return m.check()
	default:
		if m.config.Mode != KeyRange || m.next != nil {
			return nil
		}
		a := m.config.Assignment.(keyfilter.Assignment)
		if a = a.Join(member); rapid.IntRange(0, 2).Draw(t, "leave") == 0 {
			a = a.Leave(member)
		}
		m.config.Assignment = a
		m.note("assignment %v", a)
		m.d.SetAssignment(a)
		return m.check()
	}
}

// drawKey is a key of few, a hot one often; nil is an absent offset.
func drawKey(t *rapid.T) *Key {
	switch n := rapid.IntRange(0, 15).Draw(t, "key"); {
	case n == 0:
		return nil
	case n == 1:
		return &Key{Null: true}
	case n < 8:
		return &Key{Hash: keyfilter.Hash([]byte("hot"), 0)}
	default:
		return &Key{Hash: keyfilter.Hash([]byte{byte(n)}, 0)}
	}
}

func TestStatesPrintThemselves(t *testing.T) {
	require.Equal(t, "archiving", Archiving.String())
}
