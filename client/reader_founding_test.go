package client

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// grow adds a partition to a topic.
func (c *cluster) grow(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.topics[topic].partitions = append(c.topics[topic].partitions, newFakePartition())
}

// A topic gains partitions while nobody of the group runs. What was written to them is for the
// group, which had begun at the end of the topic.
func TestReaderGetsPartitionsThatWereAddedWhileNobodyRan(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, "a", "b")
		require.NoError(t, c.open(Group("g"), Topics("t"), ResetPosition(Latest())).Close(t.Context()))
		c.grow("t")
		c.grow("t")
		c.produce("t", 1, "c")
		c.produce("t", 2, "d")
		r := c.open(Group("g"), Topics("t"), ResetPosition(Latest()))
		_, records := poll(t, r, 2)
		require.ElementsMatch(t, []int32{1, 2}, []int32{records[0].Partition, records[1].Partition})
	})
}

// Who names the partitions begins with a further one where the options say.
func TestReaderOfNamedPartitionsBeginsWhereItIsTold(t *testing.T) {
	withCluster(t, func(t *testing.T, c *cluster) {
		c.grow("t")
		c.produce("t", 1, "a", "b")
		require.NoError(t, c.open(Group("g"), Partitions("t", 0), ResetPosition(Latest())).Close(t.Context()))
		r := c.open(Group("g"), Partitions("t", 0, 1), ResetPosition(Latest()))
		c.produce("t", 1, "c")
		offsets, _ := poll(t, r, 1)
		require.Equal(t, []int64{2}, offsets)
	})
}
