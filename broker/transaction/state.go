package transaction

import (
	"math"
	"time"

	"github.com/lacunamq/lacuna/broker/deadline"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Producer is a producer id and an epoch of it.
type Producer struct {
	ID    int64
	Epoch int16
}

// None is the producer of those who have none.
var None = Producer{ID: -1, Epoch: -1}

const (
	noID    = -1
	noEpoch = -1
	// maxEpoch is given to no producer, so that each can be fenced.
	maxEpoch = math.MaxInt16
	// noTimestamp is the start of a transaction that has none.
	noTimestamp = -1
	// epochBumps is the version from which the end of a transaction bumps the epoch.
	epochBumps = 2
)

// exhausted tells whether a producer with that epoch needs a new id for another one.
func exhausted(epoch int16) bool { return epoch >= maxEpoch-1 }

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Config holds the broker settings that decide about transactions.
type Config struct {
	// MaxTimeout is the longest timeout that a producer may ask for
	// (transaction.max.timeout.ms).
	MaxTimeout time.Duration
	// IDExpiration is how long a transactional id without a transaction is kept after its
	// last use (transactional.id.expiration.ms).
	IDExpiration time.Duration
}

// DefaultConfig is Kafka's.
func DefaultConfig() Config {
	return Config{MaxTimeout: 15 * time.Minute, IDExpiration: 7 * 24 * time.Hour}
}

// Output collects what operations want done.
type Output struct {
	// Records are to be appended to the log in this order.
	Records []Record
	// Ended are transactional ids whose transaction was decided: once the records are
	// durable, what Completion says of them is to be done.
	Ended []string
}

// State is the transactional ids of one partition of __transaction_state. It is not safe
// for concurrent use.
type State struct {
	config    Config
	ids       map[string]*entry
	deadlines deadline.Queue[*entry] // see due
}

// entry is one transactional id.
type entry struct {
	id string
	value
	expected []TopicPartition // see State.Expect
	deadline deadline.Deadline[*entry]
}

// value is what the log says of a transactional id.
type value struct {
	producer   Producer
	previousID int64 // the producer id before the last change
	nextID     int64 // the producer id that follows when the markers are written; or noID
	initEpoch  int16 // in Empty: the epoch that InitProducerId took the current one from; or noEpoch
	version    int8  // of the protocol, as of the last change of the transaction
	status     Status
	timeoutMs  int32
	partitions []TopicPartition // in order, without doubles; never written to
	startMs    int64
	updateMs   int64
}

// follows tells whether the producer of now is the successor of p, which may come again
// because it did not hear so: after InitProducerId by p, or after the end of a transaction
// of p by version 2.
func (v *value) follows(p Producer) bool {
	before := Producer{ID: v.producer.ID, Epoch: noEpoch}
	switch {
	case v.status == Empty:
		before.Epoch = v.initEpoch
	case v.status.complete() && v.version >= epochBumps:
		if before.Epoch = v.producer.Epoch - 1; v.rotated() {
			before.Epoch = maxEpoch - 1
		}
	}
	if v.rotated() {
		before.ID = v.previousID
	}
	return before.Epoch != noEpoch && p == before
}

// rotated tells whether the last change took a new producer id.
func (v *value) rotated() bool { return v.previousID != v.producer.ID }

// NewState returns a State without transactional ids. Apply what the log holds; then write
// the markers of those that Ending lists.
func NewState(config Config) *State {
	return &State{config: config, ids: make(map[string]*entry)}
}

// SetConfig changes the settings from now on.
func (s *State) SetConfig(config Config) {
	s.config = config
	for _, e := range s.ids {
		s.schedule(e)
	}
}

// Len is the number of transactional ids.
func (s *State) Len() int { return len(s.ids) }

// Apply carries out a record of the log or of a view. It keeps nothing of key and value. A
// record that is malformed or of an unknown version is an ErrBadRecord and changes nothing.
func (s *State) Apply(key, val []byte) error {
	id, v, err := decodeRecord(key, val)
	if err != nil {
		return err
	}
	s.set(id, v)
	return nil
}

// emit logs that a transactional id becomes v, or is forgotten if v is nil.
func (s *State) emit(id string, v *value, out *Output) {
	out.Records = append(out.Records, encodeRecord(id, v))
	s.set(id, v)
}

func (s *State) set(id string, v *value) {
	e := s.ids[id]
	if v == nil {
		if e != nil {
			s.deadlines.Clear(&e.deadline)
			delete(s.ids, id)
		}
		return
	}
	if e == nil {
		e = &entry{id: id}
		e.deadline.Of = e
		s.ids[id] = e
	}
	e.value = *v
	s.schedule(e)
}

// schedule sets the deadline of a transactional id.
func (s *State) schedule(e *entry) {
	if at, ok := s.due(&e.value); ok {
		s.deadlines.Set(&e.deadline, at)
	} else {
		s.deadlines.Clear(&e.deadline)
	}
}

// successor is v as it was, but for what every change of it sets.
func (v *value) successor(now time.Time, status Status) *value {
	next := *v
	next.status, next.updateMs = status, now.UnixMilli()
	next.previousID = v.producer.ID
	next.initEpoch = noEpoch
	return &next
}

// check tells whether p is the producer that a transactional id has now.
func (v *value) check(p Producer) *kerr.Error {
	switch {
	case p.ID != v.producer.ID:
		return kerr.InvalidProducerIDMapping
	case p.Epoch != v.producer.Epoch || p.Epoch == maxEpoch:
		return kerr.ProducerFenced
	}
	return nil
}
