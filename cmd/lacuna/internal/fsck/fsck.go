// Package fsck checks a broker's data directory while no broker uses it: that every batch
// is what its checksum says, that the individual log makes whole ledgers, that no ledger
// is ahead of its data, and that the offsets topic agrees with the ledgers. It changes
// nothing.
package fsck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/commitlog"
)

// dataFormat is the newest format of a data directory that is known here.
const dataFormat = 1

// Severity says how bad a finding is.
type Severity string

const (
	// Note is something to know; nothing is wrong.
	Note Severity = "note"
	// Warning is damage that the next start deals with, saying so.
	Warning Severity = "warning"
	// Error is something that should not be, whatever happened to the machine.
	Error Severity = "error"
)

// Finding is one thing that was found.
type Finding struct {
	Severity Severity `json:"severity"`
	Where    string   `json:"where"` // a topic partition, or a group and one
	What     string   `json:"what"`
}

// Report is the result of a check.
type Report struct {
	Dir        string    `json:"dir"`
	CleanStop  bool      `json:"clean_stop"`
	Topics     int       `json:"topics"`
	Partitions int       `json:"partitions"`
	Batches    int64     `json:"batches"`
	Records    int64     `json:"records"`
	Bytes      int64     `json:"bytes"`
	Offsets    int       `json:"committed_offsets"`
	Ledgers    int       `json:"ledgers"`
	Gaps       int64     `json:"gaps"`
	Findings   []Finding `json:"findings"`
}

// Worst is the severity of the worst finding, Note if there is none.
func (r *Report) Worst() Severity {
	worst := Note
	for _, f := range r.Findings {
		if f.Severity == Error || worst == Note {
			worst = f.Severity
		}
	}
	return worst
}

// Check checks the data directory dir in files. Progress, if not nil, is told of the bytes
// that were read. An error means that the check could not be made; what is wrong with the
// data is in the report.
func Check(ctx context.Context, files vfs.FS, dir string, progress func(bytes int)) (Report, error) {
	if _, err := files.Stat(files.PathJoin(dir, "meta.json")); err != nil {
		return Report{}, fmt.Errorf("%s is no data directory of a broker: %w", dir, err)
	}
	lock, err := files.Lock(files.PathJoin(dir, "lock"))
	if err != nil {
		return Report{}, fmt.Errorf("lock %s: %w: a broker uses it; stop that first", dir, err)
	}
	defer lock.Close()
	c := &check{
		ctx: ctx, fs: newOverlay(files), dir: dir, progress: progress,
		report: Report{Dir: dir, Findings: []Finding{}},
		ends:   make(map[partitionID]bounds),
	}
	if err := c.run(); err != nil {
		return c.report, err
	}
	slices.SortStableFunc(c.report.Findings, func(a, b Finding) int { return rank(b.Severity) - rank(a.Severity) })
	return c.report, nil
}

func rank(s Severity) int { return slices.Index([]Severity{Note, Warning, Error}, s) }

// check is one check at work.
type check struct {
	ctx      context.Context
	fs       *overlay
	dir      string
	progress func(bytes int)
	report   Report

	image *metadata.Image
	// ends are the bounds of every log that could be opened.
	ends map[partitionID]bounds
}

// partitionID names a partition by its topic's id.
type partitionID struct {
	topic     metadata.TopicID
	partition int32
}

type bounds struct{ start, end int64 }

func (c *check) find(s Severity, where, format string, args ...any) {
	c.report.Findings = append(c.report.Findings, Finding{Severity: s, Where: where, What: fmt.Sprintf(format, args...)})
}

// afterCrash is a warning after a crash, which may leave such things behind, and an error
// after a clean stop, which must not.
func (c *check) afterCrash() Severity {
	if c.report.CleanStop {
		return Error
	}
	return Warning
}

func (c *check) run() error {
	if err := c.readMeta(); err != nil {
		return err
	}
	if err := c.readMetadata(); err != nil {
		return err
	}
	if err := c.checkLogs(); err != nil {
		return err
	}
	offsets, err := c.readOffsets()
	if err != nil {
		return err
	}
	return c.checkLedgers(offsets)
}

// readMeta checks that this is a data directory, of a format that is known.
func (c *check) readMeta() error {
	f, err := c.fs.Open(c.fs.PathJoin(c.dir, "meta.json"))
	if err != nil {
		return err
	}
	defer f.Close()
	var meta struct {
		Format int `json:"format"`
	}
	if err := json.NewDecoder(io.LimitReader(f, 1<<16)).Decode(&meta); err != nil {
		return fmt.Errorf("read meta.json of %s: %w", c.dir, err)
	}
	if meta.Format > dataFormat {
		return fmt.Errorf("%s has format %d, and this binary knows formats up to %d: use a newer lacuna", c.dir, meta.Format, dataFormat)
	}
	_, err = c.fs.Stat(c.fs.PathJoin(c.dir, "clean-stop"))
	c.report.CleanStop = err == nil
	if !c.report.CleanStop {
		c.find(Note, c.dir, "the last broker here did not stop cleanly")
	}
	return nil
}

// open opens a log as the next start of a broker will.
func (c *check) open(name, dir string) (*commitlog.Log, error) {
	return commitlog.Open(commitlog.Options{
		FS: c.fs, Dir: dir, Name: name, Config: commitlog.DefaultConfig(), Unclean: !c.report.CleanStop, Now: time.Now,
	})
}

// readMetadata replays the metadata log: which topics there are.
func (c *check) readMetadata() error {
	const name = "the metadata log"
	log, err := c.open(name, c.fs.PathJoin(c.dir, "metadata"))
	if err != nil {
		return err
	}
	defer log.Close()
	c.checkLog(name, log)
	draft := metadata.NewDraft(metadata.NewImage())
	_, err = journal.Open(log, name).Replay(c.ctx, log.Bounds().Start, func(_ int64, r journal.Record) error {
		return draft.Apply(r.Key, r.Value)
	})
	c.image = draft.Image()
	if err != nil && c.ctx.Err() == nil {
		c.find(Error, name, "%v", err)
		return nil
	}
	return err
}

// eachLog opens every log of the topic directories, one after the other.
func (c *check) eachLog(use func(t *metadata.Topic, number int32, name string, log *commitlog.Log) error) error {
	root := c.fs.PathJoin(c.dir, "topics")
	for t := range c.image.Topics() {
		dir := c.fs.PathJoin(root, t.ID.String())
		names, err := c.fs.List(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("list %s: %w", dir, err)
		}
		for _, n := range names {
			number, err := strconv.ParseInt(n, 10, 32)
			if err != nil || int32(number) >= t.Partitions {
				c.find(Warning, t.Name, "%s is not a partition of the topic", c.fs.PathJoin(dir, n))
				continue
			}
			name := fmt.Sprintf("%s[%d]", t.Name, number)
			log, err := c.open(name, c.fs.PathJoin(dir, n))
			if err != nil {
				c.find(Error, name, "cannot be opened: %v", err)
				continue
			}
			err = use(t, int32(number), name, log)
			if err := errors.Join(err, log.Close()); err != nil {
				return fmt.Errorf("check %s: %w", name, err)
			}
		}
	}
	return nil
}
