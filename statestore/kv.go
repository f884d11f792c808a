package statestore

import (
	"errors"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/protocol"
)

var (
	// ErrUncommittedFull refuses a change because the window of uncommitted ones is
	// full. Commit or roll back, then try again.
	ErrUncommittedFull = errors.New("too much is uncommitted in the state store")
	// ErrInvalidOffset refuses an Offset that names no log, no slots or no offset. Every
	// store that keeps its own offsets gives it, with nothing changed, so Keep can tell
	// by it that something behind a Store keeps offsets.
	ErrInvalidOffset = errors.New("invalid offset")
	// ErrReadOnly refuses a change of a store that was opened on a file system of ReadOnly.
	ErrReadOnly = errors.New("state store is open for reading only")
)

// Store is the keys and values of one task, with uncommitted changes on top that its
// reads see. One goroutine at a time may use it.
//
// The slices that it is given are copied. The slices that Get returns are the caller's
// to keep, but not to change.
type Store interface {
	// Get returns the value of key, with the uncommitted changes.
	Get(key []byte) (value []byte, ok bool, err error)
	// Put gives key a value, ErrUncommittedFull if there is no room for the change.
	Put(key, value []byte) error
	// Delete removes key, which need not exist. It takes room as Put does.
	Delete(key []byte) error
	// Range goes through the keys in [from, to) in order; nil leaves that side open. It
	// shows what there was when the loop began, uncommitted changes included; the loop
	// may change the store, commit and roll back, and does not see that. Leaving the loop
	// frees what it holds; Close ends it with ErrClosed. An error ends it.
	Range(from, to []byte) iter.Seq2[Entry, error]
	// Prefix is Range over the keys that start with prefix.
	Prefix(prefix []byte) iter.Seq2[Entry, error]
	// UncommittedBytes is how much of the window is taken.
	UncommittedBytes() int
	// Commit makes the uncommitted changes and the offsets true in one step. Offsets
	// that are not named stay as they are, so Commit() keeps all; an offset whose Next is
	// -1 is forgotten. After ErrInvalidOffset and ErrNoSpace everything is as it was.
	//
	// A store that keeps no offsets of its own ignores those it is given.
	Commit(offsets ...Offset) error
	// Rollback drops the uncommitted changes.
	Rollback() error
	// Wipe empties the store of data, offsets and uncommitted changes. When it returns no
	// crash brings any of it back.
	Wipe() error
	// Close drops the uncommitted changes and frees what the store holds. Closing twice
	// is no error.
	Close() error
}

// OffsetKeeper is implemented by a store that keeps its own offsets, atomically with its
// data. What wraps such a store must implement it too, or have a method Unwrap() Store;
// Keep refuses a wrapper that hides it.
type OffsetKeeper interface {
	// CommittedOffset is the least next offset within the slots of s. ok is false unless
	// the store has one for each of them.
	CommittedOffset(s Source) (next int64, ok bool, err error)
	// Offsets lists all that the store has, in the order of topic, id, partition and slot.
	Offsets() ([]Offset, error)
}

// OffsetStore is a store whose offsets can be asked for.
type OffsetStore interface {
	Store
	OffsetKeeper
}

// Syncer is implemented by a store whose Commit may return before the changes survive a
// crash of the machine. After Sync they do.
type Syncer interface{ Sync() error }

// Persister is implemented by a store that may have nothing on disk. One that answers
// false starts empty each time it is opened, and files with offsets are not for it.
type Persister interface{ Persistent() bool }

// Source is a part of a partition: the records of some key slots. TopicID is zero where
// it is not known, as in the files of Kafka Streams; an offset kept so counts for the
// topic of that name whatever its id, until one is committed with the id.
type Source struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
	Slots     protocol.SlotRange
}

// Offset is how far a source has been applied. Next is the next offset to apply.
type Offset struct {
	Source
	Next int64
}

// Forgotten is the Next of an offset that Commit removes.
const Forgotten int64 = -1

// Entry is one key with its value. Its slices are valid until the next step of the loop.
type Entry struct{ Key, Value []byte }

// Opener opens the store in dir of fs and makes one if there is none. On a file system
// of ReadOnly it opens what there is and changes nothing.
type Opener func(fs vfs.FS, dir string) (Store, error)

// topicNameMax is the longest name of a topic that Kafka allows.
const topicNameMax = 249

func checkOffsets(offsets []Offset) error {
	for i := range offsets {
		if err := offsets[i].check(); err != nil {
			return err
		}
	}
	return nil
}

func (o *Offset) check() error {
	switch {
	case len(o.Topic) == 0 || len(o.Topic) > topicNameMax:
		return fmt.Errorf("%w: a topic's name has 1 to %d bytes, not %d", ErrInvalidOffset, topicNameMax, len(o.Topic))
	case o.Partition < 0:
		return fmt.Errorf("%w: topic %s, partition %d", ErrInvalidOffset, o.Topic, o.Partition)
	case o.Slots.Lo > o.Slots.Hi:
		return fmt.Errorf("%w: %s-%d, slots %d-%d", ErrInvalidOffset, o.Topic, o.Partition, o.Slots.Lo, o.Slots.Hi)
	case o.Next < Forgotten:
		return fmt.Errorf("%w: %s-%d, next offset %d", ErrInvalidOffset, o.Topic, o.Partition, o.Next)
	}
	return nil
}

// entryOverhead stands for what a change takes besides its key and value.
const entryOverhead = 16

// window is the size of the uncommitted changes.
type window struct{ used, max int }

// take makes room for one more change.
func (w *window) take(key, value []byte) error {
	need := len(key) + len(value) + entryOverhead
	if need > w.max-w.used {
		return fmt.Errorf("%w: %d of %d bytes, %d more wanted", ErrUncommittedFull, w.used, w.max, need)
	}
	w.used += need
	return nil
}
