package commitlog

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/protocol"
)

// world is a random history of one log on a file system that can crash, with the
// account of what was appended. Snapshots of what a crash would leave are taken at
// random file operations; the history itself goes on.
type world struct {
	t     *testing.T
	rng   *rand.Rand
	mem   *vfs.MemFS
	o     Options
	l     *Log
	nowMs int64
	truth truth

	writers map[int64]*writer

	snapEvery int // one in so many file operations; 0: none
	snap      struct {
		sync.Mutex // file operations come from the flusher too
		rng        *rand.Rand
		taken      []snapshot
		last       Bounds
		log        *Log
	}
}

// writer is an idempotent or transactional producer of the history.
type writer struct {
	id          int64
	epoch       int16
	next        int32
	inTxn       bool
	coordinator int32
	sent        [][2]int64 // base sequence and base offset of the batches of this epoch
	lens        []int
}

// snapshot is a file system after a crash, and what was visible at that moment.
type snapshot struct {
	fs      *vfs.MemFS
	visible Bounds
	process bool // only the process died: the system has written all
}

func newWorld(t *testing.T, seed uint64, configure func(o *Options, rng *rand.Rand)) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), mem: vfs.NewCrashableMem(),
		nowMs: 1_700_000_000_000, writers: map[int64]*writer{},
	}
	w.snap.rng = rand.New(rand.NewPCG(seed, 2))
	c := DefaultConfig()
	c.SegmentBytes = 600 + w.rng.Int64N(2000)
	c.IndexIntervalBytes = int32(w.rng.IntN(300))
	c.RetentionMs = 50_000
	w.o = Options{
		FS: errorfs.Wrap(w.mem, errorfs.InjectorFunc(w.beforeOp)), Dir: "data/orders-0", Name: "orders-0",
		Fsync: true, Config: c, Now: func() time.Time { return time.UnixMilli(w.nowMs) },
		checkpointBytes: 200 + w.rng.Int64N(2000),
	}
	if configure != nil {
		configure(&w.o, w.rng)
	}
	makeParent(t, Options{FS: w.mem, Dir: w.o.Dir})
	return w
}

// beforeOp takes a snapshot before one in snapEvery operations that change the disk.
func (w *world) beforeOp(op errorfs.Op) error {
	if w.snapEvery == 0 || op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
		return nil
	}
	w.snap.Lock()
	defer w.snap.Unlock()
	if w.snap.rng.IntN(w.snapEvery) == 0 {
		w.takeSnapshot()
	}
	return nil
}

func (w *world) takeSnapshot() {
	if w.snap.log != nil {
		w.snap.last = w.snap.log.Bounds() // before the clone: what is visible has to be in it
	}
	percent := []int{0, 0, 30, 70, 100}[w.snap.rng.IntN(5)]
	w.snap.taken = append(w.snap.taken, snapshot{
		fs:      w.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: w.snap.rng}),
		visible: w.snap.last,
		process: percent == 100,
	})
}

func (w *world) open() {
	l, err := Open(w.o)
	require.NoError(w.t, err)
	w.l = l
	w.snap.Lock()
	defer w.snap.Unlock()
	w.snap.log = l
}

func (w *world) reopen() {
	w.snap.Lock()
	w.snap.last = w.l.Bounds()
	w.snap.log = nil
	w.snap.Unlock()
	before, producers := w.l.Bounds(), w.l.Producers()
	require.NoError(w.t, w.l.Close())
	w.open()
	require.Equal(w.t, producers, w.l.Producers())
	after := w.l.Bounds()
	require.Equal(w.t, before.End, after.HighWatermark, "a clean stop loses nothing")
	require.Equal(w.t, before.Start, after.Start)
	require.Equal(w.t, before.LeaderEpoch, after.LeaderEpoch, "a clean stop does not raise the leader epoch")
	require.Equal(w.t, Recovery{End: before.End}, w.l.Recovery(), "a clean stop recovers nothing")
}

