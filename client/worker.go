package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Worker is a member of a share group (KIP-932) that calls a function for every record it
// gets. Many workers share the partitions of a topic; the broker deals records among them,
// and one that is not accepted is dealt again.
//
// A Worker talks to any broker with share groups. Only [Slots] and [Keys] need Lacuna's.
//
// # Inside
//
// What to do is decided by a plain value, shareState, behind mu. One goroutine per handler
// takes records from it. For each broker one goroutine fetches and one acknowledges
// (shareSource); one keeps the membership and knows where partitions are led.
//
// Fetches and acknowledgements use a kgo client each: in one they would share a connection,
// and an acknowledgement would wait behind a fetch that waits for records.
type Worker struct {
	cfg       workerConfig
	handler   Handler
	filterTag []byte // on the wire, nil: everything
	member    string
	canRenew  bool
	hasModes  bool // the broker has delivery modes

	fetches, acks *kgo.Client
	decompressor  kgo.Decompressor

	ctx      context.Context // of requests; ends when the Worker is closed
	cancel   context.CancelFunc
	handling context.Context // of handlers
	abandon  context.CancelCauseFunc
	wg       sync.WaitGroup
	handlers sync.WaitGroup
	closed   chan struct{} // closed when Close is done
	closeErr error

	replace chan struct{} // holds one signal when partitions may be led elsewhere

	mu struct {
		sync.Mutex
		state    shareState
		work     sync.Cond     // signalled when a handler may have something to do
		quiet    chan struct{} // closed and replaced when state may have become quiet
		sources  map[int32]*shareSource
		epoch    int32 // of the member
		assigned []sharePartition
		names    map[topicID]string
		trouble  error // the last failure, for who looks
	}
}

var (
	// ErrLockLost is the cause that a handler's context ends with when its record is not
	// the worker's any more: its acquisition lock ran out and could not be renewed, the
	// connection broke, or the broker has forgotten about it.
	ErrLockLost = errors.New("the acquisition of the record is lost")

	// ErrWorkerClosed is the cause that a handler's context ends with when the Worker is
	// closed and does not wait any longer.
	ErrWorkerClosed = errors.New("the worker is closed")

	// ErrNotShareGroup says that the group is of another type, which it stays until it is
	// deleted.
	ErrNotShareGroup = errors.New("the group is not a share group")

	// ErrNoShareGroups says that a broker does not serve share groups.
	ErrNoShareGroups = errors.New("the broker does not serve share groups")
)

// OpenWorker joins a share group and calls handler for every record that it gets, until
// [Worker.Close]. It fails with a [FeatureError] if the broker cannot do what the options
// need.
func OpenWorker(ctx context.Context, handler Handler, opts ...WorkerOpt) (*Worker, error) {
	cfg := defaultWorkerConfig()
	for _, o := range opts {
		o.applyWorker(&cfg)
	}
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open a worker: %w", err)
	}
	w := newWorker(cfg, handler)
	if err := w.connect(); err != nil {
		return nil, fmt.Errorf("open a worker: %w", err)
	}
	if err := w.begin(ctx); err != nil {
		w.disconnect()
		return nil, fmt.Errorf("open a worker of group %s: %w", cfg.group, err)
	}
	w.start()
	return w, nil
}

func newWorker(cfg workerConfig, handler Handler) *Worker {
	w := &Worker{cfg: cfg, handler: handler, member: uuid.NewString(), closed: make(chan struct{}), replace: make(chan struct{}, 1)}
	w.mu.state = newShareState(cfg.concurrency, cfg.maxRecords)
	w.mu.sources = make(map[int32]*shareSource)
	w.mu.names = make(map[topicID]string)
	w.mu.quiet = make(chan struct{})
	w.mu.work.L = &w.mu
	if cfg.filtered() {
		w.filterTag = cfg.filter.AppendTo(nil)
	}
	return w
}

// fetchIdleTimeout is how long the connection of a share session may be idle: the broker
// takes back what was acquired when it closes, so not before the broker closes it.
const fetchIdleTimeout = 10 * time.Minute

func (w *Worker) connect() (err error) {
	own := []kgo.Opt{kgo.MaxDecompressBatchBytes(maxDecompressBytes), kgo.ConnIdleTimeout(fetchIdleTimeout)}
	if w.fetches, err = kgo.NewClient(append(own, w.cfg.kafka...)...); err != nil {
		return err
	}
	if w.acks, err = kgo.NewClient(w.cfg.kafka...); err != nil {
		w.fetches.Close()
		return err
	}
	w.decompressor = w.fetches.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
	return nil
}

