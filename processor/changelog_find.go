package processor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// foundLog is the changelog as it was found lately, which all tasks that open then go by.
type foundLog struct {
	looking chan struct{} // filled while somebody looks
	mu      struct {
		sync.Mutex
		topic logTopic
		until time.Time
	}
}

// foundFor is how long tasks go by what was found: somebody may change the settings.
const foundFor = 10 * time.Second

// get is what was found, if it still counts at now.
func (f *foundLog) get(now time.Time) (t logTopic, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.topic, now.Before(f.mu.until)
}

func (f *foundLog) set(t *logTopic, until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.topic, f.mu.until = *t, until
}

// forget has the next task look again: the topic may be another one.
func (f *foundLog) forget() { f.set(new(logTopic), time.Time{}) }

// findLog finds the topic of the changelog, and makes it if there is none.
func (a *App) findLog(ctx context.Context, initial int32) (logTopic, error) {
	select {
	case a.log.looking <- struct{}{}:
	case <-ctx.Done():
		return logTopic{}, context.Cause(ctx)
	}
	defer func() { <-a.log.looking }()
	t, ok := a.log.get(a.cfg.now())
	if !ok {
		var err error
		if t, err = a.lookUpOrMakeLog(ctx, initial); err == nil {
			err = a.readLogConfig(ctx, &t)
		}
		if err != nil {
			return logTopic{}, err
		}
	}
	if t.partitions != initial {
		return logTopic{}, &fatalError{fmt.Errorf("the changelog %s has %d partitions, and the group %d initial buckets: it needs as many", t.name, t.partitions, initial)}
	}
	if !ok {
		a.log.set(&t, a.cfg.now().Add(foundFor))
	}
	return t, nil
}

func (a *App) lookUpOrMakeLog(ctx context.Context, initial int32) (logTopic, error) {
	t, err := a.lookUpLog(ctx)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		policy, stay := "compact", strconv.FormatInt(tombstonesStay.Milliseconds(), 10)
		_, err = a.admin.CreateTopic(ctx, initial, -1, map[string]*string{"cleanup.policy": &policy, "delete.retention.ms": &stay}, a.cfg.changelog)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return logTopic{}, fmt.Errorf("make the changelog %s: %w", a.cfg.changelog, err)
		}
		t, err = a.lookUpLog(ctx)
	}
	if err != nil {
		return logTopic{}, fmt.Errorf("find the changelog %s: %w", a.cfg.changelog, err)
	}
	return t, nil
}

// lookUpLog finds the topic of the changelog.
func (a *App) lookUpLog(ctx context.Context) (logTopic, error) {
	found, err := a.lookUp(ctx, []string{a.cfg.changelog})
	if err != nil {
		return logTopic{}, err
	}
	in, ok := found[a.cfg.changelog]
	if !ok {
		return logTopic{}, errors.New("an answer that says nothing of it")
	}
	return logTopic{name: a.cfg.changelog, id: in.ID, partitions: in.Partitions}, nil
}

// readLogConfig sees to it that nothing but compaction takes away records of a changelog.
func (a *App) readLogConfig(ctx context.Context, t *logTopic) error {
	all, err := a.admin.DescribeTopicConfigs(ctx, t.name)
	if err != nil {
		return fmt.Errorf("read the settings of the changelog %s: %w", t.name, err)
	}
	topic, err := all.On(t.name, nil)
	if err = errors.Join(err, topic.Err); err != nil {
		return fmt.Errorf("read the settings of the changelog %s: %w", t.name, err)
	}
	for _, c := range topic.Configs {
		switch c.Key {
		case "cleanup.policy":
			if strings.TrimSpace(c.MaybeValue()) != "compact" {
				return &fatalError{fmt.Errorf("the changelog %s has the cleanup.policy %q: with any but compact the state would be lost", t.name, c.MaybeValue())}
			}
		case "delete.retention.ms":
			ms, err := strconv.ParseInt(c.MaybeValue(), 10, 64)
			if err != nil {
				return fmt.Errorf("delete.retention.ms of the changelog %s: %w", t.name, err)
			}
			t.tombstones = time.Duration(min(ms, int64(100*365*24*time.Hour/time.Millisecond))) * time.Millisecond
		}
	}
	return nil
}
