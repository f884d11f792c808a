package bench

import (
	"flag"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var brokerAddr = flag.String("broker", "", "HOST:PORT of a Kafka-protocol broker to measure in place of an embedded one; its only broker, if it is a cluster")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// long tells to measure what takes minutes, too.
func long() bool { return os.Getenv("LACUNA_LONG") != "" }

// cpu is the processor time that this process has taken, broker and clients together. It
// tells more than the clock on a machine that others use, too.
func cpu(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
