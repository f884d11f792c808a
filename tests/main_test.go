package tests

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if built.dir != "" {
			os.RemoveAll(built.dir)
		}
		os.Exit(code)
	}))
}

// long tells that the tests are to run as long as continuous integration wants them.
func long() bool { return os.Getenv("LACUNA_LONG") != "" }

// scaled is n, or longN where the tests run long.
func scaled(n, longN int) int {
	if long() {
		return longN
	}
	return n
}

// seeds is how many random runs to make: LACUNA_SEEDS times as many as without.
func seeds(t *testing.T, n int) int {
	t.Helper()
	if s := os.Getenv("LACUNA_SEEDS"); s != "" {
		k, err := strconv.Atoi(s)
		require.NoError(t, err, "LACUNA_SEEDS")
		n *= k
	}
	return n
}
