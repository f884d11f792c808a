package processor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/client"
)

// A state is never told to be further back than it is.
func TestOffsetsDoNotGoBack(t *testing.T) {
	p0, p1 := client.TopicPartition{Topic: "in"}, client.TopicPartition{Topic: "in", Partition: 1}
	f := &feed{began: map[client.TopicPartition]int64{p0: 0, p1: 5}, taken: make(map[client.TopicPartition]int64)}
	task := &task{app: &App{}}
	told := func(next map[client.TopicPartition]int64) map[int32]int64 {
		all := make(map[int32]int64)
		for _, o := range task.offsetsOf(nil, &batch{feed: f, next: next}, 0) {
			all[o.Partition] = o.Next
		}
		return all
	}
	require.Equal(t, map[int32]int64{1: 5}, told(map[client.TopicPartition]int64{p1: 3}), "it came again")
	require.Equal(t, map[int32]int64{0: 2, 1: 7}, told(map[client.TopicPartition]int64{p0: 2, p1: 7}))
	require.Equal(t, map[int32]int64{0: 4}, told(map[client.TopicPartition]int64{p0: 4, p1: 7}))
	require.Empty(t, told(map[client.TopicPartition]int64{p0: 3, p1: 7}))
}
