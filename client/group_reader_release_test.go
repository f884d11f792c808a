package client

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A member that is to give ranges up lets handlers go on for half of the rebalance timeout,
// and waits for the answers of commits for the other half, not longer.
func TestRevocationEndsInTime(t *testing.T) {
	cl, err := kgo.NewClient(kgo.RebalanceTimeout(100 * time.Millisecond))
	require.NoError(t, err)
	defer cl.Close()
	var revoked []AssignedSlots
	cfg := defaultReaderConfig()
	cfg.member.hooks.Revoked = func(ranges []AssignedSlots) { revoked = append(revoked, ranges...) }
	g := newGroupReader(cfg, kgo.RangeBalancer(), nil)
	g.member.cl = cl
	ranges := []AssignedSlots{{TopicPartition{"t", 0}, SlotRange{Lo: 0, Hi: 9}}, {TopicPartition{"u", 0}, allSlots}, {TopicPartition{"v", 1}, SlotRange{Lo: 0, Hi: 9}}}
	g.mu.holdings = newHoldings(g, &membership{}, ranges)
	require.Len(t, g.mu.holdings, 2, "one for each range of slots")
	require.Equal(t, ranges, g.Assigned())
	for _, h := range g.mu.holdings {
		go func() {
			defer close(h.done)
			<-h.handling.Done()
			<-h.committing.Done() // an answer that never comes
			assert.ErrorIs(t, context.Cause(h.handling), ErrRevoked)
			assert.ErrorIs(t, context.Cause(h.committing), ErrRevoked)
		}()
	}
	g.revoked()
	require.Equal(t, ranges, revoked)
	require.Empty(t, g.Assigned())
	g.ended(false)
	require.Equal(t, ranges, revoked, "reported once")
}
