package processor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/processor/assignor"
)

// lookUpTimeout bounds how long the leader looks the inputs up while all wait for it.
const lookUpTimeout = 5 * time.Second

// find looks up the inputs for the leader of the group. If that fails the generation goes by
// what the members know, and the next one looks again.
func (a *App) find(members []assignor.Member, partitions map[string]int32) map[string]assignor.Input {
	ctx, cancel := context.WithTimeout(a.ctx, lookUpTimeout)
	defer cancel()
	inputs, err := a.lookUp(ctx, slices.Sorted(maps.Keys(partitions)))
	if err == nil {
		err = a.lookUpEnds(ctx, assignor.Growing(members, inputs), inputs)
	}
	if err != nil {
		a.report(fmt.Errorf("look up the inputs of group %s: %w", a.group, err))
		for topic, n := range partitions {
			if _, found := inputs[topic]; !found {
				inputs[topic] = assignor.Input{Partitions: n}
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.lookAgain = time.Time{}
	if err != nil {
		a.mu.lookAgain = a.cfg.now().Add(time.Second)
	}
	return inputs
}

// isToLookAgain tells that a look-up has failed a while ago.
func (a *App) isToLookAgain() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.lookAgain.IsZero() || a.cfg.now().Before(a.mu.lookAgain) {
		return false
	}
	a.mu.lookAgain = time.Time{}
	return true
}

// lookUp finds topics as they are now; what it finds before an error counts. It asks the broker
// itself, since what kgo remembers may be from before they grew.
func (a *App) lookUp(ctx context.Context, topics []string) (map[string]assignor.Input, error) {
	inputs := make(map[string]assignor.Input, len(topics))
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	found, err := req.RequestWith(ctx, a.kafka)
	if err != nil {
		return inputs, err
	}
	for i := range found.Topics {
		t := &found.Topics[i]
		if t.Topic == nil {
			continue
		}
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return inputs, fmt.Errorf("topic %s: %w", *t.Topic, err)
		}
		inputs[*t.Topic] = assignor.Input{ID: t.TopicID, Partitions: int32(len(t.Partitions))}
	}
	return inputs, nil
}

// lookUpEnds finds the ends of the logs of topics, in so many partitions.
func (a *App) lookUpEnds(ctx context.Context, topics map[string]int32, inputs map[string]assignor.Input) error {
	if len(topics) == 0 {
		return nil
	}
	ends, err := a.admin.ListEndOffsets(ctx, slices.Collect(maps.Keys(topics))...)
	if err != nil {
		return err
	}
	for name, partitions := range topics {
		in := inputs[name]
		for p := range partitions {
			end, ok := ends.Lookup(name, p)
			if !ok || end.Err != nil {
				return fmt.Errorf("%s[%d]: no end offset: %w", name, p, cmp.Or(end.Err, error(kerr.UnknownTopicOrPartition)))
			}
			in.Ends = append(in.Ends, end.Offset)
		}
		inputs[name] = in
	}
	return nil
}

// anew finds an input that was made anew since the App was opened.
func (a *App) anew(plan *assignor.Assignment) error {
	for name, id := range a.topics {
		if t := plan.Group.Topics[name]; t.ID != ([16]byte{}) && t.ID != id {
			return fmt.Errorf("input topic %s: %w while its processors ran; started again they begin with empty states", name, client.ErrTopicRecreated)
		}
	}
	return nil
}

// findTopics looks up the inputs when the App is opened.
func (a *App) findTopics(ctx context.Context) error {
	found, err := a.lookUp(ctx, a.topology.Inputs)
	if err != nil {
		return fmt.Errorf("find the input: %w", err)
	}
	for name, in := range found {
		a.topics[name] = in.ID
	}
	return nil
}
