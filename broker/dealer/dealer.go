package dealer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/filter"
	"github.com/lacunamq/lacuna/broker/ledgers"
	"github.com/lacunamq/lacuna/broker/share"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// Log is what dealing needs of a partition's log; a *commitlog.Log has it.
type Log interface {
	filter.Log
	AbortedTxns(from, to int64) ([]commitlog.AbortedTxn, error)
	OffsetForTimestamp(ms int64) (commitlog.TimestampedOffset, bool, error)
	Watch(ch chan<- struct{}) (cancel func())
}

// Groups knows who works for a share group.
type Groups interface {
	// Share is a group as it is now, nil if there is none of that id.
	Share(ctx context.Context, group string) (*share.View, error)
}

// Settings are what a group's settings say about dealing.
type Settings struct {
	Limits        cooperative.Limits
	ReadCommitted bool // share.isolation.level
	Renew         bool // share.renew.acknowledge.enable
	// Origin is where a ledger begins that is founded now, of a log (share.auto.offset.reset).
	Origin func(Log) (int64, error)
}

// Options are what a Dealer is opened with.
type Options struct {
	Ledgers *ledgers.Coordinator
	Groups  Groups
	// Partitions is how many partitions a topic has, 0 if there is none of that id.
	Partitions func(topic [16]byte) int32
	// Log opens the log of a partition; extension.ErrUnknownPartition if there is none.
	Log      func(extension.TopicPartition) (Log, error)
	Settings func(group string) Settings
	// DeadLetters writes dead letters; nil: records go without.
	DeadLetters DeadLetters
	// Decode decompresses batches. One that it cannot is dealt as it is, its records without
	// keys.
	Decode *commitlog.DecodeLimiter
	// Filters finds what fetches with filters take.
	Filters *filter.Reader
	Now     func() time.Time // nil: time.Now
	Logger  *zap.Logger      // nil: nothing is logged
}

// ErrStopped is what requests are refused with once the Dealer is closed.
var ErrStopped = fmt.Errorf("share partitions are closed: %w", kerr.CoordinatorNotAvailable)

// Dealer runs the share partitions of a broker. Its methods may be called from any
// goroutine.
type Dealer struct {
	opts Options
	ctx  context.Context // ends when the Dealer is closed
	stop context.CancelFunc
	wg   sync.WaitGroup

	founding founding
	settings sync.Map // *Settings by group, those that were asked for

	// roused holds a signal when there are changes of groups.
	roused chan struct{}
	// mu may be taken under the lock of a ledger, and of a share group.
	mu struct {
		sync.Mutex
		closed bool // nothing is added to wg any more
		groups map[string]map[extension.TopicPartition]*partition
		joined map[string]*share.View // of groups that may have partitions without a ledger
	}
}

// key names a share partition.
type key struct {
	group string
	extension.TopicPartition
}

func (k key) String() string {
	return "share " + individualcommit.ID{Group: k.group, Topic: k.Topic, Partition: k.Partition}.String()
}

// Open makes a Dealer. Close ends it.
func Open(o Options) *Dealer {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	d := &Dealer{opts: o, roused: make(chan struct{}, 1)}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.founding.init()
	d.mu.groups = make(map[string]map[extension.TopicPartition]*partition)
	d.mu.joined = make(map[string]*share.View)
	d.wg.Go(d.follow)
	return d
}

// Close ends the dealing. Fetches that wait are answered with nothing; what members have
// acquired is not theirs any more. The ledgers are closed after it.
func (d *Dealer) Close() {
	d.mu.Lock()
	d.mu.closed = true
	d.mu.Unlock()
	d.stop()
	d.wg.Wait()
}

// SettingsChanged tells that groups may have other settings now.
func (d *Dealer) SettingsChanged() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settings.Clear()
	for _, group := range d.mu.groups {
		for _, p := range group {
			p.rouse()
			p.letters.tryAgain() // their topic may be there now
		}
	}
}

// settingsOf are the settings of a group.
func (d *Dealer) settingsOf(group string) *Settings {
	if s, ok := d.settings.Load(group); ok {
		return s.(*Settings)
	}
	d.mu.Lock() // so that what is kept is not older than the last change
	defer d.mu.Unlock()
	s := d.opts.Settings(group)
	s.Limits.DeadLetters = s.Limits.DeadLetters && d.opts.DeadLetters != nil
	d.settings.Store(group, &s)
	return &s
}

// LockMs is how long a member of a group has a record to itself.
func (d *Dealer) LockMs(group string) int64 { return d.settingsOf(group).Limits.LockMs }

// partition is the share partition of that key, opened if need be, with its ledger
// founded.
func (d *Dealer) partition(ctx context.Context, k key) (*partition, error) {
	for {
		p, mine, err := d.entry(k)
		if err != nil {
			return nil, err
		}
		if mine {
			d.open(ctx, p)
		}
		select {
		case <-p.opened:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		switch {
		case p.openErr == nil:
			return p, nil
		case mine || !errors.Is(p.openErr, context.Canceled) && !errors.Is(p.openErr, context.DeadlineExceeded):
			return nil, p.openErr
		}
		// Whoever began to open it has gone away.
	}
}

// entry finds a share partition, or makes one that the caller has to open.
func (d *Dealer) entry(k key) (p *partition, mine bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.closed {
		return nil, false, ErrStopped
	}
	if p := d.mu.groups[k.group][k.TopicPartition]; p != nil {
		return p, false, nil
	}
	p = newPartition(d, k)
	if d.mu.groups[k.group] == nil {
		d.mu.groups[k.group] = make(map[extension.TopicPartition]*partition)
	}
	d.mu.groups[k.group][k.TopicPartition] = p
	d.wg.Add(1) // its opening, so that what that starts never comes behind Close
	return p, true, nil
}

// open opens a partition that entry has made.
func (d *Dealer) open(ctx context.Context, p *partition) {
	defer d.wg.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	if p.openErr = p.open(ctx); p.openErr != nil {
		if d.ctx.Err() != nil {
			p.openErr = ErrStopped
		}
		d.forget(p)
		p.cancel()
	}
	close(p.opened)
}

// existing is the share partition of that key if it is open, else nil.
func (d *Dealer) existing(k key) *partition {
	d.mu.Lock()
	p := d.mu.groups[k.group][k.TopicPartition]
	d.mu.Unlock()
	if p == nil || !p.usable() {
		return nil
	}
	return p
}

// of are the share partitions of a group that are open.
func (d *Dealer) of(group string) []*partition {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*partition, 0, len(d.mu.groups[group]))
	for _, p := range d.mu.groups[group] {
		if p.usable() {
			all = append(all, p)
		}
	}
	return all
}

// forget takes a partition out, so that another can be opened in its place.
func (d *Dealer) forget(p *partition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.groups[p.group][p.TopicPartition] != p {
		return
	}
	delete(d.mu.groups[p.group], p.TopicPartition)
	if len(d.mu.groups[p.group]) == 0 {
		delete(d.mu.groups, p.group)
	}
}

func (d *Dealer) nowMs() int64 { return d.opts.Now().UnixMilli() }
