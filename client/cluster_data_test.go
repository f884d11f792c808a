package client

import (
	"time"

	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fakePartition is a log in memory, a batch for each record.
type fakePartition struct {
	leader  int32
	epoch   int32
	start   int64
	records []fakeRecord // from offset start on
	aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction
}

type fakeRecord struct {
	key      []byte
	value    []byte // nil: "value"
	codec    protocol.Codec
	epoch    int32
	producer int64 // of a transaction, 0: none
	marker   bool  // ends the producer's transaction
	commit   bool
}

func newFakePartition() *fakePartition { return &fakePartition{epoch: 1} }

func (p *fakePartition) end() int64 { return p.start + int64(len(p.records)) }

func (p *fakePartition) write(r fakeRecord) {
	r.epoch = p.epoch
	p.records = append(p.records, r)
}

// abort writes a transaction of keys that is aborted.
func (p *fakePartition) abort(producer int64, keys ...string) {
	first := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
	first.ProducerID, first.FirstOffset = producer, p.end()
	p.aborted = append(p.aborted, first)
	for _, key := range keys {
		p.write(fakeRecord{key: []byte(key), producer: producer})
	}
	p.write(fakeRecord{producer: producer, marker: true})
}

// trim moves the log start.
func (p *fakePartition) trim(start int64) {
	p.records = p.records[start-p.start:]
	p.start = start
}

// truncate loses the records from end on, as a crash does, and begins a new epoch.
func (p *fakePartition) truncate(end int64) {
	p.records = p.records[:end-p.start]
	p.epoch++
}

// endOfEpoch is where the records of an epoch and those before it end.
func (p *fakePartition) endOfEpoch(epoch int32) int64 {
	for i, r := range p.records {
		if r.epoch > epoch {
			return p.start + int64(i)
		}
	}
	return p.end()
}

// batches encodes the records from an offset on that match.
func (p *fakePartition) batches(from int64, filter *keyfilter.Filter) (out []byte) {
	var b protocol.BatchBuilder
	for o := from; o < p.end(); o++ {
		r := p.records[o-p.start]
		if !r.marker && filter != nil && !filter.Match(r.key, o) {
			continue
		}
		var err error
		if r.marker {
			start := len(out)
			out, err = b.AppendEndTxnMarker(out, protocol.EndTxnMarker{ProducerID: r.producer, Commit: r.commit}, o)
			protocol.SetBaseOffset(out[start:], o)
		} else {
			options := protocol.PlainBatch(o)
			options.LeaderEpoch = r.epoch
			if r.producer != 0 {
				options.Transactional, options.ProducerID, options.ProducerEpoch = true, r.producer, 0
			}
			options.Codec = r.codec
			b.Reset(options)
			value := r.value
			if value == nil {
				value = []byte("value")
			}
			b.Append(r.key, value, nil, o)
			out, err = b.Build(out)
		}
		if err != nil {
			panic(err)
		}
	}
	return out
}

// fetch answers at once if there is something to say, else after the wait.
func (c *cluster) fetch(req *kmsg.FetchRequest) kmsg.Response {
	timeout := time.NewTimer(time.Duration(req.MaxWaitMillis) * time.Millisecond)
	defer timeout.Stop()
	for {
		c.mu.Lock()
		resp, news := c.fetchLocked(req)
		grew, down := c.grew, c.down
		c.mu.Unlock()
		if news || down {
			return resp
		}
		select {
		case <-grew:
		case <-timeout.C:
			return resp
		}
	}
}

func (c *cluster) fetchLocked(req *kmsg.FetchRequest) (resp *kmsg.FetchResponse, news bool) {
	resp = req.ResponseKind().(*kmsg.FetchResponse)
	var filter *keyfilter.Filter
	if tag, ok := extension(&req.UnknownTags); ok {
		asked, err := protocol.ParseKeyFilter(tag)
		if err == nil {
			filter, err = keyfilter.New(asked)
		}
		if err != nil {
			resp.ErrorCode = kerr.InvalidRequest.Code
			return resp, true
		}
	}
	for _, t := range req.Topics {
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp, more := c.fetchPartition(t.TopicID, &p, filter)
			news = news || more
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, news
}

func (c *cluster) fetchPartition(id topicID, ask *kmsg.FetchRequestTopicPartition, filter *keyfilter.Filter) (rp kmsg.FetchResponseTopicPartition, news bool) {
	rp = kmsg.NewFetchResponseTopicPartition()
	rp.Partition = ask.Partition
	p := c.partitionByID(id, ask.Partition)
	switch {
	case p == nil:
		rp.ErrorCode = kerr.UnknownTopicID.Code
	case ask.CurrentLeaderEpoch >= 0 && ask.CurrentLeaderEpoch < p.epoch:
		rp.ErrorCode = kerr.FencedLeaderEpoch.Code
	case ask.FetchOffset < p.start || ask.FetchOffset > p.end():
		rp.ErrorCode = kerr.OffsetOutOfRange.Code
	}
	if rp.ErrorCode != 0 {
		return rp, true
	}
	rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = p.end(), p.end(), p.start
	rp.AbortedTransactions = p.aborted
	rp.RecordBatches = p.batches(ask.FetchOffset, filter)
	if filter != nil {
		scanned := protocol.ScannedTo{Next: p.end()}
		rp.UnknownTags.Set(protocol.ExtensionTag, scanned.AppendTo(nil))
	}
	return rp, p.end() > ask.FetchOffset
}

func (c *cluster) partitionByID(id topicID, number int32) *fakePartition {
	for _, t := range c.topics {
		if t.id == id && int(number) < len(t.partitions) {
			return t.partitions[number]
		}
	}
	return nil
}

// fakeLedger is what a group has committed of a partition.
type fakeLedger struct {
	founded   bool
	stable    int64
	committed individualcommit.OffsetSet
	pending   []PendingCommit // in the order of their only runs; nil: it does not know of such
}

// commit commits offsets.
func (l *fakeLedger) commit(runs ...Run) {
	l.founded = true
	for _, r := range runs {
		l.committed.Add(Run{Start: max(r.Start, l.stable), End: r.End})
	}
	if first, ok := l.committed.Next(l.stable); ok && first.Start == l.stable {
		l.stable = first.End
	}
}

// reopen makes offsets uncommitted.
func (l *fakeLedger) reopen(runs ...Run) {
	for _, r := range runs {
		l.committed.Add(Run{Start: 0, End: l.stable})
		l.committed.Remove(r)
		l.stable = min(l.stable, r.Start)
	}
}

// cumulative is a stock commit of an offset.
func (l *fakeLedger) cumulative(offset int64) {
	if offset < l.stable {
		l.committed.Clear()
		l.stable = offset
	}
	l.founded = true
	l.commit(Run{Start: l.stable, End: offset})
}

func (l *fakeLedger) maxCommit() int64 { return max(l.stable, l.committed.End()) }
