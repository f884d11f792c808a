package dealer

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/ledgers"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/protocol"
)

func query(member string, most int) *Query {
	return &Query{Group: "g", Member: member, Partitions: []extension.TopicPartition{tp}, MaxRecords: most, MaxBytes: 1 << 20, MaxWait: patience}
}

// pending is a fetch that waits.
type pending struct {
	r     *rig
	q     *Query
	stop  context.CancelFunc
	done  chan struct{}
	dealt []Dealt
	err   error
}

// begin begins a fetch of a member.
func (r *rig) begin(q *Query) *pending {
	fetching, stop := context.WithCancel(ctx)
	f := &pending{r: r, q: q, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		defer stop()
		f.dealt, f.err = r.d.Fetch(fetching, q)
	}()
	r.t.Cleanup(func() { f.stop(); <-f.done })
	return f
}

// offsets are the offsets that the fetch got of its first partition, once it has ended.
func (f *pending) offsets() []int64 {
	f.r.t.Helper()
	<-f.done
	require.NoError(f.r.t, f.err)
	require.NoError(f.r.t, f.dealt[0].Err)
	var all []int64
	for _, d := range f.dealt[0].Deliveries {
		for x := d.Start; x < d.End; x++ {
			all = append(all, x)
		}
	}
	return all
}

func (f *pending) waits() {
	f.r.t.Helper()
	select {
	case <-f.done:
		require.Fail(f.r.t, "the fetch does not wait", "it got %+v, %v", f.dealt, f.err)
	default:
	}
}

// fetch is a fetch that gets something.
func (r *rig) fetch(member string, most int) []int64 {
	r.t.Helper()
	return r.begin(query(member, most)).offsets()
}

// counts are the delivery counts of what a fetch gets.
func (r *rig) counts(member string, most int) (counts []int16) {
	r.t.Helper()
	f := r.begin(query(member, most))
	f.offsets()
	for _, d := range f.dealt[0].Deliveries {
		for range d.End - d.Start {
			counts = append(counts, d.Count)
		}
	}
	return counts
}

// ack acknowledges offsets [start, end), and waits until that is durable.
func (r *rig) ack(member string, kind cooperative.AckType, start, end int64) error {
	a := r.d.BeginAcknowledge("g", member, tp, []cooperative.Ack{{Run: individualcommit.Run{Start: start, End: end}, Type: kind}})
	return a.Wait(ctx)
}

func (r *rig) mustAck(member string, kind cooperative.AckType, start, end int64) {
	r.t.Helper()
	require.NoError(r.t, r.ack(member, kind, start, end))
}

// commit changes a ledger as an operator does.
func (r *rig) commit(change individualcommit.Request) {
	r.t.Helper()
	p := ledgers.PartitionCommit{TopicPartition: tp, Individual: true, Origin: protocol.NoOrigin, Request: change}
	if change.Offset != individualcommit.NoOffset {
		p.Individual = false
	}
	results := r.ledgers.Begin(ctx, &extension.Member{Group: "g", Generation: -1, Operator: true}, []ledgers.PartitionCommit{p}).Wait(ctx)
	require.NoError(r.t, results[0].Err)
}

// stable is how far everything is committed.
func (r *rig) stable() int64 {
	r.t.Helper()
	views, err := r.ledgers.Fetch(ctx, "g", []extension.TopicPartition{tp}, nil)
	require.NoError(r.t, err)
	return views[0].Offset
}

func upTo(n int64) (all []int64) { return between(0, n) }

func between(from, to int64) (all []int64) {
	for x := from; x < to; x++ {
		all = append(all, x)
	}
	return all
}

// records are the batches of what the fetch got of its first partition.
func (f *pending) records() []byte {
	f.r.t.Helper()
	data, err := f.dealt[0].AppendRecords(nil, f.q.MaxBytes, true, f.r.d.opts.Decode)
	require.NoError(f.r.t, err)
	return data
}
