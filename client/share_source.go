package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// shareSource carries out what a worker's session on one broker asks for: one goroutine
// fetches, one acknowledges.
type shareSource struct {
	w       *Worker
	session *shareSession // behind Worker.mu
	// Each holds one signal when the goroutine may have something to do.
	fetchWake, ackWake chan struct{}
}

// sourceLocked is the source of a broker, made and started if there is none.
func (w *Worker) sourceLocked(node int32) *shareSource {
	if src := w.mu.sources[node]; src != nil {
		return src
	}
	src := &shareSource{w: w, session: newShareSession(node, w.canRenew), fetchWake: make(chan struct{}, 1), ackWake: make(chan struct{}, 1)}
	w.mu.sources[node] = src
	w.mu.state.sessions[node] = src.session
	w.wg.Go(func() { src.fetchAll(w.ctx) })
	w.wg.Go(func() { src.acknowledgeAll(w.ctx) })
	return src
}

// fetchAll fetches until ctx ends.
func (src *shareSource) fetchAll(ctx context.Context) {
	w := src.w
	for {
		w.mu.Lock()
		now := time.Now()
		f := w.mu.state.nextFetch(src.session, now)
		retryAt := src.session.retryAt
		w.mu.Unlock()
		if f == nil {
			if !waitFor(ctx, src.fetchWake, now, retryAt) {
				return
			}
			continue
		}
		src.fetch(ctx, f)
		if ctx.Err() != nil {
			return
		}
	}
}

// acknowledgeAll acknowledges and renews until ctx ends.
func (src *shareSource) acknowledgeAll(ctx context.Context) {
	w := src.w
	for {
		w.mu.Lock()
		now := time.Now()
		e := w.mu.state.expire(src.session, now)
		a := src.session.acknowledge(now)
		next := src.session.nextTime(now)
		w.mu.Unlock()
		w.tell(e)
		if a == nil {
			if !waitFor(ctx, src.ackWake, now, next) {
				return
			}
			continue
		}
		src.acknowledge(ctx, a)
		if ctx.Err() != nil {
			return
		}
	}
}

// waitFor waits for a signal, or for a time if that is after now. False means that ctx has
// ended.
func waitFor(ctx context.Context, wake <-chan struct{}, now, until time.Time) bool {
	var timeout <-chan time.Time
	if until.After(now) {
		timer := time.NewTimer(until.Sub(now))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-wake:
	case <-timeout:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// fetch sends one fetch and takes its answer in.
func (src *shareSource) fetch(ctx context.Context, f *shareFetch) {
	w, node := src.w, src.session.node
	began := time.Now()
	resp, err := w.fetches.Broker(int(node)).Request(ctx, w.fetchRequest(f))
	if err == nil {
		err = w.checkFetched(resp.(*kmsg.ShareFetchResponse))
	}
	if err != nil {
		if ctx.Err() == nil {
			src.failed(f, nil, fmt.Errorf("fetch from broker %d: %w", node, err))
		}
		return
	}
	got, errs := src.decode(f, resp.(*kmsg.ShareFetchResponse))
	w.mu.Lock()
	now := time.Now()
	e := w.mu.state.fetched(src.session, f, now, got)
	if len(errs) > 0 {
		src.session.retryAt = now.Add(w.cfg.backoff(1))
	} else {
		w.mu.trouble = nil
	}
	w.mu.work.Broadcast()
	w.wakeLocked(src.session)
	w.mu.Unlock()
	signal(src.ackWake)
	if w.cfg.hooks.Fetched != nil {
		w.cfg.hooks.Fetched(node, len(got.deliveries), now.Sub(began))
	}
	w.tell(e)
	for _, err := range errs {
		w.partitionFailed(err)
	}
}

// checkFetched finds out whether the answer as a whole is one.
func (w *Worker) checkFetched(resp *kmsg.ShareFetchResponse) error {
	if err := answerError(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return err
	}
	if w.filterTag == nil {
		return nil
	}
	echo, ok := extension(&resp.UnknownTags)
	if !ok {
		return fmt.Errorf("%w: %w", errAnswer, ErrNoEcho)
	}
	if _, err := protocol.ParseFilterApplied(echo); err != nil {
		return fmt.Errorf("%w: %w", errAnswer, err)
	}
	return nil
}

// acknowledge sends one acknowledgement and takes its answer in.
func (src *shareSource) acknowledge(ctx context.Context, a *shareAck) {
	resp, err := src.send(ctx, a)
	if err != nil {
		if ctx.Err() == nil {
			src.failed(nil, a, fmt.Errorf("acknowledge to broker %d: %w", src.session.node, err))
		}
		return
	}
	src.acknowledged(a, resp)
}

// acknowledged takes in an answer.
func (src *shareSource) acknowledged(a *shareAck, resp *kmsg.ShareAcknowledgeResponse) {
	w := src.w
	errs := ackErrors(a.parts)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			errs[sharePartition{t.TopicID, p.Partition}] = kerr.ErrorForCode(p.ErrorCode)
		}
	}
	w.mu.Lock()
	now := time.Now()
	e := w.mu.state.acknowledged(src.session, a, now, now.Add(lockTimeout(resp.AcquisitionLockTimeoutMillis)), errs)
	w.wakeLocked(src.session)
	w.mu.Unlock()
	signal(src.fetchWake)
	w.tell(e)
	for _, err := range errs {
		if movedAway(err) {
			signal(w.replace)
		}
	}
}

