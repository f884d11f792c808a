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

// checkBroker finds out what the broker can do.
func (w *Worker) checkBroker(ctx context.Context) error {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, w.acks)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("ask broker %s for its features: %w", seeds(w.acks), err)
	}
	newest := func(key kmsg.Key) int16 {
		for i := range resp.ApiKeys {
			if resp.ApiKeys[i].ApiKey == int16(key) {
				return resp.ApiKeys[i].MaxVersion
			}
		}
		return -1
	}
	if newest(kmsg.ShareFetch) < 1 || newest(kmsg.ShareAcknowledge) < 1 {
		return fmt.Errorf("broker %s: %w", seeds(w.acks), ErrNoShareGroups)
	}
	w.canRenew = newest(kmsg.ShareAcknowledge) >= 2
	w.hasModes = offers(resp, protocol.FeatureCooperativeDelivery)
	return nil
}

// join makes the first heartbeat. What may pass is tried again until ctx ends.
func (w *Worker) join(ctx context.Context) error {
	for tries := 1; ; tries++ {
		_, err := w.beat(ctx)
		if err == nil || permanent(err) {
			return err
		}
		if !sleep(ctx, w.cfg.backoff(tries)) {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// keepMembership sends heartbeats, learns where partitions are led and how records are
// dealt, until ctx ends.
func (w *Worker) keepMembership(ctx context.Context) {
	beat := time.NewTimer(0)
	defer beat.Stop()
	refresh := time.NewTicker(w.cfg.refreshInterval)
	defer refresh.Stop()
	signal(w.replace)
	beatTries, placeTries := 0, 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			interval, err := w.beat(ctx)
			if err != nil && ctx.Err() == nil {
				beatTries++
				interval = w.cfg.backoff(beatTries)
				w.failed(&GroupError{Group: w.cfg.group, Doing: "send a heartbeat", Err: err})
			} else {
				beatTries = 0
			}
			beat.Reset(interval)
			continue
		case <-refresh.C:
		case <-w.replace:
		}
		if err := w.place(ctx); err != nil && ctx.Err() == nil {
			placeTries++
			w.failed(err)
			if sleep(ctx, w.cfg.backoff(placeTries)) {
				signal(w.replace)
			}
			continue
		}
		placeTries = 0
	}
}

// beat sends one heartbeat and takes in the answer. It returns when the next is due.
func (w *Worker) beat(ctx context.Context) (time.Duration, error) {
	w.mu.Lock()
	epoch := w.mu.epoch
	w.mu.Unlock()
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.GroupID, req.MemberID, req.MemberEpoch = w.cfg.group, w.member, epoch
	if epoch == 0 {
		req.SubscribedTopicNames, req.RackID = w.cfg.topics, w.cfg.rack
	}
	resp, err := req.RequestWith(ctx, w.acks)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if errors.Is(err, kerr.GroupIDNotFound) { // else a heartbeat makes the group
		err = fmt.Errorf("%w: %w", ErrNotShareGroup, err)
	}
	if errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.FencedMemberEpoch) {
		if w.fenced(err); epoch != 0 {
			return 0, nil // join at once
		}
	}
	if err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.epoch = resp.MemberEpoch
	if resp.Assignment != nil {
		w.mu.assigned = nil
		for _, t := range resp.Assignment.TopicPartitions {
			for _, n := range t.Partitions {
				w.mu.assigned = append(w.mu.assigned, sharePartition{t.TopicID, n})
			}
		}
		signal(w.replace)
	}
	return max(time.Duration(resp.HeartbeatIntervalMillis)*time.Millisecond, 100*time.Millisecond), nil
}

// fenced takes in that the group does not know the member any more, so that all that it had
// acquired is with others.
func (w *Worker) fenced(err error) {
	w.mu.Lock()
	w.mu.epoch = 0
	var e shareEvents
	for _, src := range w.mu.sources {
		if src.session.epoch != 0 {
			w.mu.state.breakUp(src.session, time.Now(), func(int) time.Duration { return 0 }, err, &e)
			signal(src.ackWake)
		}
	}
	w.mu.Unlock()
	w.tell(e)
}

// place finds out where the assigned partitions are led, and in which order records are
// dealt, and has them fetched.
func (w *Worker) place(ctx context.Context) error {
	topics, err := loadTopics(ctx, w.fetches, w.cfg.topics...)
	if err != nil {
		return err
	}
	// The other client has to find the brokers as well.
	if _, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, w.acks); err != nil {
		return fmt.Errorf("load metadata: %w", err)
	}
	order, err := w.keepsOrder(ctx)
	if err != nil {
		return err
	}
	byID := make(map[topicID]topicInfo, len(topics))
	for _, t := range topics {
		byID[t.id] = t
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.state.stopping {
		return nil
	}
	w.mu.state.order = order
	for _, src := range w.mu.sources {
		clear(src.session.wanted)
	}
	for _, at := range w.mu.assigned {
		t, ok := byID[at.topic]
		p, found := t.partitions[at.number]
		if ok && found && p.leader >= 0 {
			w.mu.names[at.topic] = t.name
			w.sourceLocked(p.leader).session.wanted[at] = struct{}{}
		}
	}
	for _, src := range w.mu.sources {
		signal(src.fetchWake)
	}
	return nil
}

// modeConfig is the group config that says how records are dealt.
const modeConfig = "share.delivery.mode"

// keepsOrder finds out who keeps the order of keys.
func (w *Worker) keepsOrder(ctx context.Context) (keepOrder, error) {
	if w.cfg.order == orderIgnored {
		return orderNone, nil
	}
	here := orderNone
	if w.cfg.order == orderKept {
		here = orderHere
	}
	if !w.hasModes {
		return here, nil
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeGroupConfig, w.cfg.group, []string{modeConfig}
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, w.acks)
	if err != nil {
		return here, fmt.Errorf("read %s of group %s: %w", modeConfig, w.cfg.group, err)
	}
	for i := range resp.Resources {
		r := &resp.Resources[i]
		if kerr.ErrorForCode(r.ErrorCode) != nil {
			return orderByBroker, nil // not ours to see: be careful
		}
		for _, c := range r.Configs {
			if c.Name == modeConfig && c.Value != nil && (*c.Value == "key-ordered" || *c.Value == "key-range") {
				return orderByBroker, nil
			}
		}
	}
	return here, nil
}

// Kafka is the kgo client below that acknowledges, for what this package has no word for.
// It is closed with the Worker.
func (w *Worker) Kafka() *kgo.Client { return w.acks }
