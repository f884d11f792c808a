package statestore

import (
	"context"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// Batch gathers changes of one view that take effect together, with the offsets that
// they bring it to. It is not for concurrent use. It lives in memory only, so it may
// be filled while a lock of the owner is held and committed later.
type Batch struct {
	view    *View
	raw     pebble.Batch
	applied map[string]int64
	scratch []byte
}

// NewBatch returns an empty batch of changes to v.
func (v *View) NewBatch() *Batch { return &Batch{view: v} }

func (b *Batch) key(key []byte) []byte {
	b.scratch = append(append(append(b.scratch[:0], b.view.prefix...), kindData), key...)
	return b.scratch
}

// Set gives key a value. Both slices are copied.
func (b *Batch) Set(key, value []byte) { must(b.raw.Set(b.key(key), value, nil)) }

// Delete removes key, which need not exist.
func (b *Batch) Delete(key []byte) { must(b.raw.Delete(b.key(key), nil)) }

// DeletePrefix removes each key that starts with prefix.
func (b *Batch) DeletePrefix(prefix []byte) {
	lower := b.key(prefix)
	must(b.raw.DeleteRange(lower, upperBound(lower), nil))
}

// SetApplied says that with this batch the view has applied source up to offset.
func (b *Batch) SetApplied(source string, offset int64) {
	key := b.view.appliedKey(source)
	must(b.raw.Set(key, binary.BigEndian.AppendUint64(nil, uint64(offset)), nil))
	if b.applied == nil {
		b.applied = map[string]int64{}
	}
	b.applied[string(key)] = offset
}

// Append adds the changes of other, of the same view, after those of b.
func (b *Batch) Append(other *Batch) {
	must(b.raw.Apply(&other.raw, nil))
	for key, offset := range other.applied {
		if b.applied == nil {
			b.applied = map[string]int64{}
		}
		b.applied[key] = offset
	}
}

// Empty tells that the batch changes nothing.
func (b *Batch) Empty() bool { return b.raw.Empty() }

// Len is the size of the batch in bytes.
func (b *Batch) Len() int { return b.raw.Len() }

// Reset empties the batch.
func (b *Batch) Reset() {
	b.raw.Reset()
	b.applied = nil
}

// Commit makes the batch visible, and empties it so that it can be filled again. It
// survives a crash after the next Sync, or earlier. After an error the batch is as it
// was and nothing of it has been written.
func (b *Batch) Commit(ctx context.Context) error {
	db := b.view.db
	if b.Empty() {
		return db.check()
	}
	if err := db.reserveSpace(); err != nil {
		return err
	}
	size := b.Len()
	if err := db.throttle(ctx); err != nil {
		return err
	}
	p, err := db.enter()
	if err != nil {
		return err
	}
	defer db.leave()
	db.track.Lock()
	db.track.dirty = true
	db.track.unsyncedBytes += size
	db.track.Unlock()
	if err := db.guard(func() error { return p.Apply(&b.raw, pebble.NoSync) }); err != nil {
		return err
	}
	// Only now: a Sync that began before the batch was in does not cover it.
	db.track.Lock()
	db.track.dirty = true
	for key, offset := range b.applied {
		db.track.unsynced[key] = offset
	}
	db.track.Unlock()
	b.Reset()
	return nil
}

// throttle waits for a flush when much is waiting for one, so that memory stays
// bounded.
func (db *DB) throttle(ctx context.Context) error {
	db.track.Lock()
	over := db.track.unsyncedBytes > unsyncedBytesMax
	db.track.Unlock()
	if !over {
		return nil
	}
	return db.Sync(ctx)
}

// must is for Pebble's batch building, which fails only on a batch of another kind
// than ours.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