// send sends an acknowledgement. One that may have overtaken the fetch that was sent before
// it is sent again: the broker refuses it for its epoch, without harm, until it has seen the
// fetch.
func (src *shareSource) send(ctx context.Context, a *shareAck) (*kmsg.ShareAcknowledgeResponse, error) {
	// Without a fetch on its way there is nothing to wait behind, and the traffic keeps the
	// connection that the session belongs to from being closed as idle.
	cl := src.w.fetches
	if a.beside {
		cl = src.w.acks
	}
	request := cl.Broker(int(src.session.node)).Request
	if a.final { // the broker does not count it, so it may come twice
		request = cl.Broker(int(src.session.node)).RetriableRequest
	}
	for tries := 0; ; tries++ {
		r, err := request(ctx, src.w.ackRequest(a))
		if err != nil {
			return nil, err
		}
		resp := r.(*kmsg.ShareAcknowledgeResponse)
		err = kerr.ErrorForCode(resp.ErrorCode)
		overtook := a.beside && errors.Is(err, kerr.InvalidShareSessionEpoch) && tries < 10
		if !overtook || !sleep(ctx, time.Millisecond<<tries) {
			return resp, err
		}
	}
}

// close ends the session for good.
func (src *shareSource) close(ctx context.Context, a *shareAck) error {
	a.beside = true // a fetch may wait on the other connection
	resp, err := src.send(ctx, a)
	if err != nil {
		src.failed(nil, a, err)
		if errors.Is(err, kerr.ShareSessionNotFound) && len(a.parts) == 0 {
			return nil
		}
		return &GroupError{Group: src.w.cfg.group, Doing: fmt.Sprintf("close the share session on broker %d", src.session.node), Err: err}
	}
	src.acknowledged(a, resp)
	return nil
}

// failed takes in that a request failed as a whole.
func (src *shareSource) failed(f *shareFetch, a *shareAck, err error) {
	w := src.w
	w.mu.Lock()
	e := w.mu.state.failed(src.session, f, a, time.Now(), w.cfg.backoff, err)
	w.wakeLocked(src.session)
	w.mu.Unlock()
	w.tell(e)
	signal(src.ackWake)
	signal(src.fetchWake)
	signal(w.replace)
	if a == nil || !a.final {
		w.failed(&GroupError{Group: w.cfg.group, Doing: "work on records", Err: err})
	}
}

// partitionFailed takes in that a partition could not be fetched.
func (w *Worker) partitionFailed(err *PartitionError) {
	if movedAway(err) || retriable(err) {
		signal(w.replace)
		w.mu.Lock()
		w.mu.trouble = err
		w.mu.Unlock()
		return
	}
	w.failed(err)
}

// movedAway tells that a partition is not, or not any more, where it was looked for.
func movedAway(err error) bool {
	return errors.Is(err, kerr.NotLeaderForPartition) || errors.Is(err, kerr.FencedLeaderEpoch) ||
		errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition)
}

// lockTimeout is how long acquired records are ours. A broker below version 1 of ShareFetch
// does not say; Kafka's least is a second.
func lockTimeout(ms int32) time.Duration { return max(time.Duration(ms)*time.Millisecond, time.Second) }

// ackErrors are the errors of the partitions until their answers are found.
func ackErrors(parts []ackPart) map[sharePartition]error {
	errs := make(map[sharePartition]error, len(parts))
	for _, p := range parts {
		errs[p.at] = errUnanswered
	}
	return errs
}

// decompressing are the options to read what was fetched of a partition.
func decompressing(topic string, number int32) kgo.ProcessFetchPartitionOpts {
	return kgo.ProcessFetchPartitionOpts{Topic: topic, Partition: number}
}
