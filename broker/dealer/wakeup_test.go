package dealer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/broker/share"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/protocol"
)

// bubble runs a test over a rig whose time passes only while everything waits.
func bubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newRig(t)) })
}

// held has a member take all there is of n records, so that another's fetch waits.
func held(r *rig, n int) (waiting *pending) {
	r.t.Helper()
	r.produceN(n)
	r.groups.join("a", "b")
	require.Equal(r.t, upTo(int64(n)), r.fetch("a", n))
	waiting = r.begin(query("b", max(n, 2)))
	synctest.Wait()
	waiting.waits()
	return waiting
}

// Whatever makes a record deliverable wakes the fetch that it can serve. Fetches wait for
// an hour, so that time tells.
func TestWakeUps(t *testing.T) {
	all := individualcommit.Request{Offset: individualcommit.NoOffset}
	for name, test := range map[string]func(t *testing.T, r *rig){
		"append": func(_ *testing.T, r *rig) {
			f := held(r, 4)
			r.produceN(2)
			require.Equal(r.t, []int64{4, 5}, f.offsets())
		},
		"release": func(_ *testing.T, r *rig) {
			f := held(r, 4)
			r.mustAck("a", cooperative.Release, 1, 3)
			require.Equal(r.t, []int64{1, 2}, f.offsets())
		},
		"room": func(_ *testing.T, r *rig) {
			r.change(func(s *Settings) { s.Limits.Acquired = 4 })
			f := held(r, 4)
			r.produceN(4)
			synctest.Wait()
			f.waits()
			r.mustAck("a", cooperative.Accept, 3, 4)
			require.Equal(r.t, []int64{4}, f.offsets())
		},
		"limit raised": func(_ *testing.T, r *rig) {
			r.change(func(s *Settings) { s.Limits.Acquired = 4 })
			f := held(r, 4)
			r.produceN(4)
			synctest.Wait()
			f.waits()
			r.change(func(s *Settings) { s.Limits.Acquired = 6 })
			require.Equal(r.t, []int64{4, 5}, f.offsets())
		},
		"member gone": func(_ *testing.T, r *rig) {
			f := held(r, 4)
			r.groups.leave("a")
			require.Equal(r.t, upTo(4), f.offsets())
		},
		"session closed": func(_ *testing.T, r *rig) {
			f := held(r, 4)
			r.d.EndSession("g", "a", true)
			require.Equal(r.t, upTo(4), f.offsets())
		},
		"connection lost": func(_ *testing.T, r *rig) {
			f := held(r, 4)
			r.d.EndSession("g", "a", false)
			require.Equal(r.t, upTo(4), f.offsets())
		},
		"key done": func(_ *testing.T, r *rig) {
			r.groups.mode(share.KeyOrdered)
			r.produce("k", "k", "k")
			r.groups.join("a", "b")
			require.Equal(r.t, []int64{0}, r.fetch("a", 1))
			f := r.begin(query("b", 3))
			synctest.Wait()
			f.waits()
			r.mustAck("a", cooperative.Accept, 0, 1)
			require.Equal(r.t, []int64{1, 2}, f.offsets())
		},
		"mode changed": func(_ *testing.T, r *rig) {
			r.groups.mode(share.KeyOrdered)
			r.produce("k", "k", "k")
			r.groups.join("a", "b")
			require.Equal(r.t, []int64{0}, r.fetch("a", 1))
			f := r.begin(query("b", 3))
			r.groups.mode(share.RoundRobin)
			synctest.Wait()
			f.waits() // until nothing is acquired
			r.mustAck("a", cooperative.Accept, 0, 1)
			require.Equal(r.t, []int64{1, 2}, f.offsets())
		},
		"reopened": func(_ *testing.T, r *rig) {
			f := held(r, 4)
			r.mustAck("a", cooperative.Accept, 0, 4)
			all.Reopen = []individualcommit.Run{{Start: 1, End: 3}}
			r.commit(all)
			require.Equal(r.t, []int64{1, 2}, f.offsets())
		},
		"reopened with an order": func(_ *testing.T, r *rig) {
			r.groups.mode(share.KeyOrdered)
			r.produce("x", "k", "k", "y")
			r.groups.join("a", "b")
			require.Equal(r.t, upTo(4), r.fetch("a", 4))
			f := r.begin(query("b", 4))
			r.mustAck("a", cooperative.Accept, 0, 4)
			all.Reopen = []individualcommit.Run{{Start: 1, End: 3}}
			r.commit(all)
			require.Equal(r.t, []int64{1, 2}, f.offsets())
		},
		"offsets set": func(_ *testing.T, r *rig) {
			f := held(r, 4)
			r.commit(individualcommit.Request{Offset: 2})
			require.Equal(r.t, []int64{2, 3}, f.offsets())
			require.Error(r.t, r.ack("a", cooperative.Accept, 3, 4), "what it had is not its own any more")
		},
		"bucket moved": func(t *testing.T, r *rig) {
			r.groups.settings.KeyRangeInitial = 1
			r.groups.mode(share.KeyRange)
			r.groups.join("a", "b")
			r.produce("k")
			fa, fb := r.begin(query("a", 1)), r.begin(query("b", 1))
			synctest.Wait()
			served, waiting, member, other := fa, fb, "a", "b"
			select {
			case <-fb.done:
				served, waiting, member, other = fb, fa, "b", "a"
			default:
			}
			require.Equal(t, []int64{0}, served.offsets())
			waiting.waits()
			r.groups.leave(member)
			require.Equal(t, []int64{0}, waiting.offsets(), "%s, of what %s had", other, member)
		},
		"transaction ended": func(t *testing.T, r *rig) {
			r.change(func(s *Settings) { s.ReadCommitted = true })
			f := held(r, 1)
			r.produceAs(protocol.BatchOptions{Transactional: true, ProducerID: 7}, "", "")
			synctest.Wait()
			f.waits()
			r.endTransaction(7, true)
			require.Equal(t, []int64{1, 2}, f.offsets())
		},
		"isolation changed": func(t *testing.T, r *rig) {
			r.change(func(s *Settings) { s.ReadCommitted = true })
			f := held(r, 1)
			r.produceAs(protocol.BatchOptions{Transactional: true, ProducerID: 7}, "", "")
			synctest.Wait()
			f.waits()
			r.change(func(s *Settings) { s.ReadCommitted = false })
			synctest.Wait()
			f.waits() // until nothing is acquired
			r.mustAck("a", cooperative.Accept, 0, 1)
			require.Equal(t, []int64{1, 2}, f.offsets())
		},
		"log start": func(t *testing.T, r *rig) {
			r.change(func(s *Settings) { s.Limits.Acquired = 4 })
			f := held(r, 4)
			r.produceN(4)
			log, err := r.Data(tp)
			require.NoError(t, err)
			_, err = log.DeleteRecords(3)
			require.NoError(t, err)
			require.Equal(t, []int64{4, 5, 6}, f.offsets(), "what is gone is not acquired any more")
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				begun := time.Now()
				test(t, r)
				require.Less(t, time.Since(begun), 2*time.Second)
			})
		})
	}
}

