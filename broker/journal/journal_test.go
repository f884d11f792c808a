package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
)

// openLog opens a real log.
func openLog(t testing.TB, fs vfs.FS, o commitlog.Options) *commitlog.Log {
	t.Helper()
	o.FS, o.Dir, o.Name = fs, "log", "j-0"
	if o.Config == (commitlog.Config{}) {
		o.Config = commitlog.DefaultConfig()
		o.Config.Delete, o.Config.Compact = false, true
	}
	log, err := commitlog.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = log.Close() })
	return log
}

// replayed lists the records from an offset on as "offset key=value" strings.
func replayed(t testing.TB, log Log, from int64) []string {
	t.Helper()
	var got []string
	next, err := Open(log, "j").Replay(ctx, from, func(offset int64, r Record) error {
		value := "nil"
		if r.Value != nil {
			value = string(r.Value)
		}
		got = append(got, fmt.Sprintf("%d %s=%s", offset, r.Key, value))
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, log.Bounds().HighWatermark, next)
	return got
}

func TestAppendAndReplay(t *testing.T) {
	for _, codec := range []protocol.Codec{protocol.CodecNone, protocol.CodecGzip, protocol.CodecSnappy, protocol.CodecLz4, protocol.CodecZstd} {
		log := openLog(t, vfs.NewMem(), commitlog.Options{Fsync: true})
		j := OpenCompressed(log, "j", codec)
		first, err := j.Append(put("a", "1", "b", "2"))
		require.NoError(t, err)
		require.NoError(t, first.Wait(ctx))
		require.Equal(t, [2]int64{0, 2}, [2]int64{first.First, first.Next})
		second, err := j.Append(put("a", "", "c", "3", "d", "4"))
		require.NoError(t, err)
		<-second.Done()
		require.NoError(t, second.Err())
		require.Equal(t, [2]int64{2, 5}, [2]int64{second.First, second.Next})

		all := []string{"0 a=1", "1 b=2", "2 a=nil", "3 c=3", "4 d=4"}
		for from := range int64(6) {
			require.Equal(t, all[from:], append([]string{}, replayed(t, log, from)...), "codec %d from %d", codec, from)
		}
		_, err = j.Replay(ctx, 0, func(offset int64, r Record) error {
			require.EqualValues(t, []int64{1000, 1002, 1000, 1002, 1004}[offset], r.TimestampMs)
			return nil
		})
		require.NoError(t, err)
	}
}

func TestAppendWithoutRecords(t *testing.T) {
	_, err := Open(&memLog{}, "j").Append(nil)
	require.ErrorIs(t, err, protocol.ErrNoRecords)
}

func TestAppendToAFailedLog(t *testing.T) {
	_, err := Open(&memLog{err: commitlog.ErrReadOnly}, "offsets-3").Append(put("a", "1"))
	require.ErrorIs(t, err, commitlog.ErrReadOnly)
	require.ErrorContains(t, err, "offsets-3")
}

func TestReceiptIsGivenUpWithItsContext(t *testing.T) {
	log := openLog(t, vfs.NewMem(), commitlog.Options{Fsync: true})
	receipt, err := Open(log, "j").Append(put("a", "1"))
	require.NoError(t, err)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := receipt.Wait(gone); err != nil { // the flush may have been quicker
		require.ErrorIs(t, err, context.Canceled)
	}
	require.NoError(t, receipt.Wait(ctx))
}

// A record larger than what is loaded at a time loads all the same.
func TestLargeRecordsAndBatches(t *testing.T) {
	log := openLog(t, vfs.NewMem(), commitlog.Options{})
	large := bytes.Repeat([]byte("x"), 5*loadBytes)
	appendTo(t, log, put("a", "1"))
	appendTo(t, log, []Record{{Key: []byte("large"), Value: large}})
	appendTo(t, log, put("b", "2"))
	var many []Record
	for i := range 3000 {
		many = append(many, Record{Key: fmt.Appendf(nil, "k%d", i), Value: large[:1000]})
	}
	appendTo(t, log, many)
	sizes := map[string]int{}
	_, err := Open(log, "j").Replay(ctx, 0, func(_ int64, r Record) error {
		sizes[string(r.Key)] = len(r.Value)
		return nil
	})
	require.NoError(t, err)
	require.Len(t, sizes, 3003)
	require.Equal(t, len(large), sizes["large"])
	require.Equal(t, 1, sizes["b"])
}

func TestReplayStopsAtTheHighWatermark(t *testing.T) {
	log := &memLog{}
	appendTo(t, log, put("a", "1"))
	log.lag = true
	appendTo(t, log, put("b", "2"))
	require.Equal(t, []string{"0 a=1"}, replayed(t, log, 0))
}

func TestReplaySkipsControlBatches(t *testing.T) {
	log := &memLog{}
	appendTo(t, log, put("a", "1"))
	var b protocol.BatchBuilder
	o := protocol.PlainBatch(0)
	o.Control = true
	b.Reset(o)
	b.Append([]byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 0}, nil, 0)
	marker, err := b.Build(nil)
	require.NoError(t, err)
	_, err = log.Append(marker, commitlog.AppendOptions{})
	require.NoError(t, err)
	appendTo(t, log, put("b", "2"))
	require.Equal(t, []string{"0 a=1", "2 b=2"}, replayed(t, log, 0))
}

func TestReplayEndsWithTheErrorOfItsCallback(t *testing.T) {
	log := &memLog{}
	appendTo(t, log, put("a", "1", "b", "2", "c", "3"))
	enough := errors.New("enough")
	next, err := Open(log, "j").Replay(ctx, 0, func(offset int64, _ Record) error {
		if offset == 1 {
			return enough
		}
		return nil
	})
	require.ErrorIs(t, err, enough)
	require.EqualValues(t, 1, next, "the first that is not done")

	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err = Open(log, "j").Replay(gone, 0, func(int64, Record) error { return nil })
	require.ErrorIs(t, err, context.Canceled)
}

