package commitlog_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/commitlog/logtest"
	"github.com/lacunamq/lacuna/protocol"
)

func openLog(t testing.TB, c commitlog.Config, now func() time.Time, fsync bool) *commitlog.Log {
	t.Helper()
	l, err := commitlog.Open(commitlog.Options{
		FS: vfs.NewMem(), Dir: "orders-0", Name: "orders-0", Fsync: fsync, Config: c, Now: now,
	})
	require.NoError(t, err)
	return l
}

func TestContract(t *testing.T) {
	for name, open := range map[string]logtest.Open{
		"log": func(t testing.TB, c commitlog.Config, now func() time.Time) logtest.Log {
			return openLog(t, c, now, true)
		},
		"log without fsync": func(t testing.TB, c commitlog.Config, now func() time.Time) logtest.Log {
			return openLog(t, c, now, false)
		},
		"memory": func(_ testing.TB, c commitlog.Config, now func() time.Time) logtest.Log {
			return logtest.NewMemory(c, now)
		},
	} {
		t.Run(name, func(t *testing.T) { logtest.Run(t, open) })
	}
}

// TestLikeMemory does the same random things to the log and to the naive one and
// compares every answer.
func TestLikeMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nowMs := int64(logtest.Now)
		now := func() time.Time { return time.UnixMilli(nowMs) }
		c := commitlog.DefaultConfig()
		c.SegmentBytes = rapid.Int64Range(300, 2000).Draw(t, "segment bytes")
		c.IndexIntervalBytes = rapid.Int32Range(0, 300).Draw(t, "index interval")
		c.LogAppendTime = rapid.Bool().Draw(t, "log append time")
		p := &pair{t: t, fs: vfs.NewMem(), config: c, now: now, naive: logtest.NewMemory(c, now)}
		p.open()
		defer func() { _ = p.log.Close() }()
		t.Repeat(map[string]func(*rapid.T){
			"append": func(*rapid.T) { p.append() },
			"marker": func(*rapid.T) { p.marker() },
			"read":   func(*rapid.T) { p.read() },
			"delete": func(*rapid.T) { p.delete() },
			"time":   func(*rapid.T) { nowMs += rapid.Int64Range(0, 100).Draw(t, "ms") },
			"seal":   func(*rapid.T) { require.NoError(t, p.log.Seal()) },
			"reopen": func(*rapid.T) { p.reopen() },
			"":       func(*rapid.T) { p.compare() },
		})
		require.NoError(t, p.log.CheckInvariants())
	})
}

// pair is a log and its naive twin.
type pair struct {
	t      *rapid.T
	fs     vfs.FS
	config commitlog.Config
	now    func() time.Time
	log    *commitlog.Log
	naive  *logtest.Memory
}

func (p *pair) open() {
	l, err := commitlog.Open(commitlog.Options{
		FS: p.fs, Dir: "orders-0", Name: "orders-0", Fsync: true, Config: p.config, Now: p.now,
	})
	require.NoError(p.t, err)
	p.log = l
}

func (p *pair) reopen() {
	require.NoError(p.t, p.log.Close())
	p.open()
	require.Equal(p.t, commitlog.Recovery{End: p.log.Bounds().End}, p.log.Recovery())
}

// both appends to both and compares the answers.
func (p *pair) both(batch []byte, o commitlog.AppendOptions) {
	twin := append([]byte(nil), batch...)
	got, gotErr := p.log.Append(batch, o)
	want, wantErr := p.naive.Append(twin, o)
	require.Equal(p.t, wantErr == nil, gotErr == nil, "naive: %v, log: %v", wantErr, gotErr)
	if wantErr != nil {
		require.ErrorIs(p.t, gotErr, wantErr)
		return
	}
	if got.Flush != nil {
		<-got.Flush.Done()
		require.NoError(p.t, got.Flush.Err())
	}
	got.Flush = nil
	require.Equal(p.t, want, got)
	if !got.Duplicate {
		require.Equal(p.t, twin, batch, "both stamp the same")
	}
}