func (r *rig) endTransaction(producer int64, committed bool) {
	r.t.Helper()
	var b protocol.BatchBuilder
	marker, err := b.AppendEndTxnMarker(nil, protocol.EndTxnMarker{ProducerID: producer, Commit: committed}, 1)
	require.NoError(r.t, err)
	r.append(marker)
}

func TestLocksRunOut(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		f := held(r, 2)
		begun := time.Now()
		require.Equal(t, upTo(2), f.offsets())
		require.Equal(t, lockMs*time.Millisecond, time.Since(begun))
		require.Error(t, r.ack("a", cooperative.Accept, 0, 2))
		r.mustAck("b", cooperative.Accept, 0, 2)
	})
}

func TestRenewedLocksRunOutLater(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		f := held(r, 2)
		begun := time.Now()
		time.Sleep(lockMs / 2 * time.Millisecond)
		r.mustAck("a", cooperative.Renew, 0, 2)
		require.Equal(t, upTo(2), f.offsets())
		require.Equal(t, lockMs*3/2*time.Millisecond, time.Since(begun))
	})
}

func TestReleasedRecordsRest(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.change(func(s *Settings) { s.Limits.BackoffMs = 1000 })
		f := held(r, 1)
		for n, member := range []string{"a", "b"} {
			begun := time.Now()
			r.mustAck(member, cooperative.Release, 0, 1)
			require.Equal(t, []int64{0}, f.offsets())
			require.Equal(t, time.Second<<n, time.Since(begun))
			f = r.begin(query("a", 1))
		}
	})
}

