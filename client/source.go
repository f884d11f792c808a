package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// source fetches from one broker, one request at a time, for all partitions that it leads.
// It asks again only when Poll has taken what the last answer brought, which bounds what a
// Reader holds.
type source struct {
	r    *Reader
	node int32
	wake chan struct{} // holds one signal when there may be something to do

	buffered int // chunks in Reader.mu.ready; behind Reader.mu
}

// wanted is one partition in a fetch.
type wanted struct {
	tp          TopicPartition
	id          topicID
	from        int64
	generation  int
	leaderEpoch int32
	slots       *slotFilter // that the fetch asked for; the same in all of it
}

func (s *source) signal() {
	signal(s.wake)
}

// assignSourcesLocked gives every partition's broker a source, and wakes them all.
func (r *Reader) assignSourcesLocked() {
	for _, p := range r.mu.partitions {
		if p.leader >= 0 && r.mu.sources[p.leader] == nil {
			s := &source{r: r, node: p.leader, wake: make(chan struct{}, 1)}
			r.mu.sources[p.leader] = s
			r.wg.Go(func() { s.run(r.ctx) })
		}
	}
	for _, s := range r.mu.sources {
		s.signal()
	}
}

func (r *Reader) wakeSourceLocked(p *partition) {
	if s := r.mu.sources[p.leader]; s != nil {
		s.signal()
	}
}

// run fetches until ctx ends.
func (s *source) run(ctx context.Context) {
	for ctx.Err() == nil {
		now := time.Now()
		asks, retryIn := s.plan(now)
		if len(asks) == 0 {
			waitFor(ctx, s.wake, now, now.Add(retryIn))
			continue
		}
		resp, err := s.fetch(ctx, asks)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.failed(asks, err)
			continue
		}
		s.take(ctx, asks, resp)
	}
}

// plan says what to fetch now. If that is nothing, retryIn is when a partition that failed
// may be tried again, 0 if none waits for that.
func (s *source) plan(now time.Time) (asks []wanted, retryIn time.Duration) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.buffered > 0 {
		return nil, 0
	}
	for _, p := range r.mu.partitions {
		switch {
		case p.leader != s.node || p.broken != nil || p.validate || p.reposition || p.next() >= p.end:
		case p.retryAt.After(now):
			if d := p.retryAt.Sub(now); retryIn == 0 || d < retryIn {
				retryIn = d
			}
		default:
			asks = append(asks, wanted{tp: p.tp, id: p.id, from: p.next(), generation: p.generation, leaderEpoch: p.leaderEpoch, slots: r.mu.slots})
		}
	}
	return asks, retryIn
}

// fetch sends one request.
func (s *source) fetch(ctx context.Context, asks []wanted) (*kmsg.FetchResponse, error) {
	req := s.request(asks)
	// Not RetriableRequest: when the broker is gone its partitions may be led elsewhere,
	// or it may be back under another address, so metadata comes first.
	resp, err := s.r.cl.Broker(int(s.node)).Request(ctx, req)
	if err != nil {
		return nil, err
	}
	fetched := resp.(*kmsg.FetchResponse)
	return fetched, kerr.ErrorForCode(fetched.ErrorCode)
}

func (s *source) request(asks []wanted) *kmsg.FetchRequest {
	cfg := &s.r.cfg
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = int32(cfg.fetchMaxWait.Milliseconds())
	req.MinBytes, req.MaxBytes = cfg.fetchMinBytes, cfg.fetchMaxBytes
	req.SessionEpoch = -1 // no session: the partitions change with every answer
	if cfg.readCommitted {
		req.IsolationLevel = 1
	}
	if slots := asks[0].slots; slots != nil {
		req.UnknownTags.Set(protocol.ExtensionTag, slots.tag)
	}
	// A broker fills the answer in the order of the request; a map's order is as fair as
	// any.
	index := newTopicIndex()
	for _, w := range asks {
		at, isNew := index.of(w.id)
		if isNew {
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = w.tp.Topic, w.id
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.CurrentLeaderEpoch = w.tp.Partition, w.from, w.leaderEpoch
		p.PartitionMaxBytes = cfg.fetchMaxPartitionBytes
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, p)
	}
	return req
}

