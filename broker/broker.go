package broker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lacunamq/lacuna/broker/coordinator"
	"github.com/lacunamq/lacuna/broker/dealer"
	"github.com/lacunamq/lacuna/broker/filter"
	"github.com/lacunamq/lacuna/broker/ledgers"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/broker/txncoordinator"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/statestore"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"
)

// Broker is a running broker.
type Broker struct {
	cfg    Config
	log    *zap.Logger
	limits limits
	apis   apiTable

	dir          *dataDir
	syncs        *commitlog.SyncLimiter
	reserve      *commitlog.Reserve
	decoding     *commitlog.DecodeLimiter
	store        *statestore.DB
	controller   *controller
	topics       *topics
	groups       *coordinator.Coordinator
	ledgers      *ledgers.Coordinator
	transactions *txncoordinator.Coordinator
	producerIDs  *producerIDs
	dealer       *dealer.Dealer
	sessions     *fetchSessions
	// shareSessions are those of share groups.
	shareSessions *shareSessions
	filters       *filter.Reader
	// memory is for requests that may wait for others, appendMemory for the rest.
	memory, appendMemory *requestMemory
	fetchMemory          *semaphore.Weighted // for fetched data
	metrics              *metrics
	listeners            *listeners
	admin                *adminServer

	current       atomic.Pointer[brokerSettings]
	flushInterval time.Duration

	nodeID    int32
	clusterID string

	background struct {
		cancel context.CancelFunc
		wg     sync.WaitGroup
	}
	upkeepEvery upkeepIntervals
	recovered   bool // the start got as far as the listeners
	stopOnce    sync.Once
	stopErr     error
}

// Start starts a broker and returns once clients can connect. Its recovery may be cut
// short through ctx; afterwards ctx has no meaning. Whoever starts a broker stops it.
func Start(ctx context.Context, cfg Config) (*Broker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	b := &Broker{cfg: cfg, log: cfg.Logger, apis: newAPITable()}
	if err := b.configure(cfg.Settings); err != nil {
		return nil, err
	}
	if err := b.start(ctx); err != nil {
		// What recovered the data before it found its port taken leaves them as clean as it
		// would have after it had served.
		return nil, errors.Join(err, b.shut(ctx, b.recovered))
	}
	return b, nil
}

// start brings the parts up from the bottom. On an error the caller shuts down what
// there is.
func (b *Broker) start(ctx context.Context) (err error) {
	if b.dir, err = openDataDir(b.cfg.FS, b.cfg.DataDir); err != nil {
		return err
	}
	b.clusterID = b.dir.meta.ClusterID
	b.reserve = commitlog.NewReserve(b.cfg.FS, b.dir.join("reserve"))
	b.keepReserve()
	b.syncs = commitlog.NewSyncLimiter(maxConcurrentSyncs)
	b.decoding = commitlog.NewDecodeLimiter(runtime.GOMAXPROCS(0), b.limits.maxDecoded)
	if b.store, err = b.openStore(); err != nil {
		return err
	}
	b.filters = filter.New(b.filterConfig())
	b.topics = newTopics(b)
	if b.controller, err = openController(ctx, b); err != nil {
		return err
	}
	b.refreshSettings(b.controller.image.Load())
	b.topics.apply(b.controller.image.Load())
	if err := b.openLogs(ctx); err != nil {
		return err
	}
	b.producerIDs = &producerIDs{reserve: b.controller.reserveProducerIDs}
	if err := b.createInternalTopics(); err != nil {
		return err
	}
	if err := b.openGroups(ctx); err != nil {
		return err
	}
	if err := b.openLedgers(ctx); err != nil {
		return err
	}
	b.openDealer()
	if err := b.openTransactions(ctx); err != nil {
		return err
	}
	b.memory, b.appendMemory = newRequestMemory(b.limits.memoryBytes/2), newRequestMemory(b.limits.memoryBytes/2)
	b.fetchMemory = semaphore.NewWeighted(b.limits.fetchMemory)
	b.sessions = newFetchSessions(b.limits.fetchSessions, time.Now)
	b.shareSessions = newShareSessions(b.limits.shareSessions)
	b.recovered = true
	if b.listeners, err = listen(b); err != nil {
		return err
	}
	b.metrics = newMetrics(b)
	if b.cfg.Admin != "" {
		if b.admin, err = startAdmin(b, b.cfg.Admin); err != nil {
			return err
		}
	}
	background, cancel := context.WithCancel(context.Background())
	b.background.cancel = cancel
	b.background.wg.Go(func() { b.upkeep(background) })
	b.background.wg.Go(func() { b.groupUpkeep(background) })
	b.listeners.serve()
	return nil
}

// maxConcurrentSyncs is how many fsyncs run at a time: more would only queue in the
// device.
const maxConcurrentSyncs = 4

// Addr is the address of the first listener, HOST:PORT.
func (b *Broker) Addr() string { return b.listeners.all[0].ln.Addr().String() }

// Addrs are the addresses of all listeners.
func (b *Broker) Addrs() []string {
	addrs := make([]string, len(b.listeners.all))
	for i, l := range b.listeners.all {
		addrs[i] = l.ln.Addr().String()
	}
	return addrs
}

// AdminAddr is the address of the admin listener, empty without one.
func (b *Broker) AdminAddr() string {
	if b.admin == nil {
		return ""
	}
	return b.admin.ln.Addr().String()
}

// Stop stops the broker: it answers what has begun, writes what has to be written, and
// marks the data directory as cleanly left. When ctx ends, connections that are not
// done are cut; the rest is done all the same. It may be called more than once.
func (b *Broker) Stop(ctx context.Context) error {
	b.stopOnce.Do(func() {
		if b.admin != nil {
			b.stopErr = b.admin.stop(ctx)
		}
		b.stopErr = errors.Join(b.stopErr, b.shut(ctx, true))
	})
	return b.stopErr
}

// shut ends what runs, from the top.
func (b *Broker) shut(ctx context.Context, clean bool) error {
	var errs []error
	keep := func(what string, err error) {
		if err != nil {
			clean = false
			errs = append(errs, fmt.Errorf("stop %s: %w", what, err))
		}
	}
	if b.listeners != nil {
		errs = append(errs, b.listeners.close(ctx))
	}
	if b.background.cancel != nil {
		b.background.cancel()
		b.background.wg.Wait()
	}
	if b.transactions != nil {
		keep("the transaction coordinator", b.transactions.Close(context.Background()))
	}
	if b.dealer != nil {
		b.dealer.Close()
	}
	if b.ledgers != nil {
		keep("the ledgers", b.ledgers.Close(context.Background()))
	}
	if b.groups != nil {
		keep("the group coordinator", b.groups.Close(context.Background()))
	}
	if b.topics != nil {
		keep("the topics", b.topics.close())
	}
	if b.controller != nil {
		keep("the controller", b.controller.close(context.Background()))
	}
	if b.store != nil {
		keep("the state store", b.store.Close())
	}
	if b.dir != nil {
		keep("the data directory", b.dir.close(clean))
	}
	return errors.Join(errs...)
}

// metadataChanged makes the topics those of a new image. The controller calls it, one
// call at a time.
func (b *Broker) metadataChanged(image *metadata.Image) {
	b.refreshSettings(image)
	deleted := b.topics.apply(image)
	b.tellShareGroups(image)
	for _, t := range deleted {
		b.forgetLedgers(t)
		b.forgetTopic(t)
		b.discard(t)
	}
}

func (b *Broker) nowMs() int64 { return time.Now().UnixMilli() }
