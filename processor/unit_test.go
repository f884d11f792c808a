package processor_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/processor"
)

// The end of a unit of work has its outputs sent, however long the producer would wait for more.
func TestOutputsWaitForNoOthers(t *testing.T) {
	r := newRig(t, 2)
	r.produce(10, 5)
	c := new(counting)
	r.open(c.topology(), processor.StateDir(t.TempDir()), processor.KafkaOpts(kgo.ProducerLinger(time.Minute)))
	r.requireCounts(r.output(10))
}
