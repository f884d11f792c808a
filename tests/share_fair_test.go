package tests

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// fairShare is a group on a topic of one partition. Its members send one heartbeat each,
// the one that they join with, so that nothing that happens waits for another.
type fairShare struct {
	*shareBroker
	mode    string
	topicID [16]byte
	keys    map[int64]string // by offset
}

func newFairShare(t *testing.T, mode string) *fairShare {
	f := &fairShare{shareBroker: startShareBroker(t, nil), mode: mode, keys: make(map[int64]string)}
	conn := dial(t, f.b.Addr())
	require.NoError(t, conn.CreateTopic("t", 1, nil))
	var err error
	f.topicID, err = conn.MakeTopic("t")
	require.NoError(t, err)
	f.configure("g", map[string]string{"share.auto.offset.reset": "earliest", "share.delivery.mode": mode, "share.record.lock.duration.ms": "60000"})
	return f
}

// fill appends records with these keys, of which it makes batches of a hundred.
func (f *fairShare) fill(n int, key func(i int) string) {
	conn := dial(f.t, f.b.Addr())
	for at := 0; at < n; at += 100 {
		var b protocol.BatchBuilder
		b.Reset(protocol.PlainBatch(0))
		for i := at; i < min(at+100, n); i++ {
			b.Append([]byte(key(i)), []byte("value"), nil, 1)
		}
		batch, err := b.Build(nil)
		require.NoError(f.t, err)
		resp, err := conn.Do(wire.ProduceRequest("t", 0, -1, batch))
		require.NoError(f.t, err)
		base, err := wire.ProducedAt(resp)
		require.NoError(f.t, err)
		for i := at; i < min(at+100, n); i++ {
			f.keys[base+int64(i-at)] = key(i)
		}
	}
}

// fairMember is a member of the group, with its connection.
type fairMember struct {
	*wire.ShareMember
	f    *fairShare
	conn *wire.Conn
	got  []wire.Acked // and not yet accepted
	n    int          // records that it got
	// fetches is how many got some.
	fetches int
}

func (f *fairShare) join(id string) *fairMember {
	m := &fairMember{f: f, conn: dial(f.t, f.b.Addr())}
	m.ShareMember = &wire.ShareMember{Group: "g", ID: id, Topic: "t", TopicID: f.topicID, Partitions: 1}
	require.NoError(f.t, m.Heartbeat(m.conn))
	return m
}

// fetch accepts what the member has, and gets more; nothing once its connection is cut.
func (m *fairMember) fetch(most int32) (offsets []int64) {
	if m.send(most) != nil {
		return nil
	}
	return m.receive()
}

// send is the first half of fetch.
func (m *fairMember) send(most int32) error {
	return m.SendFetch(m.conn, &wire.ShareFetch{MaxRecords: most, MaxBytes: 1 << 20, MaxWaitMs: int32(time.Hour.Milliseconds()), Acked: m.got})
}

func (m *fairMember) receive() (offsets []int64) {
	answer, err := m.ReceiveFetch(m.conn)
	if err != nil {
		return nil
	}
	m.got = m.got[:0]
	for i := range answer.Records {
		offset := answer.Records[i].Offset
		offsets = append(offsets, offset)
		if n := len(m.got); n > 0 && m.got[n-1].Last+1 == offset {
			m.got[n-1].Last++
		} else {
			m.got = append(m.got, wire.Acked{First: offset, Last: offset, Type: ackAccept})
		}
	}
	m.n += len(offsets)
	m.fetches++
	return offsets
}

// pace keeps members equal, whatever the machine does to them: none is more than ahead
// records before any other when it fetches.
type pace struct {
	ahead int
	mu    sync.Mutex
	moved *sync.Cond
	got   map[*fairMember]int
	over  bool
}

func newPace(members []*fairMember, ahead int) *pace {
	p := &pace{ahead: ahead, got: make(map[*fairMember]int)}
	p.moved = sync.NewCond(&p.mu)
	for _, m := range members {
		p.got[m] = 0
	}
	return p
}

