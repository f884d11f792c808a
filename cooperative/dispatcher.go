package cooperative

import (
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/keyfilter"
)

// Run is the offsets [Start, End).
type Run = individualcommit.Run

// Mode is how records are dealt: a group's share.delivery.mode.
type Mode uint8

const (
	RoundRobin Mode = iota // to the waiting fetches in turn
	KeyOrdered             // as well, but the records of a key to one member at a time, in order
	KeyRange               // to the member that holds the bucket of the key, in order
)

// Limits are what may change while records are out. It counts from the next change on:
// locks that are held keep their time.
type Limits struct {
	LockMs          int64 // share.record.lock.duration.ms, above 0
	Deliveries      int   // share.delivery.count.limit, 1 to 255
	Acquired        int   // share.partition.max.record.locks: how many records may be acquired at once
	BackoffMs       int64 // share.retry.backoff.ms; 0: a released record is dealt again at once
	BackoffMaxMs    int64 // share.retry.backoff.max.ms
	WaitingMaxBytes int64 // share.key.waiting.max.bytes: what is waiting past it is read again
	DeadLetters     bool  // a record waits for its dead letter before it is archived
}

// Config is what a dispatcher deals by.
type Config struct {
	Mode       Mode
	Limits     Limits
	Partition  int32          // KeyRange: which of its topic it is
	Line       keyfilter.Line // KeyRange: that of the topic
	Assignment Assignment     // KeyRange: who holds which bucket
}

// Assignment says which member holds which bucket of a topic, "" for nobody. It never
// changes. A keyfilter.Assignment is one for a topic that all members subscribe to.
type Assignment interface {
	Buckets() keyfilter.Buckets
	Holder(bucket int32) string
}

// Dispatcher decides who gets which record of one share partition next. See the package
// comment for how to drive it. It is not safe for concurrent use.
type Dispatcher struct {
	config   Config
	next     *Config // takes effect once nothing is acquired or pending
	ledger   *individualcommit.Ledger
	ahead    ahead
	leaving  leaving
	frontier int64 // the next offset to feed
	refed    int64 // below it, offsets may be fed that are known

	pages    *pages
	ended    *deliveries
	holds    holds
	members  members
	keys     arena[key]
	extras   arena[extra]
	keyBy    index
	waiting  int // records that are in the list of a key and not taken by a member
	fresh    int // records of all lanes that are not looked at
	lanes    []lane
	laneAt   []uint32 // KeyRange: the lane of every 256th key slot
	foreign  int      // the sum over the lanes
	keyAsks  []uint32 // the keys with records to read again
	spilt    int      // lanes with records to read again
	waitList []uint32 // the members whose fetches wait, in turn

	logged individualcommit.OffsetSet // blocks whose counts are in the log

	hand      hand
	gathered  gathered // empty between operations
	fetched   uint64   // keeps what fetchKeys looks at from being left out
	keysFirst bool     // whether the next deal begins with keys that had to wait, or with what is new
	delayed   uint32   // the hold that the running call has made for delayed records
	back      Run      // records on their way back to the pool
	offsets   []int64
	marks     []uint32
	streams   []stream
	heads     []head
}

// New makes the dispatcher of the share partition of a ledger, which it reads and does
// not change: before it is fed again, the ledger must have what Changes say. A mode other
// than KeyRange needs no line and no assignment.
func New(c Config, l *individualcommit.Ledger) *Dispatcher {
	d := &Dispatcher{config: c, ledger: l, frontier: l.Stable(), pages: newPages(), ended: newDeliveries(), ahead: defaultAhead, leaving: defaultLeaving}
	d.keyBy = newIndex(func(i uint32) uint64 { return d.keys.items[i].hash })
	d.members.by = make(map[string]uint32)
	d.makeLanes()
	return d
}

// Mode is how records are dealt now: Feed wants keys in all but RoundRobin.
func (d *Dispatcher) Mode() Mode { return d.config.Mode }

// Config is what the dispatcher deals by, or will once a change of its mode takes effect.
func (d *Dispatcher) Config() Config {
	if d.next != nil {
		return *d.next
	}
	return d.config
}

// SetLimits changes the limits. Raising them may make waiting fetches servable (Ready).
func (d *Dispatcher) SetLimits(l Limits) {
	d.config.Limits = l
	if d.next != nil {
		d.next.Limits = l
	}
}

// SetMode changes the mode, and what it needs, once nothing is acquired or pending. Until
// then nothing is dealt, so that it comes to that. It tells whether it has taken effect.
// FeedFrom then starts again at the stable offset.
func (d *Dispatcher) SetMode(c Config) bool {
	if c.Mode == d.config.Mode && c.Mode != KeyRange {
		d.next = nil
		return true
	}
	c.Limits = d.config.Limits
	d.next = &c
	return d.changeMode()
}

func (d *Dispatcher) changeMode() bool {
	if d.next == nil || d.holds.count[Acquired]+d.holds.count[Pending] > 0 {
		return false
	}
	d.config, d.next = *d.next, nil
	for i := 0; i < len(d.keys.items); i++ {
		if d.keys.items[i].live {
			d.dropKey(uint32(i))
		}
	}
	d.pages.dropLoose()
	d.makeLanes()
	d.keyAsks = d.keyAsks[:0]
	d.rewind(d.ledger.Stable())
	return true
}

// rewind lets feeding start again at offset.
func (d *Dispatcher) rewind(offset int64) {
	d.refed = max(d.refed, d.frontier)
	d.frontier = min(d.frontier, offset)
}

// FeedFrom is the offset from which Feed wants the next records.
func (d *Dispatcher) FeedFrom() int64 { return max(d.frontier, d.ledger.Stable()) }

// Count is how many records are in a state: Acquired, Delayed, Pending or Archiving.
func (d *Dispatcher) Count(s State) int { return d.holds.count[s] }

// NextDeadline is when Expire is to be called next, in ms; not ok: there is nothing to
// wait for.
func (d *Dispatcher) NextDeadline() (ms int64, ok bool) {
	if len(d.holds.due) == 0 {
		return 0, false
	}
	return d.holds.at(d.holds.due[0]).deadline, true
}
