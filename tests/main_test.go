package tests

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lacunamq/lacuna/statestore/storetest"
)

// leftBehind chooses goroutines that were left behind on purpose.
var leftBehind []goleak.Option

// leavePebbles allows for the goroutines that there are now of a Pebble that was abandoned.
// Others are not to be left, neither by those who call it nor by any other test.
func leavePebbles(t *testing.T) {
	goleak.VerifyNone(t, storetest.Abandoned()...)
	leftBehind = append(leftBehind, goleak.IgnoreCurrent())
}

func TestMain(m *testing.M) {
	if job := os.Getenv(eosJobVariable); job != "" { // a process of workers that a test has started
		if err := runEOSWorkers(job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if job := os.Getenv(processorJobVariable); job != "" { // one of processors
		if err := runProcessors(job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(leftBehind...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
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