// keep notes what a member got, and returns when it may fetch again.
func (p *pace) keep(m *fairMember, records int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got[m] += records
	p.moved.Broadcast()
	for !p.over && p.got[m] > slices.Min(slices.Collect(maps.Values(p.got)))+p.ahead {
		p.moved.Wait()
	}
}

func (p *pace) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.moved.Broadcast()
}

// work works until so many records in all have come, and then cuts all connections. Without
// a pace each member goes as fast as it can.
func (f *fairShare) work(members []*fairMember, all int, pace *pace) (offsets []int64) {
	var done atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	cut := func() {
		pace.end()
		for _, m := range members {
			m.conn.Close()
		}
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), 30*time.Second)
	defer cancel()
	defer context.AfterFunc(ctx, cut)()
	for _, m := range members {
		wg.Go(func() {
			for {
				got := m.fetch(100)
				come := done.Add(int64(len(got)))
				if got == nil || come > int64(all) {
					return // what a connection held that was cut before this one
				}
				mu.Lock()
				offsets = append(offsets, got...)
				mu.Unlock()
				if come == int64(all) {
					cut()
				}
				pace.keep(m, len(got))
			}
		})
	}
	wg.Wait()
	require.NoError(f.t, ctx.Err(), "%d of %d records have come", len(offsets), all)
	slices.Sort(offsets)
	return offsets
}

func (f *fairShare) members(n int) (members []*fairMember) {
	for i := range n {
		members = append(members, f.join(fmt.Sprint("m", i)))
	}
	return members
}

// assignment is the buckets of members that joined in this order.
func assignment(t *testing.T, ids ...string) (keyfilter.Assignment, keyfilter.Line) {
	line, err := keyfilter.NewLine(1)
	require.NoError(t, err)
	a, err := keyfilter.NewAssignment(16, keyfilter.MaxBuckets(16, line))
	require.NoError(t, err)
	for _, id := range ids {
		a = a.Join(id)
	}
	return a, line
}

// holder is the member whose bucket a key is in.
func holder(a keyfilter.Assignment, line keyfilter.Line, key string) string {
	slot := uint16(keyfilter.Hash([]byte(key), 0) >> 48)
	return a.Holder(a.Buckets().At(line.Point(0, slot), line))
}

// Of many records with uniform keys, equal workers get equal shares; in key-range, as the
// slots are divided that they hold.
func TestFairShares(t *testing.T) {
	const workers = 16
	records := scaled(20_000, 100_000)
	for _, mode := range shareModes {
		t.Run(mode, func(t *testing.T) {
			f := newFairShare(t, mode)
			f.fill(records, func(i int) string { return fmt.Sprint("key-", i) })
			members := f.members(workers)
			var equal *pace
			if mode != "key-range" { // there they have as much to do as their slots have
				equal = newPace(members, 150)
			}
			offsets := f.work(members, records, equal)
			require.Len(t, slices.Compact(offsets), records, "each came once")
			f.checkShares(members)
		})
	}
}

// checkShares looks whether each member got its share of what came: in key-range exactly
// what is in the slots that it holds.
func (f *fairShare) checkShares(members []*fairMember) {
	all := 0
	for _, m := range members {
		all += m.n
	}
	want, within := make(map[string]int), 0.2
	var ids []string
	for _, m := range members {
		want[m.ID] = all / len(members)
		ids = append(ids, m.ID)
	}
	if f.mode == "key-range" {
		clear(want)
		within = 0
		a, line := assignment(f.t, ids...)
		for _, key := range f.keys {
			want[holder(a, line, key)]++
		}
	}
	for _, m := range members {
		require.InDelta(f.t, want[m.ID], m.n, within*float64(want[m.ID]), m.ID)
	}
}

