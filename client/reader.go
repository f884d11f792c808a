package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Reader reads topic partitions, or a part of their keys, and commits records one by one.
//
// Its calls may be made from any goroutine. Several goroutines may poll; each record goes
// to one of them.
//
// Inside, one goroutine per broker fetches (source), one sends commits (committer), and
// one keeps metadata and ledgers fresh (upkeep). What a Reader knows of a partition is a
// progress, behind mu.
type Reader struct {
	cl  *kgo.Client
	kad *kadm.Client
	cfg readerConfig
	// decompressor is kgo's, with the bound that the options set.
	decompressor kgo.Decompressor

	commits *committer // nil without a group
	upkeep  *upkeep

	ctx    context.Context // ends when the Reader is closed
	cancel context.CancelFunc
	wg     sync.WaitGroup

	receivedRecords, receivedBytes atomic.Int64

	mu struct {
		sync.Mutex
		partitions map[TopicPartition]*partition
		sources    map[int32]*source // by the node id of the broker
		ready      []*chunk          // fetched, in order, for Poll
		errs       []error           // for Poll
		trouble    error             // why fetching does not get on, for Poll's patience
		changed    chan struct{}     // closed and replaced when ready or errs grew, closed was set, or a transaction ended
		closed     bool
		slots      *slotFilter // of what is wanted now; nil: everything
		// inTransactions counts the transactions that have records of the Reader.
		inTransactions int
	}
}

// partition is what a Reader holds of one topic partition. Its fields are behind the
// Reader's mu.
type partition struct {
	tp     TopicPartition
	id     topicID
	origin int64 // where its ledger is founded if it has none
	end    int64 // it is not read any further; math.MaxInt64: without end
	progress

	leader      int32
	leaderEpoch int32
	// fetchedEpoch is the leader epoch of the last record fetched, -1 before the first.
	fetchedEpoch int32
	// highWatermark and lastStable are the ends of the log that the last fetch saw, -1 before.
	highWatermark, lastStable int64
	// lost is what the log no longer holds of what was delivered.
	lost truncation

	// validate and reposition ask upkeep to look at the log: whether it still is the one
	// that was read, and where it begins and ends.
	validate, reposition bool
	// stale asks upkeep to read the ledger.
	stale bool

	// doubted are offsets of transactions whose outcome the ledger has to tell.
	doubted []Run

	buffered int // chunks in Reader.mu.ready

	tries   int       // fetches that failed in a row
	retryAt time.Time // no fetch before
	failure string    // what was last reported, so that it is not reported again and again
	broken  error     // why it is read no more
}

// truncation is the end of a leader epoch that a log lost the rest of.
type truncation struct {
	epoch int32
	end   int64
}

// has tells whether the record of that offset and leader epoch was lost.
func (t truncation) has(offset int64, epoch int32) bool {
	return t.end > 0 && epoch >= 0 && epoch <= t.epoch && offset >= t.end
}

// OpenReader connects, finds out where to begin in every partition, and starts to fetch.
// It fails with a [FeatureError] if the broker cannot do what the options need.
func OpenReader(ctx context.Context, opts ...ReaderOpt) (*Reader, error) {
	cfg := defaultReaderConfig()
	for _, o := range opts {
		o.applyReader(&cfg)
	}
	return openReader(ctx, cfg)
}

func openReader(ctx context.Context, cfg readerConfig) (*Reader, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open a reader: %w", err)
	}
	r := &Reader{cfg: cfg}
	r.mu.partitions = make(map[TopicPartition]*partition)
	r.mu.sources = make(map[int32]*source)
	r.mu.changed = make(chan struct{})
	if cfg.filtered() {
		slots, err := newSlotFilter(cfg.filter)
		if err != nil {
			return nil, fmt.Errorf("open a reader: %w", err)
		}
		r.mu.slots = slots
	}
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.MaxDecompressBatchBytes(maxDecompressBytes)}, cfg.kafka...)...)
	if err != nil {
		return nil, fmt.Errorf("open a reader: %w", err)
	}
	r.cl, r.kad = cl, kadm.NewClient(cl)
	r.decompressor = cl.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
	if err := r.begin(ctx); err != nil {
		cl.Close()
		return nil, fmt.Errorf("open a reader: %w", err)
	}
	r.start()
	return r, nil
}

// begin checks the broker and positions every partition.
func (r *Reader) begin(ctx context.Context) error {
	if err := requireFeatures(ctx, r.cl, r.cfg.features()...); err != nil {
		return err
	}
	topics, err := findTopics(ctx, r.cl, r.cfg.topicNames()...)
	if err != nil {
		return err
	}
	found, err := r.cfg.assignment(topics)
	if err != nil {
		return err
	}
	for _, p := range found {
		p.all = r.cfg.deliverCommitted
	}
	if r.cfg.stableLedger {
		if err := r.awaitPending(ctx, found); err != nil {
			return err
		}
	}
	if err := r.positionAll(ctx, found, r.cfg.reset); err != nil {
		return err
	}
	for _, p := range found {
		r.mu.partitions[p.tp] = p
	}
	return nil
}

// start starts the goroutines.
func (r *Reader) start() {
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.upkeep = newUpkeep(r)
	if r.cfg.group != "" {
		r.commits = newReaderCommitter(r)
		go r.commits.run(r.ctx)
	}
	r.wg.Go(func() { r.upkeep.run(r.ctx) })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.assignSourcesLocked()
}

// Close stops fetching, sends the commits that are queued, waits for their answers, and for
// transactions with records of the Reader, until ctx ends, and closes the connections. It
// returns what failed. Commits that are not answered in time may have happened all the same.
func (r *Reader) Close(ctx context.Context) error {
	r.mu.Lock()
	if r.mu.closed {
		r.mu.Unlock()
		return nil
	}
	r.mu.closed = true
	r.notifyLocked()
	r.mu.Unlock()
	var err error
	if r.commits != nil {
		err = errors.Join(r.commits.flush(ctx), r.awaitTransactions(ctx))
	}
	r.cancel()
	if r.commits != nil {
		<-r.commits.done
	}
	r.wg.Wait()
	r.cl.Close()
	return err
}

// Kafka is the kgo client below, for what this package has no word for. It is closed with
// the Reader.
func (r *Reader) Kafka() *kgo.Client { return r.cl }

// notifyLocked wakes those that poll.
func (r *Reader) notifyLocked() {
	close(r.mu.changed)
	r.mu.changed = make(chan struct{})
}

// reportLocked leaves an error for Poll, once for each new reason.
func (r *Reader) reportLocked(p *partition, doing string, err error) {
	if p.failure == err.Error() {
		return
	}
	p.failure = err.Error()
	r.mu.errs = append(r.mu.errs, &PartitionError{Topic: p.tp.Topic, Partition: p.tp.Partition, Group: r.cfg.group, Doing: doing, Err: err})
	r.notifyLocked()
}
