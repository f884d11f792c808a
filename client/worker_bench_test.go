package client_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/lacunamq/lacuna/client"
)

// BenchmarkWorker is what a Worker costs per record, with the broker in this process, when
// handlers do nothing.
func BenchmarkWorker(b *testing.B) {
	for _, mode := range []string{"round-robin", "key-ordered"} {
		for _, workers := range []int{1, 8} {
			b.Run(fmt.Sprintf("mode=%s/workers=%d", mode, workers), func(b *testing.B) {
				s := newServer(b)
				s.configure("share.delivery.mode", mode)
				s.shareFromEarliest()
				s.produce(b.N)
				var left atomic.Int64
				left.Store(int64(b.N))
				done := make(chan struct{})
				handler := func(context.Context, *client.ShareRecord) error {
					if left.Add(-1) == 0 {
						close(done)
					}
					return nil
				}
				b.ReportAllocs()
				b.ResetTimer()
				for range workers {
					s.work(handler)
				}
				<-done
				b.StopTimer()
			})
		}
	}
}