func TestReplayPastWhatTheCleanerLeft(t *testing.T) {
	log := &memLog{}
	for i := range 4 {
		appendTo(t, log, put("a", fmt.Sprint(i), "b", fmt.Sprint(i)))
	}
	log.batches = slices.Delete(log.batches, 1, 2)
	log.batches = log.batches[:2] // and nothing is left at the end
	require.Equal(t, []string{"0 a=0", "1 b=0", "4 a=2", "5 b=2"}, replayed(t, log, 0))
	require.Equal(t, []string{"4 a=2", "5 b=2"}, replayed(t, log, 3))
}

// A damaged batch is told with its extent, wherever the damage is.
func TestCorruptBatch(t *testing.T) {
	damage := map[string]struct {
		at   int
		next int64 // -1: not known
	}{
		"magic": {16, -1}, "length": {11, -1}, "checksum": {17, 4}, "records": {70, 4}, "attributes": {22, 4},
	}
	for name, d := range damage {
		t.Run(name, func(t *testing.T) {
			log := &memLog{}
			for i := range 3 {
				appendTo(t, log, put("a", fmt.Sprint(i), "b", fmt.Sprint(i)))
			}
			log.batches[1][d.at] ^= 0xff
			var got []int64
			next, err := Open(log, "offsets-3").Replay(ctx, 0, func(offset int64, _ Record) error {
				got = append(got, offset)
				return nil
			})
			require.Equal(t, []int64{0, 1}, got)
			require.EqualValues(t, 2, next)
			var corrupt *CorruptError
			require.ErrorAs(t, err, &corrupt)
			require.Equal(t, "offsets-3", corrupt.Journal)
			require.EqualValues(t, 2, corrupt.Offset)
			require.Equal(t, d.next, corrupt.Next)
			require.ErrorContains(t, err, "journal offsets-3: the records from offset 2 to")
		})
	}
}

// A file that was changed under a real log is found too.
func TestCorruptFile(t *testing.T) {
	fs := vfs.NewMem()
	log := openLog(t, fs, commitlog.Options{Fsync: true})
	for i := range 3 {
		appendTo(t, log, put("a", fmt.Sprint(i)))
	}
	require.NoError(t, log.Close())
	names, err := fs.List("log")
	require.NoError(t, err)
	for _, name := range names {
		path := fs.PathJoin("log", name)
		data := readAll(t, fs, path)
		if at := bytes.Index(data, []byte("a\x021")); at > 0 { // the key and value of the second record
			data[at] ^= 1
			writeAll(t, fs, path, data)
		}
	}
	var corrupt *CorruptError
	_, err = Open(openLog(t, fs, commitlog.Options{Fsync: true}), "j").Replay(ctx, 0, func(int64, Record) error { return nil })
	require.ErrorAs(t, err, &corrupt)
	require.EqualValues(t, 1, corrupt.Offset)
	require.EqualValues(t, 2, corrupt.Next)
}

func readAll(t testing.TB, fs vfs.FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	require.NoError(t, err)
	info, err := f.Stat()
	require.NoError(t, err)
	data := make([]byte, info.Size())
	if len(data) > 0 {
		_, err = f.ReadAt(data, 0)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	return data
}

func writeAll(t testing.TB, fs vfs.FS, path string, data []byte) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = f.Write(data)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("records=%d", n), func(b *testing.B) {
			j := Open(openLog(b, vfs.NewMem(), commitlog.Options{FlushInterval: time.Hour}), "j")
			records := make([]Record, n)
			for i := range records {
				records[i] = Record{Key: []byte("group-topic-1"), Value: make([]byte, 40), TimestampMs: 1}
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := j.Append(records); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Whatever bytes a log holds, they replay, or are told as lost.
func FuzzReplay(f *testing.F) {
	log := &memLog{}
	appendTo(f, log, put("a", "1", "b", ""))
	f.Add(log.batches[0])
	for _, codec := range []protocol.Codec{protocol.CodecGzip, protocol.CodecZstd} {
		compressed := &memLog{}
		_, err := OpenCompressed(compressed, "j", codec).Append(put("a", "1", "b", ""))
		require.NoError(f, err)
		f.Add(compressed.batches[0])
	}
	transaction := &memLog{}
	_, err := Open(transaction, "j").AppendInTransaction(Transaction{ProducerID: 7}, put("a", "1"))
	require.NoError(f, err)
	_, err = Open(transaction, "j").AppendMarker(protocol.EndTxnMarker{ProducerID: 7, Commit: true}, 2, 1)
	require.NoError(f, err)
	f.Add(transaction.batches[0])
	f.Add(transaction.batches[1])
	f.Fuzz(func(t *testing.T, batch []byte) {
		if len(batch) > protocol.BatchHeaderLen {
			protocol.RenewCRC(batch) // damage behind the checksum is what is interesting
		}
		log := &memLog{batches: [][]byte{batch}, high: 2, end: 2}
		_, err := Open(log, "j").ReplayTransactions(ctx, 0, func(offset int64, _ Record) error {
			require.GreaterOrEqual(t, offset, int64(0))
			return nil
		}, func(offset int64, _ Transaction, _ bool) error {
			require.GreaterOrEqual(t, offset, int64(0))
			return nil
		})
		var corrupt *CorruptError
		require.True(t, err == nil || errors.As(err, &corrupt), "%v", err)
	})
}
