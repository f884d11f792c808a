package processor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/processor/assignor"
	"github.com/lacunamq/lacuna/statestore"
)

// App is this process's part of a group that runs a topology.
type App struct {
	cfg      config
	group    string
	topology Topology

	kafka *kgo.Client
	// producer is what produces at least once; kafka, unless it places records of a changelog.
	producer *kgo.Client
	admin    *kadm.Client
	topics   map[string][16]byte // the ids of the inputs, as they were when the App was opened
	member   *client.Member
	outlet   outlet
	// transactor is nil unless exactly once.
	transactor *client.Transactor
	opener     statestore.Opener
	cache      *statestore.OffsetCache
	ends       map[client.TopicPartition]int64 // of the inputs, when the App was opened; nil: not known
	log        foundLog
	// measured is what the changelog knows of the group, if nothing else does.
	measured *assignor.Group

	watching sync.WaitGroup
	ctx      context.Context // ends when the App is closed
	cancel   context.CancelFunc
	leaving  context.Context // ends when nobody waits any more for a failed App to leave
	hurry    context.CancelFunc

	mu struct {
		sync.Mutex
		tasks      map[int32]*task
		plan       assignor.Assignment     // of the generation
		next       assignor.Assignment     // of a generation that has not begun yet
		generation int32                   // of the plan, -1: none was assigned yet
		ready      map[int32]assignor.Area // by bucket, what was said to be ready
		err        error                   // why the App has ended
		lookAgain  time.Time               // for the leader: when to look for the inputs again; zero: no need
		closed     bool
	}
	failed chan struct{} // closed when err is set
}

// Open joins the group and begins to work. The topics must exist. The App is to be closed,
// also when it has failed (Failed, Err).
func Open(ctx context.Context, group string, t Topology, opts ...Option) (*App, error) {
	cfg := defaultConfig()
	for _, o := range opts {
		o(&cfg)
	}
	err := t.validate()
	if err == nil {
		err = cfg.validate(&t)
	}
	if err != nil {
		return nil, fmt.Errorf("open processors of group %s: %w", group, err)
	}
	a := &App{cfg: cfg, group: group, topology: t, topics: make(map[string][16]byte), failed: make(chan struct{})}
	a.log.looking = make(chan struct{}, 1)
	a.mu.tasks, a.mu.generation = make(map[int32]*task), -1
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.leaving, a.hurry = context.WithCancel(context.Background())
	if err := a.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open processors of group %s: %w", group, err), a.closeConnections(ctx))
	}
	return a, nil
}

func (a *App) open(ctx context.Context) (err error) {
	if a.kafka, err = kgo.NewClient(cancelable(a.cfg.kafka)...); err != nil {
		return err
	}
	a.admin = kadm.NewClient(a.kafka)
	if err := a.findTopics(ctx); err != nil {
		return err
	}
	if err := a.openOutlet(ctx); err != nil {
		return err
	}
	if a.cfg.outlet != nil {
		a.outlet = a.cfg.outlet(a, a.outlet)
	}
	if err := a.openStates(ctx); err != nil {
		return err
	}
	if a.measured, err = a.measureLog(ctx); err != nil {
		return err
	}
	a.member, err = client.JoinGroup(ctx, a.group, &balancer{a}, client.MemberHooks{
		Assigned: a.begin, Lost: a.lost, Failed: a.report,
	}, client.Topics(a.topology.Inputs...), client.KafkaOpts(a.cfg.kafka...), client.MemberOpts(a.cfg.member...))
	if err != nil {
		return err
	}
	a.watching.Go(a.watch)
	return nil
}

// cancelable lets a task that is aborted wait for nothing that the broker does not answer. What
// it has produced may be there all the same, which at least once allows.
func cancelable(opts []kgo.Opt) []kgo.Opt {
	return append(slices.Clone(opts), kgo.AllowIdempotentProduceCancellation())
}

func (a *App) openOutlet(ctx context.Context) (err error) {
	kafka := a.placingLog()
	if !a.cfg.exactlyOnce {
		if a.producer = a.kafka; a.cfg.changelog != "" {
			if a.producer, err = kgo.NewClient(cancelable(kafka)...); err != nil {
				return err
			}
		}
		a.outlet = plain{a.producer}
		return nil
	}
	opts := []client.TransactorOpt{client.KafkaOpts(kafka...), client.TransactionTimeout(a.cfg.txnTimeout), client.TransactorFailed(a.report)}
	if a.cfg.name != "" {
		opts = append(opts, client.TransactionalID(a.group+"-"+a.cfg.name))
	}
	if a.transactor, err = client.OpenTransactor(ctx, opts...); err != nil {
		return err
	}
	a.outlet = transactions{a.transactor}
	return nil
}

