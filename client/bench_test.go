package client_test

import (
	"sync/atomic"
	"testing"

	"github.com/lacunamq/lacuna/client"
	"github.com/stretchr/testify/require"
)

// BenchmarkReaderPoll reads everything, or the records of a sixteenth of the slots, of
// 200,000. Its unit is a record read.
func BenchmarkReaderPoll(b *testing.B) {
	const records = 200_000
	s := newServer(b)
	s.produce(records)
	for name, opts := range map[string][]client.ReaderOpt{
		"slots=all":  nil,
		"slots=1/16": {client.Slots(client.SlotRange{Lo: 0, Hi: 4095})},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; n < b.N; {
				r := s.open(opts...)
				for n < b.N && !r.Status()[0].Past(records) {
					got, err := r.Poll(b.Context())
					require.NoError(b, err)
					n += len(got)
				}
				require.NoError(b, r.Close(b.Context()))
			}
		})
	}
}

// BenchmarkReaderCommit commits single records and waits for each, from so many
// goroutines; or queues them.
func BenchmarkReaderCommit(b *testing.B) {
	const records = 200_000
	s := newServer(b)
	s.produce(records)
	r := s.open(client.Group("g"))
	b.Run("wait=yes/goroutines=256", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(128)
		var next atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				o := next.Add(1) * 7919 % records
				if err := r.CommitRuns(b.Context(), "t", 0, client.Run{Start: o, End: o + 1}); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("wait=no", func(b *testing.B) {
		b.ReportAllocs()
		for n := range b.N {
			o := int64(n) * 7919 % records
			require.NoError(b, r.EnqueueRuns(b.Context(), "t", 0, client.Run{Start: o, End: o + 1}))
		}
		require.NoError(b, r.Flush(b.Context()))
	})
}