// kill ends the process: what was written is in the system's memory, and a later power
// cut may still take what was not fsynced.
func (w *world) kill() {
	synctest.Wait() // the flusher is idle
	w.snap.Lock()
	w.snap.last = w.l.Bounds()
	w.snap.log = nil
	w.snap.Unlock()
	w.l.mu.Lock()
	w.l.mu.closed = true // a timer of the dead does nothing
	w.l.mu.flush.stopTimer()
	w.l.mu.Unlock()
	before := w.l.Bounds()
	unclean := w.o
	w.o.Unclean = true
	w.open()
	w.o = unclean
	after := w.l.Bounds()
	require.Equal(w.t, before.End, after.HighWatermark, "what was written is recovered")
	require.Equal(w.t, before.Start, after.Start)
	require.Greater(w.t, after.LeaderEpoch, w.truth.lastEpoch())
	require.Empty(w.t, w.l.Recovery().Dropped)
}

// run does n random operations inside a bubble of fake time.
func (w *world) run(n int) {
	synctest.Test(w.t, func(t *testing.T) {
		w.t = t
		w.open()
		for range n {
			w.step()
			w.verifyProducers(w.l, &w.truth)
		}
		synctest.Wait()
		require.NoError(t, w.l.CheckInvariants())
		require.NoError(t, w.l.Close())
	})
}

func (w *world) step() {
	w.nowMs += w.rng.Int64N(2000)
	switch k := w.rng.IntN(100); {
	case k < 30:
		w.append(w.plain(), AppendOptions{NoWait: w.rng.IntN(3) == 0})
	case k < 50:
		w.idempotent(w.writer(1 + w.rng.Int64N(3)))
	case k < 70:
		w.transactional(w.writer(11 + w.rng.Int64N(3)))
	case k < 75:
		require.NoError(w.t, w.l.Seal())
	case k < 78:
		w.nowMs += 20_000
	case k < 82:
		w.deleteRecords()
	case k < 86:
		require.NoError(w.t, w.l.ApplyRetention(time.UnixMilli(w.nowMs)))
	case k < 90:
		_, err := w.l.Clean(time.UnixMilli(w.nowMs))
		require.NoError(w.t, err)
	case k < 92:
		w.reopen()
	case k < 93:
		w.kill()
	case k < 95:
		require.NoError(w.t, w.l.Flush(context.Background()))
	case k < 97:
		time.Sleep(10 * time.Millisecond) // lets a lazy flush come due
	default:
		w.readSome()
	}
}

// plain is a batch of an ordinary producer.
func (w *world) plain() []byte {
	return w.build(protocol.PlainBatch(0), 1+w.rng.IntN(4))
}

func (w *world) build(o protocol.BatchOptions, n int) []byte {
	// No zstd: its shared encoders have channels, which must not be made inside a bubble.
	o.Codec = []protocol.Codec{protocol.CodecNone, protocol.CodecNone, protocol.CodecLz4, protocol.CodecSnappy}[w.rng.IntN(4)]
	var b protocol.BatchBuilder
	b.Reset(o)
	for range n {
		var value []byte
		if w.rng.IntN(5) > 0 {
			value = fmt.Appendf(nil, "%0*d", w.rng.IntN(60), w.rng.IntN(1000))
		}
		b.Append(fmt.Appendf(nil, "key-%d", w.rng.IntN(8)), value, nil, w.nowMs-w.rng.Int64N(500))
	}
	batch, err := b.Build(nil)
	require.NoError(w.t, err)
	return batch
}

// append appends and, unless nobody is to wait, waits.
func (w *world) append(batch []byte, o AppendOptions) Appended {
	a, err := w.l.Append(batch, o)
	require.NoError(w.t, err)
	require.False(w.t, a.Duplicate)
	require.Equal(w.t, w.truth.end(), a.Base)
	w.truth.add(batch)
	w.wait(a, o)
	return a
}

func (w *world) wait(a Appended, o AppendOptions) {
	if a.Flush == nil || w.rng.IntN(3) == 0 {
		return
	}
	<-a.Flush.Done()
	require.NoError(w.t, a.Flush.Err())
	require.Greater(w.t, w.l.Bounds().HighWatermark, a.Last, "answered means visible")
	require.GreaterOrEqual(w.t, w.l.Bounds().HighWatermark, w.l.Bounds().LSO)
}

