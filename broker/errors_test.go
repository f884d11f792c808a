package broker

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// A request that a stop of the broker comes upon is tried again: clients take an unknown
// error for a bug, and end on it.
func TestRequestsThatAStopEndsAreTriedAgain(t *testing.T) {
	b := &Broker{log: zap.NewNop()}
	ended := fmt.Errorf("while it waits: %w", context.Canceled)
	for name, answer := range map[string]func(error) (int16, *string){"partitions": b.errorAnswer, "groups": b.coordinatorAnswer} {
		code, _ := answer(ended)
		require.True(t, kerr.IsRetriable(kerr.ErrorForCode(code)), "%s: %v", name, kerr.ErrorForCode(code))
	}
}
