// Package extensiontest gives tests of the extension a host: logs and views in memory,
// behind the interfaces of package extension.
package extensiontest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/statestore"
)

// Host is extension.Log, extension.Journal and extension.Owner over real logs and views.
// Tests fill in its fields, and may look into them while nothing else runs; Mu guards Logs
// and Gone otherwise.
type Host struct {
	// Options are those of the log in a directory, without its name.
	Options func(dir string) commitlog.Options
	// Journals is how many partitions the journal has.
	Journals int32
	DB       *statestore.DB // for the views

	Mu   sync.Mutex
	Logs map[string]*commitlog.Log // by directory
	Gone map[extension.TopicPartition]error
}

// DataDir is the directory of a partition's log.
func DataDir(tp extension.TopicPartition) string {
	return fmt.Sprintf("data-%d-%d", tp.Topic[0], tp.Partition)
}

// JournalDir is the directory of a partition of the journal.
func JournalDir(partition int32) string { return fmt.Sprintf("individual-%d", partition) }

// Open opens the log in a directory, once.
func (h *Host) Open(dir string) (*commitlog.Log, error) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	if log := h.Logs[dir]; log != nil {
		return log, nil
	}
	o := h.Options(dir)
	o.Dir, o.Name = dir, dir
	log, err := commitlog.Open(o)
	if err == nil {
		h.Logs[dir] = log
	}
	return log, err
}

// Data is the log of a partition.
func (h *Host) Data(tp extension.TopicPartition) (*commitlog.Log, error) {
	h.Mu.Lock()
	err := h.Gone[tp]
	h.Mu.Unlock()
	if err != nil {
		return nil, err
	}
	return h.Open(DataDir(tp))
}

// Bounds is part of extension.Log.
func (h *Host) Bounds(tp extension.TopicPartition) (extension.Bounds, error) {
	log, err := h.Data(tp)
	if err != nil {
		return extension.Bounds{}, err
	}
	b := log.Bounds()
	return extension.Bounds{Start: b.Start, HighWatermark: b.HighWatermark, LSO: b.LSO}, nil
}

// Read is part of extension.Log.
func (h *Host) Read(tp extension.TopicPartition, dst []byte, from int64) ([]byte, error) {
	log, err := h.Data(tp)
	if err != nil {
		return dst, err
	}
	read, err := log.Read(dst, from, commitlog.ReadOptions{MaxBytes: 1, UpTo: log.Bounds().HighWatermark, MinOne: true})
	return read.Data, err
}

// LeaderEpoch is part of extension.Log.
func (h *Host) LeaderEpoch(tp extension.TopicPartition, offset int64) int32 {
	log, err := h.Data(tp)
	if err != nil || offset < log.Bounds().Start {
		return -1
	}
	return log.EpochAt(offset)
}

// Partitions is part of extension.Journal.
func (h *Host) Partitions() int32 { return h.Journals }

// Written is part of extension.Journal.
func (h *Host) Written(partition int32) bool {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	return h.Logs[JournalDir(partition)] != nil
}

// Recover is part of extension.Journal.
func (h *Host) Recover(ctx context.Context, partition, _ int32, state journal.State) (extension.JournalPartition, error) {
	dir := JournalDir(partition)
	log, err := h.Open(dir)
	if err != nil {
		return nil, err
	}
	view := h.DB.View(dir)
	_, err = journal.Recover(ctx, view, dir, log, state)
	if corrupt := (*journal.CorruptError)(nil); errors.As(err, &corrupt) {
		if sealed := log.Seal(); sealed != nil {
			return nil, errors.Join(err, sealed)
		}
	}
	return &journalPartition{journal.Open(log, dir), journal.NewCheckpointer(view, dir, log), log}, err
}

// Epoch is part of extension.Owner.
func (h *Host) Epoch(int32) (int32, bool) { return 0, true }

type journalPartition struct {
	*journal.Journal
	*journal.Checkpointer
	log *commitlog.Log
}

// Stage is part of extension.JournalPartition.
func (p *journalPartition) Stage(state journal.State) error {
	return p.Checkpointer.Stage(state, p.log.Bounds().End)
}
