package commitlog

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/protocol"
)

// largeBatch is a compressed batch of two records, at 10 and 20 ms, whose values have n
// zeros together.
func largeBatch(t *testing.T, codec protocol.Codec, n int) []byte {
	t.Helper()
	o := protocol.PlainBatch(0)
	o.Codec = codec
	var b protocol.BatchBuilder
	b.Reset(o)
	b.Append([]byte("k"), make([]byte, n/2), nil, 10)
	b.Append([]byte("k"), make([]byte, n/2), nil, 20)
	batch, err := b.Build(nil)
	require.NoError(t, err)
	return batch
}

// TestLookupsLeaveLargeBatchesCompressed: a lookup by time finds the record in a batch
// that may be decompressed, and takes one that may not be for a whole.
func TestLookupsLeaveLargeBatchesCompressed(t *testing.T) {
	for codec := protocol.CodecNone; codec <= protocol.CodecZstd; codec++ {
		t.Run(codec.String(), func(t *testing.T) {
			for limit, offset := range map[int]int64{1 << 20: 1, 10_000: 0} {
				o := testOptions(vfs.NewMem())
				o.Decoding = NewDecodeLimiter(1, limit)
				l := openTest(t, o)
				mustAppend(t, l, largeBatch(t, codec, 20_000))
				found, ok, err := l.OffsetForTimestamp(15)
				require.NoError(t, err)
				require.True(t, ok)
				if codec == protocol.CodecNone {
					offset = 1
				}
				require.Equal(t, TimestampedOffset{Offset: offset, TimestampMs: 20, LeaderEpoch: found.LeaderEpoch}, found, "limit %d", limit)

				// The log start within the batch makes the largest timestamp need a look, too.
				_, err = l.DeleteRecords(1)
				require.NoError(t, err)
				found, ok, err = l.MaxTimestamp()
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, int64(1), found.Offset, "limit %d", limit)
				require.NoError(t, l.Close())
			}
		})
	}
}

// TestAppendsOfLargeBatchesToTimedTopics: where the time of each record counts, a batch that may
// not be decompressed is refused.
func TestAppendsOfLargeBatchesToTimedTopics(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Config.TimestampBeforeMaxMs = 1_000_000
	o.Decoding = NewDecodeLimiter(1, 10_000)
	l := openTest(t, o)
	_, err := l.Append(largeBatch(t, protocol.CodecGzip, 20_000), AppendOptions{})
	require.ErrorIs(t, err, protocol.ErrTooLarge)
	mustAppend(t, l, largeBatch(t, protocol.CodecGzip, 5_000))
}

// TestDecodeLimiter: no more batches are looked into at once than it allows, and its slots
// can be used again whatever comes out of it.
func TestDecodeLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := NewDecodeLimiter(2, 0)
		batch := largeBatch(t, protocol.CodecLz4, 2*keptDecodedBytes)
		h, err := protocol.ParseBatchHeader(batch)
		require.NoError(t, err)
		var running, most, failed atomic.Int64
		gate := make(chan struct{})
		for i := range 6 {
			go func() {
				err := limiter.Records(&h, batch, func([]byte) error {
					most.Store(max(most.Load(), running.Add(1)))
					<-gate
					running.Add(-1)
					if i%2 == 0 {
						return protocol.ErrInvalidRecord
					}
					return nil
				})
				if err != nil {
					failed.Add(1)
				}
			}()
		}
		synctest.Wait()
		require.Equal(t, int64(2), running.Load())
		close(gate)
		synctest.Wait()
		require.Equal(t, int64(2), most.Load())
		require.Equal(t, int64(3), failed.Load())
		for range 2 { // a slot that keeps a large buffer would hold it for good
			slot := <-limiter.slots
			require.Equal(t, new(protocol.Decompressor), slot)
			limiter.slots <- slot
		}
	})
}
