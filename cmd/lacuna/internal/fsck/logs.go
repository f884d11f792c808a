package fsck

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
)

// readBytes is how much of a log is read at a time.
const readBytes = 1 << 20

// checkLogs reads every batch of every log, and looks for files that belong to no topic.
func (c *check) checkLogs() error {
	err := c.eachLog(func(t *metadata.Topic, number int32, name string, log *commitlog.Log) error {
		b := log.Bounds()
		c.ends[partitionID{t.ID, number}] = bounds{b.Start, b.End}
		c.report.Partitions++
		c.checkLog(name, log)
		return c.ctx.Err()
	})
	if err != nil {
		return err
	}
	c.report.Topics = c.image.TopicCount()
	return c.findStrays()
}

// checkLog notes what opening the log found, and reads it whole.
func (c *check) checkLog(name string, log *commitlog.Log) {
	r := log.Recovery()
	for _, d := range r.Dropped {
		c.find(c.afterCrash(), name, "%d bytes from offset %d on are not believed: %s", d.Bytes, d.Offset, d.Reason)
	}
	for _, file := range r.Rebuilt {
		c.find(c.afterCrash(), name, "%s is missing or bad, and will be made anew", file)
	}
	if err := log.CheckInvariants(); err != nil {
		c.find(Error, name, "%v", err)
	}
	if err := c.readLog(log); err != nil && c.ctx.Err() == nil {
		c.find(Error, name, "%v", err)
	}
}

// readLog checks every batch up to the end.
func (c *check) readLog(log *commitlog.Log) error {
	b := log.Bounds()
	var buf []byte
	for at := b.Start; at < b.HighWatermark; {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		read, err := log.Read(buf[:0], at, commitlog.ReadOptions{MaxBytes: readBytes, UpTo: b.HighWatermark, MinOne: true})
		if err != nil {
			return fmt.Errorf("read from offset %d: %w", at, err)
		}
		buf = read.Data
		if err := c.checkBatches(read.Data, at); err != nil {
			return err
		}
		if read.Next <= at {
			return fmt.Errorf("no batch at offset %d", at)
		}
		at = read.Next
	}
	return nil
}

// checkBatches checks whole batches, of which the first holds offset at or comes after it.
func (c *check) checkBatches(data []byte, at int64) error {
	for len(data) > 0 {
		h, err := protocol.ParseBatchHeader(data)
		if err != nil {
			return fmt.Errorf("batch at offset %d: %w", at, err)
		}
		if h.Size() > len(data) {
			return fmt.Errorf("batch at offset %d: %d bytes of %d", h.BaseOffset, len(data), h.Size())
		}
		if err := protocol.VerifyCRC(&h, data[:h.Size()]); err != nil {
			return fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err)
		}
		if h.LastOffset() < at {
			return fmt.Errorf("batch of offsets %d to %d where %d should be", h.BaseOffset, h.LastOffset(), at)
		}
		c.report.Batches++
		c.report.Records += int64(h.NumRecords)
		c.report.Bytes += int64(h.Size())
		if c.progress != nil {
			c.progress(h.Size())
		}
		data, at = data[h.Size():], h.NextOffset()
	}
	return nil
}

// findStrays finds directories that belong to no topic.
func (c *check) findStrays() error {
	root := c.fs.PathJoin(c.dir, "topics")
	names, err := c.fs.List(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", root, err)
	}
	for _, name := range names {
		id, err := metadata.ParseTopicID(name)
		if err == nil && c.image.TopicByID(id) == nil {
			c.find(Note, c.fs.PathJoin(root, name), "files of a topic that was deleted; the next start removes them")
		}
	}
	return nil
}
