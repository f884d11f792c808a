package ledgers

import (
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/individualcommit"
)

// BenchmarkCommit is a commit of a batch of records, by so many workers of a group at a
// time, over logs in memory: what the ledgers cost a broker per commit.
func BenchmarkCommit(b *testing.B) {
	for _, workers := range []int{1, 16} {
		for _, length := range []int64{1, 500} {
			b.Run(fmt.Sprintf("workers=%d/length=%d", workers, length), func(b *testing.B) {
				r := newRigOn(b, vfs.NewMem())
				tp := part(1, 0)
				for range 1 + int64(b.N)*length/1000 {
					r.produce(tp, 1000)
				}
				r.commit("g", commitOf(tp, 0))
				b.ReportAllocs()
				b.ResetTimer()
				var wg sync.WaitGroup
				for w := range workers {
					wg.Go(func() {
						for i := w; i < b.N; i += workers {
							p := commitOf(tp)
							p.Commit = []individualcommit.Run{run(int64(i)*length, int64(i+1)*length)}
							commit := r.c.Begin(ctx, &extension.Member{Group: "g", Generation: -1}, []PartitionCommit{p})
							if err := commit.Wait(ctx)[0].Err; err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.StopTimer()
			})
		}
	}
}
