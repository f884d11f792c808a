package tests

import (
	"fmt"
	"testing"
)

// TestCrashes lets whole brokers crash at random moments of random histories. Whatever is
// left of the disk, everything that was confirmed is there after the recovery, and the
// broker goes on from there, until the next crash.
func TestCrashes(t *testing.T) {
	for seed := range seeds(t, scaled(24, 300)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			h := newHistory(t, uint64(seed))
			h.run(50, 20)
			h.verify(3, 6, 1)
		})
	}
}

// TestCrashesWithoutFsync is the same for brokers that do not wait for the disk. Their
// process may die, and loses nothing that was confirmed; the machine may not.
func TestCrashesWithoutFsync(t *testing.T) {
	for seed := range seeds(t, scaled(6, 60)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			h := newHistory(t, uint64(seed))
			h.config.NoFsync = true
			h.run(50, 20)
			h.verify(3, 6, 1)
		})
	}
}