func (w *Worker) disconnect() {
	w.fetches.Close()
	w.acks.Close()
}

// begin checks the broker and joins the group.
func (w *Worker) begin(ctx context.Context) error {
	if err := w.checkBroker(ctx); err != nil {
		return err
	}
	if w.filterTag != nil {
		if err := requireFeatures(ctx, w.acks, protocol.FeatureKeyFilter); err != nil {
			return err
		}
	}
	if _, err := findTopics(ctx, w.acks, w.cfg.topics...); err != nil {
		return err
	}
	return w.join(ctx)
}

// start starts the goroutines.
func (w *Worker) start() {
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.handling, w.abandon = context.WithCancelCause(context.Background())
	for range w.cfg.concurrency {
		w.handlers.Go(w.handle)
	}
	w.wg.Go(func() { w.keepMembership(w.ctx) })
}

// handle calls the handler for one record after the other.
func (w *Worker) handle() {
	for {
		d, ctx := w.next()
		if d == nil {
			return
		}
		began := time.Now()
		err := w.handler(ctx, &d.record)
		w.finish(d, err, time.Since(began))
	}
}

// next waits for a record to handle, nil when there will be none.
func (w *Worker) next() (*delivery, context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if w.mu.state.stopping {
			return nil, nil
		}
		if d := w.mu.state.queue.pop(); d != nil {
			ctx, cancel := context.WithCancelCause(w.handling)
			d.cancel, d.record.worker, d.record.delivery = cancel, w, d
			return d, ctx
		}
		w.wakeFetchersLocked(time.Now())
		w.mu.work.Wait()
	}
}

// finish takes in what a handler returned.
func (w *Worker) finish(d *delivery, err error, took time.Duration) {
	outcome := w.outcomeOf(d, err)
	if w.cfg.hooks.Handled != nil {
		w.cfg.hooks.Handled(&d.record, outcome, err, took)
	}
	w.mu.Lock()
	cancel := d.cancel
	e := w.mu.state.finish(d, outcome.kind(), took)
	w.wakeLocked(d.session)
	w.mu.Unlock()
	cancel(nil)
	w.tell(e)
}

// wakeLocked wakes whoever may have something to do after a change to a session.
func (w *Worker) wakeLocked(ss *shareSession) {
	now := time.Now()
	w.wakeFetchersLocked(now)
	if ss.acking == nil && !(ss.full && w.mu.state.fetchSize(ss, now) > 0) { // else they go with the fetch
		signal(w.mu.sources[ss.node].ackWake)
	}
	if w.mu.state.stopping {
		close(w.mu.quiet)
		w.mu.quiet = make(chan struct{})
	}
}

func (w *Worker) wakeFetchersLocked(now time.Time) {
	for _, src := range w.mu.sources {
		if w.mu.state.fetchSize(src.session, now) > 0 {
			signal(src.fetchWake)
		}
	}
}

// signal leaves one signal in a channel that holds one.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Run waits until ctx ends and closes the Worker, giving handlers [DrainTimeout] to finish.
func (w *Worker) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-w.closed:
		return w.closeErr
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.cfg.drainTimeout)
	defer cancel()
	return w.Close(ctx)
}

// WorkerStatus is what a Worker is at.
type WorkerStatus struct {
	Member string // its id in the group
	Epoch  int32  // of the member; 0: it has to join again
	// Queued records wait for a handler, Running ones have one, Unacknowledged ones were
	// handled and their outcome is not on its way yet.
	Queued, Running, Unacknowledged int
	// Limit is how many records it wants to hold at present.
	Limit int
	// Partitions are those that it may get records of.
	Partitions []TopicPartition
	// Trouble is the last failure that kept it from something, if it lasts.
	Trouble error
}

// Status returns what the Worker is at.
func (w *Worker) Status() WorkerStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := &w.mu.state.queue
	s := WorkerStatus{Member: w.member, Epoch: w.mu.epoch, Queued: q.queued, Running: q.running, Limit: w.mu.state.limit(), Trouble: w.mu.trouble}
	for _, ss := range w.mu.state.sessions {
		s.Unacknowledged += ss.acks.count
	}
	for _, at := range w.mu.assigned {
		s.Partitions = append(s.Partitions, TopicPartition{w.mu.names[at.topic], at.number})
	}
	slices.SortFunc(s.Partitions, compareTopicPartitions)
	return s
}