func (w *world) writer(id int64) *writer {
	p := w.writers[id]
	if p == nil {
		p = &writer{id: id}
		w.writers[id] = p
	}
	return p
}

func (w *world) idempotent(p *writer) {
	switch k := w.rng.IntN(10); {
	case k == 0:
		p.enter(p.epoch + 1)
	case k < 3 && len(p.sent) > 0:
		w.sendAgain(p)
		return
	case k == 3 && p.next > 0:
		_, err := w.l.Append(w.produced(p, p.next+1, 1, false), AppendOptions{})
		require.ErrorIs(w.t, err, ErrOutOfOrderSequence)
		return
	case k == 4 && p.epoch > 0 && p.next > 0:
		old := *p
		old.epoch--
		_, err := w.l.Append(w.produced(&old, 0, 1, false), AppendOptions{})
		require.ErrorIs(w.t, err, ErrInvalidProducerEpoch)
		return
	}
	w.send(p, false)
}

func (p *writer) enter(epoch int16) {
	p.epoch, p.next, p.sent, p.lens = epoch, 0, nil, nil
}

func (w *world) produced(p *writer, sequence int32, n int, txn bool) []byte {
	return w.build(protocol.BatchOptions{Transactional: txn, ProducerID: p.id, ProducerEpoch: p.epoch, BaseSequence: sequence}, n)
}

func (w *world) send(p *writer, txn bool) {
	n := 1 + w.rng.IntN(3)
	a := w.append(w.produced(p, p.next, n, txn), AppendOptions{})
	p.sent = append(p.sent, [2]int64{int64(p.next), a.Base})
	p.lens = append(p.lens, n)
	p.next += int32(n)
}

// sendAgain sends one of the last five batches again; its answer is its first one.
func (w *world) sendAgain(p *writer) {
	i := len(p.sent) - 1 - w.rng.IntN(min(5, len(p.sent)))
	a, err := w.l.Append(w.produced(p, int32(p.sent[i][0]), p.lens[i], false), AppendOptions{})
	require.NoError(w.t, err)
	require.True(w.t, a.Duplicate, "sequence %d of producer %d", p.sent[i][0], p.id)
	require.Equal(w.t, p.sent[i][1], a.Base)
	require.Equal(w.t, p.sent[i][1]+int64(p.lens[i])-1, a.Last)
	w.wait(a, AppendOptions{})
}

func (w *world) transactional(p *writer) {
	if !p.inTxn || w.rng.IntN(2) == 0 {
		w.send(p, true)
		p.inTxn = true
		return
	}
	if w.rng.IntN(4) == 0 {
		p.coordinator++
	}
	var b protocol.BatchBuilder
	batch, err := b.AppendEndTxnMarker(nil, protocol.EndTxnMarker{
		ProducerID: p.id, ProducerEpoch: p.epoch, Commit: w.rng.IntN(2) == 0, CoordinatorEpoch: p.coordinator,
	}, w.nowMs)
	require.NoError(w.t, err)
	w.append(batch, AppendOptions{Internal: true})
	p.inTxn = false
}

func (w *world) deleteRecords() {
	b := w.l.Bounds()
	to := b.Start + w.rng.Int64N(b.HighWatermark-b.Start+1)
	start, err := w.l.DeleteRecords(to)
	require.NoError(w.t, err)
	require.Equal(w.t, to, start)
	require.Equal(w.t, to, w.l.Bounds().Start)
}

// readSome reads from a random visible offset and compares.
func (w *world) readSome() {
	b := w.l.Bounds()
	from := b.Start + w.rng.Int64N(b.HighWatermark-b.Start+1)
	r, err := w.l.Read(nil, from, ReadOptions{MaxBytes: w.rng.IntN(2000), UpTo: b.HighWatermark, MinOne: w.rng.IntN(2) == 0})
	require.NoError(w.t, err)
	if w.o.Config.Compact {
		return // compared as a whole, record by record
	}
	var want []byte
	for _, x := range w.truth.below(r.Next).batches {
		if x.h.NextOffset() > from {
			want = append(want, x.bytes...)
		}
	}
	require.True(w.t, bytes.Equal(want, r.Data), "read from %d", from)
}
