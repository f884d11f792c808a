package processor_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/processor"
)

// TestChangelogCrashes kills a process, the broker, or both at every step of a job that keeps a
// changelog, also where that is written, which is the only topic that the
// world has not made. Exactly once, all is as without one.
func TestChangelogCrashes(t *testing.T) {
	t.Parallel()
	seeds := crashSeeds
	if os.Getenv("LACUNA_LONG") != "" {
		seeds = 20
	}
	job := crashJob{processor.AckAtProcess, true}
	runs := crashRunsOf(job, seeds)
	for seed := range seeds {
		for i, at := range []crashPoint{"write another topic", "sync another topic"} {
			runs = append(runs, crashRun{job, crashPlan{broker: true, at: at, n: 1 + seed%5, both: seed%2 == 1}, uint64(seed*1000 + 500 + i)})
		}
	}
	hit := make(map[crashPoint]int)
	require.NoError(t, runAll(t.Context(), runs, func(r crashRun) { hit[r.plan.at]++ }, processor.Changelog("changelog")))
	for _, r := range runs {
		require.Positive(t, hit[r.plan.at], "crashes: %v", r.plan)
	}
}