// A lock runs out while nobody asks for anything: the record is there for who comes.
func TestLocksRunOutWithoutTraffic(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.produceN(1)
		r.groups.join("a", "b")
		r.fetch("a", 1)
		time.Sleep(lockMs * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []int16{2}, r.counts("b", 1))
	})
}

func TestMaxWait(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.groups.join("a")
		begun := time.Now()
		q := query("a", 1)
		q.MaxWait = 500 * time.Millisecond
		require.Empty(t, r.begin(q).offsets())
		require.Equal(t, q.MaxWait, time.Since(begun))
	})
}

// What an aborted transaction wrote is never dealt, and holds nothing up.
func TestReadCommitted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.change(func(s *Settings) { s.ReadCommitted = true })
		r.produceAs(protocol.BatchOptions{Transactional: true, ProducerID: 7}, "", "") // 0, 1
		r.produceAs(protocol.BatchOptions{Transactional: true, ProducerID: 8}, "", "") // 2, 3
		r.endTransaction(7, false)                                                     // 4
		r.produceN(1)                                                                  // 5
		r.endTransaction(8, true)                                                      // 6
		r.groups.join("a")
		require.Equal(t, []int64{2, 3, 5}, r.fetch("a", 10))
		r.mustAck("a", cooperative.Accept, 2, 4)
		r.mustAck("a", cooperative.Accept, 5, 6)
		synctest.Wait()
		require.EqualValues(t, 7, r.stable())
	})
}

// Records that compaction takes after they were dealt, and before they are read again, end
// the same way.
func TestCompacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.config.Delete, r.config.Compact, r.config.SegmentMs = false, true, 1
		for _, key := range []string{"x", "k", "y", "k", "k", "z"} {
			r.produce(key)
			time.Sleep(2 * time.Millisecond)
		}
		log := r.log()
		r.groups.join("a", "b")
		require.Equal(t, upTo(6), r.fetch("a", 6))
		time.Sleep(time.Minute)
		require.NoError(t, log.Roll(time.Now()))
		_, err := log.Clean(time.Now())
		require.NoError(t, err)
		read, err := log.Read(nil, 1, commitlog.ReadOptions{MaxBytes: 1 << 20, UpTo: 6, MinOne: true})
		require.NoError(t, err)
		require.NotContains(t, offsetsOf(t, read.Data), int64(1), "compaction has left all")
		r.groups.mode(share.KeyOrdered)
		r.d.EndSession("g", "a", true)
		got := r.fetch("b", 6)
		require.Equal(t, offsetsOf(t, read.Data), got[1:])
		r.mustAck("b", cooperative.Accept, 0, 1)
		for _, x := range got[1:] {
			r.mustAck("b", cooperative.Accept, x, x+1)
		}
		synctest.Wait()
		require.EqualValues(t, 6, r.stable())
	})
}

func offsetsOf(t testing.TB, batches []byte) (offsets []int64) {
	for len(batches) > 0 {
		h, err := protocol.ParseBatchHeader(batches)
		require.NoError(t, err)
		var codec protocol.Decompressor
		records, err := codec.Records(&h, batches[:h.Size()], 1<<20)
		require.NoError(t, err)
		it := protocol.IterateRecords(&h, records)
		for it.Next() {
			offsets = append(offsets, it.Record().Offset)
		}
		require.NoError(t, it.Err())
		batches = batches[h.Size():]
	}
	return offsets
}

// An operator may set the group's offset past the end of the log. Records that come below it
// are dealt all the same, with a filter and without.
func TestRecordsBelowAnOffsetThatWasSetPastTheEnd(t *testing.T) {
	field := protocol.KeyFilter{Keys: [][]byte{[]byte("k")}}
	ofKey, err := NewFilter(field.AppendTo(nil))
	require.NoError(t, err)
	for name, filter := range map[string]*Filter{"any record": nil, "records of a key": ofKey} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.produce("k", "k")
				r.groups.join("a")
				require.Equal(t, []int64{0, 1}, r.fetch("a", 10))
				r.mustAck("a", cooperative.Accept, 0, 2)
				r.groups.leave("a")
				r.commit(individualcommit.Request{Offset: 100})
				r.produce("k", "k")
				r.groups.join("a")
				q := query("a", 10)
				q.Filter = filter
				require.Equal(t, []int64{2, 3}, r.begin(q).offsets())
			})
		})
	}
}
