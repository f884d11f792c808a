package individualcommit

import (
	"errors"
	"fmt"
	"iter"
	"maps"
)

// ErrLost marks a ledger of which records are missing in the internal log.
var ErrLost = errors.New("records of the ledger are missing in " + TopicName)

// State is the ledgers of one partition of the internal log. Log and its like change a
// ledger and give the record that says so; Apply takes the records of the log, in the
// log's order or in the order of their keys, and makes the same ledgers of them. Both
// change a ledger by the same code.
//
// Of the log, a cleaner may at any time have removed records that a later one with the
// same key supersedes. What counts of a ledger is its last snapshot and the deltas of
// that snapshot's generation, and those no cleaner removes.
type State struct {
	ownerEpoch int32
	newest     int32  // the highest owner epoch applied: records of an older owner are void
	generation uint64 // the highest seen: a ledger is founded above it, so that no delta of one deleted before can be taken for its own
	groups     map[string]map[topicPartition]*Entry
	staging    map[Producer]map[ID]int // how many pending records a transaction has, by ledger
	unknown    int
	memory     int64
	ring       int32 // how many delta positions are used, RingSize but in tests
	deltasMin  int   // see snapshotDue
	scratch    change
	spare      [][]byte // values of counts that went away
	packer     packer
}

type topicPartition struct {
	topic     [16]byte
	partition int32
}

// Entry is a ledger of a State, with what its records say besides.
type Entry struct {
	ID           ID
	Ledger       *Ledger // to be changed by the State only, but for AdvanceStart and Close
	Metadata     string  // of the last cumulative commit
	LastCommitMs int64   // when the last commit that changed something came

	founded       bool
	epoch         int32  // the owner epoch of the last snapshot
	generation    uint64 // of the last snapshot
	position      int32  // of the next delta
	ring          int32  // one past the highest position that the log may hold a delta at
	deltaBytes    int    // of the deltas since the last snapshot, keys included
	snapshotBytes int
	snapshotGaps  int64 // in the last snapshot
	trouble       error
	orphans       map[ringKey]uint64 // the generations of deltas whose snapshot was not seen
	staged        map[stagedKey]staged
	outcomes      map[outcomeKey]outcome // of transactions whose end waits for the ledger
	unread        int                    // how many records in staged and outcomes cannot be read
	counts        map[int64]countBlock
	countsBytes   int64 // of memory
	unknownCounts int   // how many blocks are of an unknown version
	memory        int64
}

// ringKey tells the deltas of a ledger apart.
type ringKey struct {
	ownerEpoch, position int32
}

// stagedKey tells the pending records of a ledger apart.
type stagedKey struct {
	ownerEpoch int32
	producerID int64
	counter    int32
}

func (k stagedKey) of(e *Entry) *Key {
	return &Key{OwnerEpoch: k.ownerEpoch, ID: e.ID, Kind: KindPending, ProducerID: k.producerID, Counter: k.counter}
}

// entryBytes is about what an Entry takes in memory beside its ledger's sets.
const entryBytes = 464

// NewState is a State without ledgers, whose records bear the given owner epoch.
func NewState(ownerEpoch int32) *State {
	return &State{
		ownerEpoch: ownerEpoch,
		groups:     make(map[string]map[topicPartition]*Entry),
		staging:    make(map[Producer]map[ID]int),
		ring:       RingSize,
		deltasMin:  deltasMin,
	}
}

// Get is the entry of a ledger, nil if it was never founded. An entry in trouble
// is given too.
func (s *State) Get(id ID) *Entry {
	if e := s.groups[id.Group][topicPartition{id.Topic, id.Partition}]; e != nil && (e.founded || e.Trouble() != nil) {
		return e
	}
	return nil
}

// Group yields the entries of a group, in no order.
func (s *State) Group(group string) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for _, e := range s.groups[group] {
			if (e.founded || e.Trouble() != nil) && !yield(e) {
				return
			}
		}
	}
}

// All yields all entries, in no order.
func (s *State) All() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for group := range s.groups {
			for e := range s.Group(group) {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// MemoryBytes is about how much memory the ledgers take.
func (s *State) MemoryBytes() int64 { return s.memory }

// Unknown is how many records of unknown versions were seen, and left alone.
func (s *State) Unknown() int { return s.unknown }

// Trouble tells why the entry's ledger cannot be trusted, once the log was applied to its
// end: records of it are missing, corrupt or of an unknown version.
func (e *Entry) Trouble() error {
	switch {
	case e.trouble != nil:
		return e.trouble
	case e.unread > 0:
		return e.whyUnread()
	case len(e.orphans) > 0 || (!e.founded && len(e.staged) > 0):
		return fmt.Errorf("%w: there is no snapshot", ErrLost)
	case e.founded && e.unknownCounts > 0:
		return fmt.Errorf("%w: delivery counts", ErrUnknownVersion)
	default:
		return nil
	}
}

// entry is the entry of a ledger, made if there is none.
func (s *State) entry(id ID) *Entry {
	of := s.groups[id.Group]
	if of == nil {
		of = make(map[topicPartition]*Entry)
		s.groups[id.Group] = of
	}
	tp := topicPartition{id.Topic, id.Partition}
	e := of[tp]
	if e == nil {
		e = &Entry{ID: id, Ledger: new(Ledger)}
		of[tp] = e
		s.recount(e)
	}
	return e
}

func (s *State) remove(e *Entry) {
	s.memory -= e.memory
	of := s.groups[e.ID.Group]
	delete(of, topicPartition{e.ID.Topic, e.ID.Partition})
	if len(of) == 0 {
		delete(s.groups, e.ID.Group)
	}
}

// removeIfNothing removes an entry that stands for no ledger, nor for a lost one.
func (s *State) removeIfNothing(e *Entry) {
	if !e.founded && len(e.staged)+len(e.counts)+len(e.outcomes) == 0 && e.Trouble() == nil {
		s.remove(e)
	}
}

// recount brings the memory count up to date with a change of e.
func (s *State) recount(e *Entry) {
	now := entryBytes + int64(len(e.ID.Group)+len(e.Metadata)) + e.Ledger.MemoryBytes() + e.countsBytes
	s.memory += now - e.memory
	e.memory = now
}

// apply is what a change does, live or replayed.
func (s *State) apply(e *Entry, c *change) {
	if c.floor > e.Ledger.stable {
		e.Ledger.commitTo(c.floor)
	}
	e.Ledger.Apply(c.delta)
	e.LastCommitMs = c.lastCommitMs
	if c.metadata != nil {
		e.Metadata = *c.metadata
	}
	s.recount(e)
}

// deltaWritten moves on by one position of the ring.
func (e *Entry) deltaWritten(size int) {
	e.position++
	e.ring = max(e.ring, e.position)
	e.deltaBytes += size
}

// snapshotWritten begins a new round of the ring, with a whole ledger.
func (e *Entry) snapshotWritten(size int) {
	e.position, e.deltaBytes = 0, 0
	e.snapshotBytes, e.snapshotGaps = size, e.Ledger.GapCount()
	e.founded, e.trouble = true, nil
	maps.DeleteFunc(e.orphans, func(_ ringKey, generation uint64) bool { return generation <= e.generation })
}
