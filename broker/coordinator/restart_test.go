package coordinator

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

var oneBatch = commitlog.ReadOptions{MaxBytes: 1, UpTo: 1 << 62, MinOne: true}

// fullLog refuses appends while its disk is full.
type fullLog struct {
	journal.Log
	full atomic.Bool
}

func (l *fullLog) Append(batch []byte, o commitlog.AppendOptions) (commitlog.Appended, error) {
	if l.full.Load() {
		return commitlog.Appended{}, commitlog.ErrNoSpace
	}
	return l.Log.Append(batch, o)
}

// restartShards makes a new coordinator over the same logs.
func (r *rig) restartShards() {
	opts := r.c.opts
	require.NoError(r.t, r.c.Close(context.Background()))
	r.c = Open(opts)
}

func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.stop()
		member := r.lead("g", "a")
		require.NoError(t, r.commit("simple", 7))
		r.restart()

		r.requireCommitted("simple", 7)
		require.NoError(t, r.heartbeat("g", member))
		d, found, err := r.c.Describe(context.Background(), "g")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, group.Stable, d.State)

		// A member that does not come back is missed, although nobody asks for its group.
		r.restart()
		require.NoError(t, r.c.Load(context.Background()))
		pass(11 * time.Second)
		synctest.Wait()
		list, err := r.c.List(context.Background(), group.Filter{States: []string{"empty"}})
		require.NoError(t, err)
		require.Len(t, list, 2)
	})
}

// TestViews holds that a start reads the views, and of the log only what came after them.
func TestViews(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	for i := range 20 {
		require.NoError(t, r.commit("g", int64(i)))
	}
	require.NoError(t, r.c.Checkpoint(ctx))
	require.NoError(t, r.c.Checkpoint(ctx), "nothing to do")
	require.NoError(t, r.commit("g", 100))
	part, err := r.Open(PartitionFor("g", rigPartitions))
	require.NoError(t, err)
	at, ok, err := part.View.Applied(part.Source)
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 20, at)

	r.restart() // a clean stop writes the rest
	part, err = r.Open(PartitionFor("g", rigPartitions))
	require.NoError(t, err)
	at, _, err = part.View.Applied(part.Source)
	require.NoError(t, err)
	require.EqualValues(t, 21, at)
	r.requireCommitted("g", 100)

	// Of a log made anew the view knows nothing.
	r.Age++
	require.NoError(t, r.Disk.RemoveAll(r.Dir(PartitionFor("g", rigPartitions))))
	r.stopKeepingNothing()
	r.start()
	r.requireCommitted("g", -1)
	require.NoError(t, r.commit("g", 3))
	r.restart()
	r.requireCommitted("g", 3)
}

// stopKeepingNothing is a stop whose logs are removed.
func (r *rig) stopKeepingNothing() {
	require.NoError(r.t, r.c.Close(context.Background()))
	_ = r.CloseLogs()
	for p := range int32(rigPartitions) {
		require.NoError(r.t, r.Disk.RemoveAll(r.Dir(p)))
	}
	require.NoError(r.t, r.DB.Close())
}

// TestViewKeepsForeignRecords holds that records of other kinds of groups pass through
// the view unharmed, and that a record which can't be read harms nothing else.
func TestViewKeepsForeignRecords(t *testing.T) {
	r := newRig(t, nil)
	require.NoError(t, r.commit("g", 1))
	p := PartitionFor("g", rigPartitions)
	foreign := journal.Record{Key: []byte("\x00\x03\x00\x01g"), Value: []byte("of a later version")}
	broken := journal.Record{Key: []byte("\x00\x01\x00\xffg"), Value: []byte("?")}
	r.restart()
	part, err := r.Open(p)
	require.NoError(t, err)
	receipt, err := journal.Open(part.Log, "another").Append([]journal.Record{foreign, broken})
	require.NoError(t, err)
	require.NoError(t, receipt.Wait(context.Background()))
	r.requireCommitted("g", 1)
	require.NoError(t, r.commit("g", 2))
	r.restart()
	r.requireCommitted("g", 2)
	part, err = r.Open(p)
	require.NoError(t, err)
	var found bool
	require.NoError(t, part.View.Scan(foreign.Key, func(key, value []byte) error {
		found = bytes.Equal(key, foreign.Key) && bytes.Equal(value, foreign.Value)
		return nil
	}))
	require.True(t, found)
}

func TestIdleShardsCostNothing(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	list, err := r.c.List(ctx, group.Filter{})
	require.NoError(t, err)
	require.Empty(t, list)
	_, found, err := r.c.Describe(ctx, "nobody")
	require.NoError(t, err)
	require.False(t, found)
	r.requireCommitted("nobody", -1)
	require.ErrorIs(t, r.c.Delete(ctx, "nobody", nil), kerr.GroupIDNotFound)
	require.Empty(t, r.Opened, "reading opens nothing that was never written")
	require.NoError(t, r.commit("g", 1))
	require.Equal(t, map[int32]int{PartitionFor("g", rigPartitions): 1}, r.Opened)
	require.NoError(t, r.c.Checkpoint(ctx))
	require.Equal(t, map[int32]int{PartitionFor("g", rigPartitions): 1}, r.Opened)
	for _, s := range r.c.shards {
		s.mu.Lock()
		require.Nil(t, s.mu.timer)
		s.mu.Unlock()
	}
}

func TestCloseTellsThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.stop()
		r.lead("g", "a")
		parked := outcome(func() (group.JoinAnswer, error) { return r.join("g", "b", "") })
		synctest.Wait()
		requireWaits(t, parked)
		c := r.c
		require.NoError(t, c.Close(context.Background()))
		require.ErrorIs(t, (<-parked).err, ErrStopped)
		require.ErrorIs(t, r.commit("g", 1), kerr.CoordinatorNotAvailable)
	})
}

func TestOpenFails(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Written = func(int32) bool { return true } })
	inner := r.c.opts.Open
	r.c.opts.Open = func(int32) (journal.Partition, error) { return journal.Partition{}, errDisk }
	require.ErrorIs(t, r.commit("g", 1), kerr.NotCoordinator)
	require.Error(t, r.c.Load(context.Background()))
	r.c.opts.Open = inner
	require.NoError(t, r.commit("g", 1))
	r.requireCommitted("g", 1)
}

func TestPartitionFor(t *testing.T) {
	// Java's String.hashCode, of which the last but one is the least number.
	for id, hash := range map[string]int64{
		"": 0, "a": 97, "abc": 96354, "my-group": -1906497762, "\U0001F600": 1772899, "é": 233,
		"polygenelubricants": 0, "console-consumer-12345": javaHash("console-consumer-12345"),
	} {
		if hash < 0 {
			hash = -hash
		}
		require.EqualValues(t, hash%50, PartitionFor(id, 50), "%q", id)
		require.Zero(t, PartitionFor(id, 1))
	}
}

// javaHash is for strings of ASCII.
func javaHash(s string) int64 {
	h := int32(0)
	for i := range len(s) {
		h = 31*h + int32(s[i])
	}
	return int64(h)
}

func BenchmarkCommit(b *testing.B) {
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			r := newRig(b, nil)
			b.SetParallelism(clients)
			b.ReportAllocs()
			var n atomic.Int32
			b.RunParallel(func(pb *testing.PB) {
				partition := n.Add(1)
				for pb.Next() {
					if _, err := r.c.Commit(context.Background(), commitOf("g", partition, 5)); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// TestLargeTurnsAreSplit holds that what one request decides may be larger than a batch.
func TestLargeTurnsAreSplit(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	var offsets []group.PutOffset
	for p := range int32(500) {
		offsets = append(offsets, group.PutOffset{CommitOffset: group.CommitOffset{
			TopicPartition: group.TopicPartition{Topic: "t", Partition: p}, Offset: int64(p), Metadata: string(make([]byte, 4096)),
		}})
	}
	require.NoError(t, r.c.Put(ctx, "g", offsets))
	require.GreaterOrEqual(t, batches(t, r, "g"), 4)
	r.restart()
	all, err := r.c.AllCommitted(ctx, "g")
	require.NoError(t, err)
	require.Len(t, all, 500)
}

// damagedLog changes a byte in the batch at an offset.
type damagedLog struct {
	journal.Log
	at int64
}

func (l damagedLog) Read(dst []byte, from int64, o commitlog.ReadOptions) (commitlog.Read, error) {
	read, err := l.Log.Read(dst, from, o)
	if b := read.Data[len(dst):]; from <= l.at && len(b) > 0 {
		for len(b) > 0 {
			h, err := protocol.ParseBatchHeader(b)
			if err != nil {
				return read, err
			}
			if h.BaseOffset == l.at {
				b[h.Size()-1] ^= 1
			}
			b = b[h.Size():]
		}
	}
	return read, err
}

// TestDamagedBatch holds that a group falls back to what it had committed before a batch
// that can't be read, and that other batches are not touched.
func TestDamagedBatch(t *testing.T) {
	r := newRig(t, nil)
	require.NoError(t, r.commit("g", 1))
	require.NoError(t, r.commit("g", 2)) // offset 1 of the log
	require.NoError(t, r.commit("g2", 3))
	inner := r.c.opts.Open
	opts := r.c.opts
	opts.Open = func(p int32) (journal.Partition, error) {
		part, err := inner(p)
		part.View, part.Log = r.DB.View("another"), damagedLog{part.Log, 1}
		return part, err
	}
	require.NoError(t, r.c.Close(context.Background()))
	r.c = Open(opts)
	r.requireCommitted("g", 1)
	r.requireCommitted("g2", 3)
	require.NoError(t, r.commit("g", 4))
	r.requireCommitted("g", 4)
}