// Members that never rest get as much with each fetch as others. What makes their shares
// differ is how often they come to fetch, which is not the broker's to say; in key-range
// not even that does.
func TestFlatOutShares(t *testing.T) {
	const workers, most = 16, 100
	records := scaled(10_000, 100_000)
	for _, mode := range shareModes {
		t.Run(mode, func(t *testing.T) {
			f := newFairShare(t, mode)
			f.fill(records, func(i int) string { return fmt.Sprint("key-", i) })
			members := f.members(workers)
			offsets := f.work(members, records, nil)
			require.Len(t, slices.Compact(offsets), records, "each came once")
			var each []int
			for _, m := range members {
				each = append(each, m.fetches)
			}
			t.Logf("fetches of each: %v", each)
			if mode == "key-range" {
				f.checkShares(members)
				return
			}
			average := float64(records) / float64(sum(each))
			for _, m := range members {
				require.InDelta(t, average, float64(m.n)/float64(m.fetches), 0.2*average, "%s, records with each fetch", m.ID)
			}
		})
	}
}

func sum(all []int) (n int) {
	for _, x := range all {
		n += x
	}
	return n
}

// Members that fetch equally often, all at the same time, get equal shares.
func TestSharesInStep(t *testing.T) {
	const workers, most = 16, 100
	records := scaled(10_000, 100_000)
	for _, mode := range shareModes[:2] { // in key-range each has its own
		t.Run(mode, func(t *testing.T) {
			f := newFairShare(t, mode)
			f.fill(records, func(i int) string { return fmt.Sprint("key-", i) })
			members := f.members(workers)
			for left := records; left >= workers*most; {
				for _, m := range members {
					require.NoError(t, m.send(most))
				}
				for _, m := range members {
					left -= len(m.receive())
				}
			}
			f.checkShares(members)
		})
	}
}

// A worker that stalls delays what it holds; in the ordered modes, what comes behind that
// of its keys, and what is in its buckets.
func TestStalledWorker(t *testing.T) {
	const records, keys = 5000, 500
	for _, mode := range shareModes {
		t.Run(mode, func(t *testing.T) {
			f := newFairShare(t, mode)
			members := f.members(4)
			f.fill(records, func(i int) string { return fmt.Sprint("key-", i%keys) })
			held := members[0].fetch(50)
			require.NotEmpty(t, held)
			heldKeys := make(map[string]bool)
			for _, offset := range held {
				heldKeys[f.keys[offset]] = true
			}
			a, line := assignment(t, "m0", "m1", "m2", "m3")
			want := []int64{}
			for _, offset := range slices.Sorted(maps.Keys(f.keys)) {
				switch {
				case slices.Contains(held, offset):
				case mode == "key-ordered" && heldKeys[f.keys[offset]]:
				case mode == "key-range" && holder(a, line, f.keys[offset]) == "m0":
				default:
					want = append(want, offset)
				}
			}
			require.Equal(t, want, f.work(members[1:], len(want), nil))
		})
	}
}

// A member gets records with its first fetch, of what is new and of what was waiting for
// others before it came. Nobody sends another heartbeat.
func TestFirstRecords(t *testing.T) {
	for _, mode := range shareModes {
		for _, backlog := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/backlog=%v", mode, backlog), func(t *testing.T) {
				f := newFairShare(t, mode)
				others := f.members(20)
				key := func(i int) string { return fmt.Sprint("key-", i) }
				if backlog {
					f.fill(1000, key)
					// Of a member of whose bucket the new one does not get a half.
					require.NotEmpty(t, others[0].fetch(10))
				}
				begun := time.Now()
				m := f.join("new")
				first := make(chan []int64, 1)
				go func() { first <- m.fetch(10) }()
				if !backlog {
					f.fill(1000, key)
				}
				select {
				case got := <-first:
					require.NotEmpty(t, got)
				case <-time.After(10 * time.Second):
					require.Fail(t, "the new member gets nothing")
				}
				t.Logf("after %v", time.Since(begun))
			})
		}
	}
}
