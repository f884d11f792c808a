package processor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/processor"
)

// A boundary of stream time between the last record before a restart and the first after it is
// punctuated, and one that was punctuated is not again.
func TestStreamTimeGoesOnAfterARestart(t *testing.T) {
	r := newRig(t, 1)
	topology := processor.Topology{Inputs: []string{"in"}, Sinks: []string{"out"},
		Processors: []processor.Node{{Name: "tick", Stores: []string{"unused"}, New: func() processor.Processor { return new(ticking) }}}}
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	dir := processor.StateDir(t.TempDir())
	var ticks []string
	for i, seconds := range []float64{0.5, 1.5, 1.7, 3.2} {
		done := make(chan struct{}, 1)
		a := r.open(topology, dir, processor.ExactlyOnce(), processor.OnEvents(processor.Hooks{Committed: func(int32, int, int) { done <- struct{}{} }}))
		res := r.kafka.ProduceSync(t.Context(), &kgo.Record{Topic: "in", Key: []byte("k"), Timestamp: begin.Add(time.Duration(seconds * float64(time.Second)))})
		require.NoError(t, res.FirstErr())
		<-done
		if want := []int{0, 1, 1, 2}[i]; want > 0 {
			ticks = nil
			for _, o := range r.output(want) {
				ticks = append(ticks, string(o.Value))
			}
		}
		require.NoError(t, a.Close(context.Background()))
	}
	require.Equal(t, []string{"12:00:01", "12:00:02"}, ticks)
}
