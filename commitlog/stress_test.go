package commitlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// TestEverythingAtOnce runs producers, readers, long polls, retention, compaction,
// rolling and deletion on one log together. Each reader sees offsets that only rise and
// whole batches; everything that was answered and not deleted is there at the end.
func TestEverythingAtOnce(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Now = nil
	o.Config.SegmentBytes = 4000
	o.Config.Compact, o.Config.MinCleanableRatio = true, 0.3
	o.Config.DeleteRetentionMs = 5
	o.checkpointBytes = 1000
	l := openTest(t, o)

	const producers, batches = 4, 150
	var writers, others sync.WaitGroup
	stop := make(chan struct{})
	for id := range producers {
		writers.Go(func() { produceMany(t, l, int64(id), batches) })
	}
	for range 2 {
		others.Go(func() { followLog(t, l, stop) })
	}
	others.Go(func() { keepUp(t, l, stop) })
	writers.Wait()
	close(stop)
	others.Wait()
	require.NoError(t, l.CheckInvariants())
	require.Equal(t, int64(2*producers*batches), l.Bounds().HighWatermark)
	last := map[string]string{}
	for _, r := range storedTruth(t, l).records() {
		last[string(r.rec.Key)] = string(r.rec.Value)
	}
	for id := range producers {
		require.Equal(t, fmt.Sprint(batches-1), last[fmt.Sprintf("last-%d", id)])
	}
	for _, p := range l.Producers() {
		require.Equal(t, int32(2*batches-1), p.LastSequence)
	}
}

// produceMany appends batches of two records: one key of its own, one shared.
func produceMany(t *testing.T, l *Log, id int64, batches int) {
	c := &cleanTest{t: t, l: l, nowMs: time.Now().UnixMilli()}
	for i := range batches {
		o := c.txn(id, 0, int32(2*i))
		o.Transactional = false
		c.nowMs = time.Now().UnixMilli()
		c.putAs(o, fmt.Sprintf("last-%d=%d", id, i), fmt.Sprintf("shared-%d=%d", i%5, i))
	}
}

// followLog reads on and on, woken by Watch.
func followLog(t *testing.T, l *Log, stop chan struct{}) {
	ch := make(chan struct{}, 1)
	defer l.Watch(ch)()
	next := int64(0)
	for {
		b := l.Bounds()
		r, err := l.Read(nil, next, ReadOptions{MaxBytes: 3000, UpTo: b.LSO, MinOne: true})
		switch {
		case errors.Is(err, ErrOffsetOutOfRange):
			next = l.Bounds().Start
			continue
		case err != nil:
			t.Error(err)
			return
		case r.Next < next:
			t.Errorf("read on from %d leads to %d", next, r.Next)
			return
		case r.Next > next:
			checkStored(t, r.Data)
			next = r.Next
			continue
		}
		select {
		case <-ch:
		case <-stop:
			return
		}
	}
}

// keepUp does what the broker does in the background, all the time.
func keepUp(t *testing.T, l *Log, stop chan struct{}) {
	rng := rand.New(rand.NewPCG(1, 2))
	for {
		select {
		case <-stop:
			return
		default:
		}
		var err error
		switch rng.IntN(6) {
		case 0:
			err = l.ApplyRetention(time.Now())
		case 1, 2:
			_, err = l.Clean(time.Now())
		case 3:
			err = l.Seal()
		case 4:
			_, _, err = l.OffsetForTimestamp(time.Now().UnixMilli() - rng.Int64N(50))
		case 5:
			if b := l.Bounds(); b.Start < 200 { // every producer's last batch is above
				_, err = l.DeleteRecords(b.Start + min(b.HighWatermark-b.Start, 5))
			}
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}

// TestCloseWhileBusy: a log can be closed under producers and a compaction; nobody
// hangs, and what was answered is there.
func TestCloseWhileBusy(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Now = nil
	o.Config.SegmentBytes = 1000
	o.Config.Compact, o.Config.MinCleanableRatio = true, 0
	l := openTest(t, o)
	var wg sync.WaitGroup
	var mu sync.Mutex
	answered := int64(0)
	begun := make(chan struct{}, 1)
	for range 3 {
		wg.Go(func() {
			for {
				a, err := l.Append(plainBatch(t, 2, "value", 1), AppendOptions{})
				if err != nil {
					require.ErrorIs(t, err, ErrClosed)
					return
				}
				<-a.Flush.Done()
				if a.Flush.Err() == nil {
					mu.Lock()
					answered = max(answered, a.Last+1)
					mu.Unlock()
				}
				select {
				case begun <- struct{}{}:
				default:
				}
			}
		})
	}
	wg.Go(func() {
		for {
			if _, err := l.Clean(time.Now()); err != nil {
				require.ErrorIs(t, err, ErrClosed)
				return
			}
		}
	})
	for range 20 {
		<-begun
	}
	require.NoError(t, l.Close())
	wg.Wait()
	l = openTest(t, o)
	require.Equal(t, Recovery{End: l.Bounds().End}, l.Recovery())
	require.GreaterOrEqual(t, l.Bounds().End, answered)
	require.NoError(t, l.CheckInvariants())
}