func (p *pair) append() {
	t := p.t
	o := logtest.Plain()
	if id := rapid.Int64Range(-1, 3).Draw(t, "producer"); id >= 0 {
		o = logtest.Produced(id, rapid.Int16Range(0, 1).Draw(t, "epoch"), rapid.Int32Range(0, 6).Draw(t, "sequence"))
		o.Transactional = rapid.Bool().Draw(t, "transactional")
	}
	o.Codec = rapid.SampledFrom([]protocol.Codec{protocol.CodecNone, protocol.CodecLz4, protocol.CodecGzip}).Draw(t, "codec")
	n := rapid.IntRange(1, 3).Draw(t, "records")
	ms := p.now().UnixMilli() - rapid.Int64Range(0, 200).Draw(t, "age")
	var b protocol.BatchBuilder
	b.Reset(o)
	for i := range n {
		b.Append([]byte{byte(i)}, []byte("value"), nil, ms-int64(i))
	}
	batch, err := b.Build(nil)
	require.NoError(t, err)
	p.both(batch, commitlog.AppendOptions{})
}

func (p *pair) marker() {
	t := p.t
	var b protocol.BatchBuilder
	batch, err := b.AppendEndTxnMarker(nil, protocol.EndTxnMarker{
		ProducerID:       rapid.Int64Range(0, 3).Draw(t, "producer"),
		ProducerEpoch:    rapid.Int16Range(0, 1).Draw(t, "epoch"),
		Commit:           rapid.Bool().Draw(t, "commit"),
		CoordinatorEpoch: rapid.Int32Range(0, 1).Draw(t, "coordinator"),
	}, p.now().UnixMilli())
	require.NoError(t, err)
	p.both(batch, commitlog.AppendOptions{Internal: true, TransactionVersion: rapid.Int16Range(1, 2).Draw(t, "version")})
}

func (p *pair) read() {
	t := p.t
	end := p.naive.Bounds().End
	from := rapid.Int64Range(-1, end+1).Draw(t, "from")
	o := commitlog.ReadOptions{
		MaxBytes: rapid.IntRange(0, 1500).Draw(t, "max bytes"),
		UpTo:     rapid.Int64Range(0, end).Draw(t, "up to"),
		MinOne:   rapid.Bool().Draw(t, "min one"),
	}
	got, gotErr := p.log.Read(nil, from, o)
	want, wantErr := p.naive.Read(nil, from, o)
	require.Equal(t, wantErr == nil, gotErr == nil, "naive: %v, log: %v", wantErr, gotErr)
	require.Equal(t, want.Next, got.Next)
	require.Equal(t, string(want.Data), string(got.Data))
}

func (p *pair) delete() {
	before := rapid.Int64Range(-1, p.naive.Bounds().End).Draw(p.t, "before")
	got, err := p.log.DeleteRecords(before)
	require.NoError(p.t, err)
	want, err := p.naive.DeleteRecords(before)
	require.NoError(p.t, err)
	require.Equal(p.t, want, got)
}

// compare asks both everything.
func (p *pair) compare() {
	t := p.t
	b := p.naive.Bounds()
	require.Equal(t, b, p.log.Bounds())
	require.Equal(t, p.naive.Producers(), p.log.Producers())
	from, to := b.Start, b.LSO
	got, err := p.log.AbortedTxns(from, to)
	require.NoError(t, err)
	want, err := p.naive.AbortedTxns(from, to)
	require.NoError(t, err)
	require.Equal(t, want, got)

	max, ok, err := p.log.MaxTimestamp()
	require.NoError(t, err)
	wantMax, wantOk, err := p.naive.MaxTimestamp()
	require.NoError(t, err)
	require.Equal(t, wantOk, ok)
	require.Equal(t, wantMax, max)
	ms := p.now().UnixMilli() - rapid.Int64Range(-10, 300).Draw(t, "age")
	at, ok, err := p.log.OffsetForTimestamp(ms)
	require.NoError(t, err)
	wantAt, wantOk, err := p.naive.OffsetForTimestamp(ms)
	require.NoError(t, err)
	require.Equal(t, wantOk, ok)
	require.Equal(t, wantAt, at)
}
