package broker

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/twmb/franz-go/pkg/kerr"
)

// topics are the topics of the cluster's metadata with their open logs. Readers see one
// immutable set; the controller replaces it.
type topics struct {
	b   *Broker
	set atomic.Pointer[topicSet]
}

type topicSet struct {
	byName map[string]*topic
	byID   map[metadata.TopicID]*topic
	sorted []*topic // by name
}

// topic is one topic. Its id never changes; settings and partitions do.
type topic struct {
	b        *Broker
	id       metadata.TopicID
	name     string
	internal bool
	settings atomic.Pointer[topicSettings]
	basis    struct { // what settings was made of
		topic  *metadata.Topic
		broker *brokerSettings
	}
	parts atomic.Pointer[[]*partition]
	made  struct {
		sync.Mutex
		durably bool // the directory, by this process
	}
}

// topicSettings are the settings of a topic that the broker acts on.
type topicSettings struct {
	log              commitlog.Config
	individualCommit bool
}

// partition is one partition of a topic. Its log is opened when it is first used, so
// that a partition nobody uses costs neither files nor memory.
type partition struct {
	topic *topic
	index int32
	log   atomic.Pointer[commitlog.Log]
	mu    struct {
		sync.Mutex
		gone error // why the log may not be opened any more
	}
}

// errTopicGone is why the log of a deleted topic cannot be opened.
var errTopicGone = fmt.Errorf("the topic was deleted: %w", kerr.UnknownTopicOrPartition)

func newTopics(b *Broker) *topics {
	ts := &topics{b: b}
	ts.set.Store(&topicSet{})
	return ts
}

// all returns the topics by name, internal ones included. The slice is not to be changed.
func (ts *topics) all() []*topic { return ts.set.Load().sorted }

// find looks a topic up by name, or by id where byID says so.
func (ts *topics) find(name string, id metadata.TopicID, byID bool) (*topic, *kerr.Error) {
	set := ts.set.Load()
	if byID {
		if t := set.byID[id]; t != nil {
			return t, nil
		}
		return nil, kerr.UnknownTopicID
	}
	if t := set.byName[name]; t != nil {
		return t, nil
	}
	if metadata.ValidateTopicName(name) != nil {
		return nil, kerr.InvalidTopicException
	}
	return nil, kerr.UnknownTopicOrPartition
}

// partitionOf finds a partition by topic id.
func (ts *topics) partitionOf(id metadata.TopicID, index int32) *partition {
	t := ts.set.Load().byID[id]
	if t == nil {
		return nil
	}
	return t.partition(index)
}

// failed tells why each log that failed did.
func (ts *topics) failed() []error {
	var errs []error
	for log := range ts.logs() {
		if err := log.Err(); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// logs iterates the logs that are open.
func (ts *topics) logs() func(yield func(*commitlog.Log) bool) {
	return func(yield func(*commitlog.Log) bool) {
		for _, t := range ts.all() {
			for _, p := range t.partitions() {
				if log := p.log.Load(); log != nil && !yield(log) {
					return
				}
			}
		}
	}
}

// apply makes the topics those of image: new ones appear, settings change, deleted ones
// are closed and returned. Only the controller calls it, one call at a time.
func (ts *topics) apply(image *metadata.Image) (deleted []*topic) {
	old, settings := ts.set.Load(), ts.b.settings()
	set := &topicSet{byName: make(map[string]*topic), byID: make(map[metadata.TopicID]*topic)}
	for m := range image.Topics() {
		t := old.byID[m.ID]
		if t == nil {
			t = &topic{b: ts.b, id: m.ID, name: m.Name, internal: m.Internal}
			t.parts.Store(&[]*partition{})
		}
		t.grow(int(m.Partitions))
		t.configure(m, settings)
		set.byName[t.name], set.byID[t.id] = t, t
		set.sorted = append(set.sorted, t)
	}
	slices.SortFunc(set.sorted, func(a, b *topic) int { return cmp.Compare(a.name, b.name) })
	ts.set.Store(set)
	for id, t := range old.byID {
		if set.byID[id] == nil {
			deleted = append(deleted, t)
		}
	}
	return deleted
}

// close closes every open log. Nothing may use them any more.
func (ts *topics) close() error {
	var errs []error
	for _, t := range ts.all() {
		errs = append(errs, t.end(commitlog.ErrClosed, (*commitlog.Log).Close))
	}
	return errors.Join(errs...)
}

func (t *topic) partitions() []*partition { return *t.parts.Load() }

// partition returns the one with that index, nil when there is none.
func (t *topic) partition(index int32) *partition {
	parts := t.partitions()
	if index < 0 || int(index) >= len(parts) {
		return nil
	}
	return parts[index]
}

func (t *topic) grow(n int) {
	parts := t.partitions()
	if n <= len(parts) {
		return
	}
	grown := slices.Clone(parts)
	for i := len(parts); i < n; i++ {
		grown = append(grown, &partition{topic: t, index: int32(i)})
	}
	t.parts.Store(&grown)
}

// configure takes in what the metadata and the broker's settings say of the topic. Only
// the controller calls it.
func (t *topic) configure(m *metadata.Topic, broker *brokerSettings) {
	if t.basis.topic == m && t.basis.broker == broker {
		return
	}
	t.basis.topic, t.basis.broker = m, broker
	s := broker.topic(m)
	t.settings.Store(s)
	for _, p := range t.partitions() {
		if log := p.log.Load(); log != nil {
			log.SetConfig(s.log)
		}
	}
}

func (t *topic) compacted() bool { return t.settings.Load().log.Compact }

// open gives a partition and its log.
func (t *topic) open(index int32) (*partition, *commitlog.Log, error) {
	p := t.partition(index)
	if p == nil {
		return nil, nil, kerr.UnknownTopicOrPartition
	}
	log, err := p.open()
	return p, log, err
}

// end has the topic's logs left, by Close or Remove, and says why to those who come later.
func (t *topic) end(why error, leave func(*commitlog.Log) error) error {
	var errs []error
	for _, p := range t.partitions() {
		p.mu.Lock()
		p.mu.gone = why
		log := p.log.Load()
		p.mu.Unlock()
		if log != nil {
			errs = append(errs, leave(log))
			t.b.filters.Forget(log)
		}
	}
	return errors.Join(errs...)
}

// dir is where the topic's logs are.
func (t *topic) dir() string { return t.b.dir.join("topics", t.id.String()) }

// dir is where the partition's log is.
func (p *partition) dir() string {
	return p.topic.b.dir.fs.PathJoin(p.topic.dir(), strconv.Itoa(int(p.index)))
}

func (p *partition) String() string { return fmt.Sprintf("%s-%d", p.topic.name, p.index) }

// open gives the log, opening it if this is its first use.
func (p *partition) open() (*commitlog.Log, error) {
	if log := p.log.Load(); log != nil {
		return log, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if log := p.log.Load(); log != nil {
		return log, nil
	}
	if p.mu.gone != nil {
		return nil, p.mu.gone
	}
	log, err := p.topic.b.openLog(p)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", p, err)
	}
	p.log.Store(log)
	return log, nil
}

// leaderEpoch is that of the open log. One that was never opened has no epoch but the
// first.
func (p *partition) leaderEpoch() int32 {
	if log := p.log.Load(); log != nil {
		return log.Bounds().LeaderEpoch
	}
	return 0
}
