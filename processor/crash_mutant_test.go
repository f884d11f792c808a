package processor_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/processor"
)

// The kills find who does something in the wrong order.
func TestMutantsAreFound(t *testing.T) {
	t.Parallel()
	atLeast := func(ack processor.Ack) crashJob { return crashJob{ack: ack} }
	exactly := func(ack processor.Ack) crashJob { return crashJob{ack: ack, once: true} }
	for _, m := range []struct {
		processor.Mutant
		jobs []crashJob
	}{
		{processor.AckWhenProcessed, []crashJob{exactly(processor.AckOnPunctuate), atLeast(processor.AckOnPunctuate)}},
		{processor.StoreFirst, []crashJob{atLeast(processor.AckAtProcess), exactly(processor.AckAtProcess)}},
		{processor.EmitOutside, []crashJob{exactly(processor.AckOnPunctuate), exactly(processor.AckAtProcess)}},
		{processor.AckFirst, []crashJob{atLeast(processor.AckAtProcess), atLeast(processor.AckOnPunctuate), exactly(processor.AckAtProcess), exactly(processor.AckOnPunctuate)}},
		{processor.AckAfter, []crashJob{exactly(processor.AckAtProcess), exactly(processor.AckOnPunctuate)}},
	} {
		jobs := m.jobs
		if os.Getenv("LACUNA_LONG") == "" {
			jobs = jobs[:1]
		}
		for _, job := range jobs {
			t.Run(m.Name+", "+job.String(), func(t *testing.T) {
				found := runAll(t.Context(), crashRunsOf(job, 10), func(crashRun) {}, m.Option())
				require.Error(t, found)
				line, _, _ := strings.Cut(found.Error(), "\n")
				t.Log(line)
			})
		}
	}
}
