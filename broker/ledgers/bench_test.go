package ledgers

import (
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/cooperative"
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

// deaf is an owner that has nothing to say.
type deaf struct{ counts []byte }

func (d *deaf) Committed([]individualcommit.Run, *cooperative.Changes) {}
func (d *deaf) Reopened([]individualcommit.Run, *cooperative.Changes)  {}
func (d *deaf) Advanced(int64, *cooperative.Changes)                   {}

func (d *deaf) Ended([]individualcommit.Run, bool, *cooperative.Changes) {}
func (d *deaf) Gone()                                                    {}
func (d *deaf) AppendCounts(dst []byte, _ int64) []byte                  { return append(dst, d.counts...) }

var counts = []byte("counts")

// BenchmarkShareDo is what an acknowledgement of a share partition costs beside its
// dispatcher, by so many members at a time, over logs in memory. With counts, those of a
// block come and go with every other; with wait each is waited for, as its member does.
func BenchmarkShareDo(b *testing.B) {
	for _, of := range []struct {
		what           string
		members        int
		length         int64
		commit, counts bool
		wait           bool
	}{
		{what: "look", members: 1},
		{what: "commit", members: 1, length: 1, commit: true},
		{what: "commit", members: 1, length: 500, commit: true},
		{what: "commit+counts", members: 1, length: 1, commit: true, counts: true},
		{what: "commit+wait", members: 1, length: 1, commit: true, wait: true},
		{what: "commit+wait", members: 64, length: 1, commit: true, wait: true},
	} {
		b.Run(fmt.Sprintf("what=%s/members=%d/length=%d", of.what, of.members, of.length), func(b *testing.B) {
			r := newRigOn(b, vfs.NewMem())
			tp := part(1, 0)
			r.produce(tp, 1000)
			owner := &deaf{}
			share, err := r.c.OpenShare(ctx, "g", tp, 0, owner)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for m := range of.members {
				wg.Go(func() {
					out := &cooperative.Changes{}
					var at int64
					f := func(*individualcommit.Ledger) {
						if of.commit {
							out.Commit = append(out.Commit[:0], run(at, at+of.length))
						}
						if of.counts {
							out.Counts = append(out.Counts[:0], at/cooperative.BlockOffsets)
							owner.counts = counts[:at&1*6]
						}
					}
					for i := m; i < b.N; i += of.members {
						at = int64(i) * of.length
						receipt, err := share.Do(out, f)
						if err == nil && of.wait {
							err = share.Wait(ctx, receipt)
						}
						if err != nil {
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
