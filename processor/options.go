package processor

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/statestore"
)

// Option is an option of [Open].
type Option func(*config)

type config struct {
	kafka       []kgo.Opt
	member      []kgo.Opt
	fs          vfs.FS
	dir         string
	name        string
	initial     int32
	exactlyOnce bool
	threshold   int64
	unitRecords int
	fetchBytes  int32
	onError     ErrorPolicy
	deadLetters string
	opener      statestore.Opener
	hooks       Hooks
	now         func() time.Time
	backoff     func(tries int) time.Duration
	txnTimeout  time.Duration
	// outlet lets tests put what does wrong in the place of an outlet.
	outlet     func(a *App, right outlet) outlet
	changelog  string
	emptyState bool
}

// Hooks tell what happens inside an App, for metrics and logs. Any may be nil. They hold up
// the task that calls them, and may be called from several goroutines.
type Hooks struct {
	// Assigned: the member has these tasks from now on.
	Assigned func(tasks []TaskStatus)
	// Failed: something went wrong, and is tried again.
	Failed func(err error)
	// Restarted: a task begins anew from its last commit, because of err.
	Restarted func(bucket int32, err error)
	// Committed: a unit of work of so many records has been committed, not counting those that
	// were applied silently, of which there were as many as replayed says.
	Committed func(bucket int32, records, replayed int)
	// Restored: a task begins to process what it was given, after so many records of the
	// changelog were read for it.
	Restored func(bucket int32, records int)
}

func defaultConfig() config {
	return config{
		fs: vfs.Default, initial: 1, threshold: 1000, unitRecords: 1000, fetchBytes: 512 << 10, now: time.Now,
		onError: func(*kgo.Record, error, int) Decision { return Stop() },
		member:  []kgo.Opt{kgo.HeartbeatInterval(100 * time.Millisecond), kgo.MetadataMaxAge(10 * time.Second)},
		backoff: func(tries int) time.Duration {
			return min(50*time.Millisecond<<min(tries-1, 10), 5*time.Second)
		},
		txnTimeout: 10 * time.Second,
	}
}

// KafkaOpts are kgo's options of all connections: brokers, TLS, SASL, loggers.
func KafkaOpts(opts ...kgo.Opt) Option {
	return func(c *config) { c.kafka = append(c.kafka, opts...) }
}

// SeedBrokers are the addresses to begin with.
func SeedBrokers(addrs ...string) Option { return KafkaOpts(kgo.SeedBrokers(addrs...)) }

// MemberOpts are kgo's options of the membership, such as kgo.SessionTimeout. Heartbeats are
// sent every 100 ms by default, since a hand-over takes a few of them, and partitions that
// were added are found within 10 s: kgo.MetadataMaxAge.
func MemberOpts(opts ...kgo.Opt) Option {
	return func(c *config) { c.member = append(c.member, opts...) }
}

// StateDir is where durable stores are kept, a directory of this process alone. It is needed
// with AckAtProcess and stores.
func StateDir(dir string) Option { return func(c *config) { c.dir = dir } }

// StateFS is the file system of StateDir, for tests.
func StateFS(fs vfs.FS) Option { return func(c *config) { c.fs = fs } }

// StoreOpener opens what stores are kept in: by default statestore.Pebble with AckAtProcess
// and statestore.InMemory with AckOnPunctuate.
func StoreOpener(o statestore.Opener) Option { return func(c *config) { c.opener = o } }

// Name names the process, for people and, with ExactlyOnce, for its transactions: opened
// again under the same name it aborts what it left open at once, and not after the
// transaction timeout. Two processes must not have the same.
func Name(name string) Option { return func(c *config) { c.name = name } }

// InitialBuckets is the number of buckets a group is founded with, 1 by default, and
// remembers for its life.
func InitialBuckets(n int32) Option { return func(c *config) { c.initial = n } }

// ExactlyOnce makes outputs and acknowledgements one transaction, and reads inputs with
// read_committed. The default is at least once.
func ExactlyOnce() Option { return func(c *config) { c.exactlyOnce = true } }

// TransactionTimeout bounds a transaction; what a process that is gone left open is aborted
// after it. The default is 10 s.
func TransactionTimeout(d time.Duration) Option { return func(c *config) { c.txnTimeout = d } }

// HandOverThreshold is how many offsets behind the ledger a state may be, of all partitions
// together, when its bucket is handed over. The default is 1,000.
func HandOverThreshold(offsets int64) Option { return func(c *config) { c.threshold = offsets } }

// UnitRecords bounds the records of a unit of work, which are committed together. Fewer are
// when there are no more. The default is 1,000.
func UnitRecords(n int) Option { return func(c *config) { c.unitRecords = n } }

// FetchMaxBytes bounds what a task fetches of its inputs at a time, in bytes as they are
// stored, except that one batch always comes. The next is fetched while the task works, so
// it holds two or three of these, and a record takes some 180 bytes more than it has. The
// default is 512 KiB; where a broker is far away more is faster.
func FetchMaxBytes(n int32) Option { return func(c *config) { c.fetchBytes = n } }

// OnError decides what becomes of records that fail. The default stops the App.
func OnError(p ErrorPolicy) Option { return func(c *config) { c.onError = p } }

// DeadLetters is the topic for records that are skipped.
func DeadLetters(topic string) Option { return func(c *config) { c.deadLetters = topic } }

// OnEvents tells what happens.
func OnEvents(h Hooks) Option { return func(c *config) { c.hooks = h } }

func (c *config) validate(t *Topology) error {
	switch {
	case c.initial < 1:
		return fmt.Errorf("%d initial buckets", c.initial)
	case c.unitRecords < 1:
		return fmt.Errorf("%d records in a unit of work", c.unitRecords)
	case c.fetchBytes < 1:
		return fmt.Errorf("%d bytes of inputs in a fetch", c.fetchBytes)
	case c.threshold < 0:
		return fmt.Errorf("hand-over threshold %d is negative", c.threshold)
	case t.Ack == AckAtProcess && c.dir == "" && t.hasStores():
		return errors.New("durable stores need a directory: processor.StateDir")
	}
	return c.validateChangelog(t)
}

func (t *Topology) hasStores() bool {
	for i := range t.Processors {
		if len(t.Processors[i].Stores) > 0 {
			return true
		}
	}
	return false
}

// readerOpts are the options of every Reader of a task.
func (c *config) readerOpts() []client.ReaderOpt {
	opts := []client.ReaderOpt{client.StableLedger(), client.FetchMaxBytes(c.fetchBytes), client.FetchMaxPartitionBytes(c.fetchBytes)}
	if c.exactlyOnce {
		opts = append(opts, client.ReadCommitted())
	}
	return opts
}
