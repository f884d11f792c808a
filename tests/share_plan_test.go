package tests

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// sharePlan is what a run of the checker mixes in.
type sharePlan struct {
	mode     string // share.delivery.mode, at first
	letters  bool   // there is a dead-letter topic
	filters  bool   // some fetches have a key filter
	switches bool   // the delivery mode changes
	returns  bool   // sessions are closed and opened anew, and members come back under their ids
	slow     bool   // workers see late what they are dealt, and what became of what they said
}

var shareModes = []string{"round-robin", "key-ordered", "key-range"}

// hasOrder tells whether records are dealt in order per key.
func hasOrder(mode string) bool { return mode != "round-robin" }

// planOf is the nth plan. Thirty-two that follow each other mix in all combinations, and
// three have all modes.
func planOf(n int) sharePlan {
	mix := 7 * n
	return sharePlan{
		mode:    shareModes[n%len(shareModes)],
		letters: mix&1 != 0, filters: mix&2 != 0, switches: mix&4 != 0, returns: mix&8 != 0, slow: mix&16 != 0,
	}
}

func (p sharePlan) String() string {
	words := []string{p.mode}
	for _, o := range []struct {
		mixed bool
		name  string
	}{{p.letters, "dead letters"}, {p.filters, "filters"}, {p.switches, "changes of the mode"}, {p.returns, "returns"}, {p.slow, "slow eyes"}} {
		if o.mixed {
			words = append(words, o.name)
		}
	}
	return strings.Join(words, ", ")
}

// groupSettings are a group's settings, some of which are drawn.
func (p sharePlan) groupSettings(rng *rand.Rand) map[string]string {
	settings := map[string]string{
		"share.auto.offset.reset": "earliest", "share.delivery.mode": p.mode,
		"share.delivery.count.limit":       fmt.Sprint(shareLimit),
		"share.record.lock.duration.ms":    fmt.Sprint(shareLock.Milliseconds()),
		"share.session.timeout.ms":         fmt.Sprint(shareSession.Milliseconds()),
		"share.heartbeat.interval.ms":      "300",
		"share.key.waiting.max.bytes":      "65536",
		"share.key.range.initial":          fmt.Sprint(1 + rng.IntN(20)),
		"share.partition.max.record.locks": "100",
	}
	if rng.IntN(2) == 0 {
		settings["share.retry.backoff.ms"] = "20"
	}
	return settings
}
