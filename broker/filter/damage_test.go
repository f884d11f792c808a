package filter

import (
	"fmt"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/protocol"
)

// TestDamagedByte changes each byte of a segment. Where a checksum covers it the batch is
// passed as it is, so that the client sees the damage; elsewhere the fetch fails. Never
// is a record left out, or a checksum made good over the damage.
func TestDamagedByte(t *testing.T) {
	l := openLog(t, 1<<20)
	for i := range 5 {
		l.appendRecords(codecs[i], record{fmt.Appendf(nil, "key-%d", i), []byte("value")}, record{[]byte("other"), nil})
	}
	l.appendBatch(protocol.BatchOptions{ProducerID: 1, Transactional: true}, []record{{[]byte("key-1"), nil}})
	l.appendMarker(1, true)
	require.NoError(t, l.Seal())
	stored := l.file()
	var asked protocol.KeyFilter
	for i := range 5 {
		asked.Keys = append(asked.Keys, fmt.Appendf(nil, "key-%d", i))
	}
	want := passes(t, l, asked, stored)

	for i := range stored {
		damaged := append([]byte(nil), stored...)
		damaged[i] ^= 0x55
		l.overwrite(damaged)
		got, next, err := fetchAllOf(New(Config{}), l, asked)
		batch, at := batchAround(t, stored, i)
		if field := i - at; field < 17 { // base offset, length, leader epoch, magic
			require.Error(t, err, "byte %d", i)
		}
		if err != nil {
			require.LessOrEqual(t, next, batch.NextOffset(), "byte %d: what comes after it is not passed over", i)
			if next <= batch.BaseOffset {
				require.Equal(t, string(want[:len(got)]), string(got), "byte %d", i)
				continue
			}
			// Its length was damaged: a part was passed, or too much, with the checksum of all.
			require.Contains(t, string(got), string(damaged[at:at+protocol.BatchHeaderLen]), "byte %d", i)
			continue
		}
		require.EqualValues(t, l.Bounds().End, next)
		require.Contains(t, string(got), string(damaged[at:at+batch.Size()]), "byte %d: the damaged batch is passed", i)
	}
	l.overwrite(stored)
	got, _, err := fetchAllOf(New(Config{}), l, asked)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// passes is what the filter makes of the log.
func passes(t *testing.T, l *testLog, asked protocol.KeyFilter, stored []byte) []byte {
	got, next, err := fetchAllOf(New(Config{}), l, asked)
	require.NoError(t, err)
	require.EqualValues(t, l.Bounds().End, next)
	require.Less(t, len(got), len(stored), "something is filtered")
	return got
}

// fetchAllOf fetches until the end or an error.
func fetchAllOf(r *Reader, l *testLog, asked protocol.KeyFilter) (data []byte, next int64, err error) {
	f := mustFilter(l.t, asked)
	for next < l.Bounds().End {
		got, err := r.Fetch(l, data, next, f, Options{UpTo: l.Bounds().End, MaxBytes: 1e6})
		if err != nil {
			return data, next, err
		}
		data, next = got.Data, got.Next
	}
	return data, next, nil
}

// batchAround is the batch that has byte i, and where it begins.
func batchAround(t *testing.T, stored []byte, i int) (protocol.BatchHeader, int) {
	for at := 0; ; {
		h, err := protocol.ParseBatchHeader(stored[at:])
		require.NoError(t, err)
		if i < at+h.Size() {
			return h, at
		}
		at += h.Size()
	}
}

const segmentFile = "data/orders-0/00000000000000000000.log"

// file reads the first segment's file.
func (l *testLog) file() []byte {
	f, err := l.fs.Open(segmentFile)
	require.NoError(l.t, err)
	defer func() { require.NoError(l.t, f.Close()) }()
	data, err := io.ReadAll(f)
	require.NoError(l.t, err)
	return data[:l.Segments()[0].SizeBytes]
}

// overwrite replaces the bytes of the first segment's file.
func (l *testLog) overwrite(data []byte) {
	f, err := l.fs.OpenReadWrite(segmentFile, vfs.WriteCategoryUnspecified)
	require.NoError(l.t, err)
	_, err = f.WriteAt(data, 0)
	require.NoError(l.t, err)
	require.NoError(l.t, f.Close())
}
