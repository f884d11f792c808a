package broker

import (
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchAnswer is the answer to a fetch, whose records are sent from the buffer that they
// were read into.
type fetchAnswer struct{ *kmsg.FetchResponse }

func (a fetchAnswer) appendSegments(out []byte) ([]byte, []protocol.Part) {
	return protocol.AppendFetchResponse(out, nil, a.FetchResponse)
}

// answer fills in resp with what was read.
func (r *fetchRead) answer(resp *kmsg.FetchResponse) kmsg.Response {
	var at *kmsg.FetchResponseTopic
	var last *fetchTarget
	for i, t := range r.fetch.targets {
		res := &r.results[i]
		if r.fetch.incremental && !r.news(t, res) {
			continue
		}
		if last == nil || last.name != t.name || last.id != t.id {
			topic := kmsg.NewFetchResponseTopic()
			topic.Topic, topic.TopicID = t.name, t.id
			resp.Topics = append(resp.Topics, topic)
			at = &resp.Topics[len(resp.Topics)-1]
			last = t
		}
		at.Partitions = append(at.Partitions, r.partitionAnswer(t, res))
	}
	if r.fetch.session != nil && r.served < len(r.fetch.targets) {
		r.fetch.session.rotate(r.served)
	}
	r.b.metrics.fetchedBytes.Add(float64(len(*r.buf)))
	return fetchAnswer{resp}
}

// news tells whether there is something that the client does not know, and remembers
// that it will.
func (r *fetchRead) news(t *fetchTarget, res *fetchResult) bool {
	changed := !t.told || t.highWatermark != res.bounds.HighWatermark || t.logStart != res.bounds.Start
	return changed || res.code != 0 || res.size() > 0 || res.diverging != nil || res.scannedTo > t.offset
}

func (r *fetchRead) partitionAnswer(t *fetchTarget, res *fetchResult) kmsg.FetchResponseTopicPartition {
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition = t.partition
	p.ErrorCode = res.code
	if res.code != 0 {
		p.HighWatermark, p.LastStableOffset, p.LogStartOffset = -1, -1, -1
		t.told = false
		return p
	}
	p.HighWatermark, p.LastStableOffset, p.LogStartOffset = res.bounds.HighWatermark, res.bounds.LSO, res.bounds.Start
	t.told, t.highWatermark, t.logStart = true, res.bounds.HighWatermark, res.bounds.Start
	if res.diverging != nil {
		p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = res.diverging.epoch, res.diverging.end
	}
	p.RecordBatches = (*r.buf)[res.at:res.end]
	if r.readCommitted {
		p.AbortedTransactions = make([]kmsg.FetchResponseTopicPartitionAbortedTransaction, 0, len(res.aborted))
		for _, txn := range res.aborted {
			a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
			a.ProducerID, a.FirstOffset = txn.ProducerID, txn.FirstOffset
			p.AbortedTransactions = append(p.AbortedTransactions, a)
		}
	}
	if res.scannedTo >= 0 {
		p.UnknownTags.Set(protocol.ExtensionTag, (&protocol.ScannedTo{Next: res.scannedTo}).AppendTo(nil))
	}
	return p
}