// openStates reads how far the states are that are found on disk.
func (a *App) openStates(ctx context.Context) (err error) {
	a.opener = a.cfg.opener
	if a.opener == nil && a.durable() {
		a.opener = statestore.Pebble()
	}
	if a.opener == nil {
		a.opener = statestore.InMemory()
	}
	if a.durable() {
		if a.cache, err = statestore.ScanOffsets(ctx, a.cfg.fs, a.root(), a.opener, 8); err == nil && len(a.cache.Tasks()) > 0 {
			a.findEnds(ctx)
		}
	}
	return err
}

// replays tells that states are made of the inputs, so that these are read from where a state
// is, with what is committed.
func (a *App) replays() bool { return a.topology.Ack == AckAtProcess && a.cfg.changelog == "" }

func (a *App) durable() bool { return a.topology.Ack == AckAtProcess && a.cfg.dir != "" }

// root is the directory of the states of the group.
func (a *App) root() string { return filepath.Join(a.cfg.dir, a.group) }

// Failed is closed when the App has ended because of an error.
func (a *App) Failed() <-chan struct{} { return a.failed }

// Err is why the App has ended; nil while it has not.
func (a *App) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.err
}

// fail ends all work because of an error. Close is still to be called.
func (a *App) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.err != nil {
		return
	}
	a.mu.err = fmt.Errorf("processors of group %s: %w", a.group, err)
	close(a.failed)
	for _, t := range a.mu.tasks {
		t.abort()
	}
}

// report tells of an error that is not the end.
func (a *App) report(err error) {
	if a.cfg.hooks.Failed != nil && err != nil {
		a.cfg.hooks.Failed(err)
	}
}

// Run is Open, and Close when ctx ends or the App fails; it returns why it failed.
func Run(ctx context.Context, group string, t Topology, opts ...Option) error {
	a, err := Open(ctx, group, t, opts...)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-a.Failed():
	}
	return errors.Join(a.Err(), a.Close(context.WithoutCancel(ctx)))
}

// Close lets the tasks finish what they are at, and leaves the group. When ctx ends first
// they finish nothing more.
func (a *App) Close(ctx context.Context) error {
	a.mu.Lock()
	first := !a.mu.closed
	a.mu.closed = true
	tasks := a.tasksLocked()
	a.mu.Unlock()
	if !first {
		return nil
	}
	stop := context.AfterFunc(ctx, func() {
		for _, t := range tasks {
			t.abort()
		}
	})
	defer stop()
	defer context.AfterFunc(ctx, a.hurry)()
	a.cancel()
	a.endTasks(tasks)
	err := a.member.Close(ctx)
	a.endTasks(a.allTasks()) // of an assignment that came meanwhile
	a.watching.Wait()
	return errors.Join(err, a.closeConnections(ctx))
}

func (a *App) closeConnections(ctx context.Context) (err error) {
	a.cancel()
	a.hurry()
	if a.transactor != nil {
		err = a.transactor.Close(ctx)
	}
	if a.producer != nil && a.producer != a.kafka {
		a.producer.Close()
	}
	if a.kafka != nil {
		a.kafka.Close()
	}
	return err
}

func (a *App) tasksLocked() (tasks []*task) {
	for _, t := range a.mu.tasks {
		tasks = append(tasks, t)
	}
	return tasks
}

func (a *App) allTasks() []*task {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tasksLocked()
}

// endTasks ends tasks and waits for them.
func (a *App) endTasks(tasks []*task) {
	for _, t := range tasks {
		a.change(t, change{end: true})
	}
	for _, t := range tasks {
		<-t.done
		a.mu.Lock()
		if a.mu.tasks[t.bucket] == t {
			delete(a.mu.tasks, t.bucket)
		}
		a.mu.Unlock()
	}
}

// change tells a task of a change, and waits until it has given up what it lost.
func (a *App) change(t *task, c change) {
	c.given = make(chan struct{})
	select {
	case t.control <- c:
		select {
		case <-c.given:
		case <-t.done:
		}
	case <-t.done:
	}
}

// topicID is the id of an input topic.
func (a *App) topicID(name string) [16]byte { return a.topics[name] }

// measure is what the areas of the generation are measured by.
func (a *App) measure() assignor.Group {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.plan.Group
}

// openStore opens the state of a bucket.
func (a *App) openStore(bucket int32) (statestore.OffsetStore, error) {
	dir := filepath.Join(a.root(), fmt.Sprint(bucket), "state")
	s, err := a.opener(a.cfg.fs, dir)
	if err != nil {
		return nil, fmt.Errorf("open the state of bucket %d in %s: %w", bucket, dir, err)
	}
	kept, err := statestore.Keep(s, a.cfg.fs, dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the state of bucket %d in %s: %w", bucket, dir, err), s.Close())
	}
	if a.cache != nil {
		a.cache.Own(bucket)
	}
	return kept, nil
}

// closeStore closes the state of a bucket. How far it is stays known.
func (a *App) closeStore(bucket int32, s statestore.OffsetStore) error {
	var err error
	if a.cache != nil {
		var offsets []statestore.Offset
		if offsets, err = s.Offsets(); err == nil {
			a.cache.Release(bucket, offsets)
		}
	}
	return errors.Join(err, s.Close())
}