// take hands what came to Poll, partition by partition.
func (s *source) take(ctx context.Context, asks []wanted, resp *kmsg.FetchResponse) {
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			at := slices.IndexFunc(asks, func(w wanted) bool {
				return w.tp.Partition == p.Partition && (w.tp.Topic == t.Topic || t.TopicID != topicID{} && w.id == t.TopicID)
			})
			if at < 0 {
				continue
			}
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				s.r.fetchFailed(&asks[at], err)
				continue
			}
			s.takePartition(ctx, &asks[at], p)
		}
	}
}

// takePartition decodes one partition's part of an answer.
func (s *source) takePartition(ctx context.Context, w *wanted, p *kmsg.FetchResponseTopicPartition) {
	d, err := s.r.decode(w, p)
	if err != nil {
		s.r.fetchFailed(w, err)
		return
	}
	if len(d.aborted) > 0 && s.r.commits != nil {
		if err := s.r.closeAborted(ctx, w.tp, d.aborted); err != nil && !errors.Is(err, ErrClosed) {
			s.r.fetchFailed(w, fmt.Errorf("close the records of aborted transactions: %w", err))
			return
		}
	}
	s.r.fetched(s, w, d)
}

// fetched takes in a decoded answer.
func (r *Reader) fetched(s *source, w *wanted, d decoded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.mu.partitions[w.tp]
	p.tries, p.retryAt, p.failure = 0, time.Time{}, ""
	r.mu.trouble = nil
	p.highWatermark, p.lastStable = d.highWatermark, d.lastStable
	if !p.progress.fetched(w.generation, d.next) {
		return
	}
	if r.mu.slots != w.slots { // the Reader was narrowed meanwhile
		d.records = r.mu.slots.keep(d.records)
	}
	if d.epoch >= 0 {
		p.fetchedEpoch = d.epoch
	}
	if d.next > p.end {
		d.next = p.end
		d.records = slices.DeleteFunc(d.records, func(record *kgo.Record) bool { return record.Offset >= p.end })
	}
	if len(d.records) == 0 && p.buffered == 0 {
		p.delivered(d.next)
		return
	}
	s.buffered++
	p.buffered++
	r.mu.ready = append(r.mu.ready, &chunk{source: s, partition: p, generation: w.generation, next: d.next, records: d.records})
	r.notifyLocked()
}

// failed is fetchFailed for all partitions of a request that got no answer.
func (s *source) failed(asks []wanted, err error) {
	err = fmt.Errorf("fetch from broker %d: %w", s.node, err)
	for i := range asks {
		s.r.fetchFailed(&asks[i], err)
	}
}

// fetchFailed decides what a failure means for a partition: whether to try again, and what
// to find out first. What a caller should know of is left to Poll.
func (r *Reader) fetchFailed(w *wanted, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.mu.partitions[w.tp]
	p.tries++
	p.retryAt = time.Now().Add(r.cfg.backoff(p.tries))
	r.mu.trouble = err
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		p.reposition = w.generation == p.generation
	case errors.Is(err, kerr.FencedLeaderEpoch):
		p.validate = p.fetchedEpoch >= 0
	case retriable(err) || errors.Is(err, kerr.UnknownTopicID) || !isKafkaError(err) && !errors.Is(err, errAnswer):
		// The leader moved, the broker restarts, the connection broke: metadata will tell.
	default:
		r.reportLocked(p, "fetch", err)
	}
	r.upkeep.signal()
}

func isKafkaError(err error) bool {
	var code *kerr.Error
	return errors.As(err, &code)
}

// isolation is the Reader's level in kgo's type.
func (cfg *readerConfig) isolation() kgo.IsolationLevel {
	if cfg.readCommitted {
		return kgo.ReadCommitted()
	}
	return kgo.ReadUncommitted()
}
