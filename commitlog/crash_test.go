package commitlog

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// seeds is how many random histories to run; LACUNA_SEEDS multiplies it.
func seeds(t *testing.T, n int) int {
	t.Helper()
	n /= raceSlowdown
	if testing.Short() {
		n /= 10
	}
	if s := os.Getenv("LACUNA_SEEDS"); s != "" {
		k, err := strconv.Atoi(s)
		require.NoError(t, err)
		n *= k
	}
	return n
}

// crashConfigs are the kinds of logs that histories run on.
var crashConfigs = map[string]func(o *Options, rng *rand.Rand){
	"delete": nil,
	"compact": func(o *Options, rng *rand.Rand) {
		o.Config.Compact, o.Config.Delete = true, rng.IntN(2) == 0
		o.Config.MinCleanableRatio = 0
		o.Config.DeleteRetentionMs = rng.Int64N(40_000)
		if rng.IntN(2) == 0 {
			o.Config.MinCompactionLagMs = rng.Int64N(5000)
		}
		o.CleanerMemory = 1 // 192 keys
	},
	"no-fsync": func(o *Options, _ *rand.Rand) { o.Fsync = false },
	"flush-ms": func(o *Options, rng *rand.Rand) {
		o.Config.FlushMs = 1 + rng.Int64N(20)
		if rng.IntN(2) == 0 {
			o.Config.FlushMessages = rng.Int64N(20)
		}
	},
	"log-append-time": func(o *Options, _ *rand.Rand) { o.Config.LogAppendTime = true },
}

// TestCrashes: whatever a crash leaves of a random history, what was visible is
// still there, and the log goes on.
func TestCrashes(t *testing.T) {
	for name, configure := range crashConfigs {
		t.Run(name, func(t *testing.T) {
			for seed := range seeds(t, 200) {
				t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
					w := newWorld(t, uint64(seed), configure)
					w.snapEvery = 12
					w.run(60)
					w.verifySome(t, 6, 2)
				})
			}
		})
	}
}
