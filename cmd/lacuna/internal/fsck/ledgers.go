package fsck

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/lacunamq/lacuna/broker/coordinator"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
)

// checkLedgers replays the individual log and holds its ledgers against the data and the
// offsets topic.
func (c *check) checkLedgers(offsets map[committedKey]committedOffset) error {
	states := make(map[int32]*individualcommit.State)
	homes := int32(0)
	err := c.replayTopic(individualcommit.TopicName, func(where string, home, partitions int32, r journal.Record) {
		if states[home] == nil {
			states[home] = individualcommit.NewState(0)
		}
		homes = partitions
		if err := states[home].Apply(r.Key, r.Value); err != nil {
			c.find(Error, where, "%v", err)
		}
	}, nil)
	if err != nil {
		return err
	}
	for _, home := range slices.Sorted(maps.Keys(states)) {
		if n := states[home].Unknown(); n > 0 {
			c.find(Note, fmt.Sprintf("%s[%d]", individualcommit.TopicName, home), "%d records are of a version that this binary does not know", n)
		}
		for e := range states[home].All() {
			c.checkLedger(e, home, homes, offsets)
		}
	}
	return nil
}

// checkLedger checks one ledger.
func (c *check) checkLedger(e *individualcommit.Entry, home, homes int32, offsets map[committedKey]committedOffset) {
	id := metadata.TopicID(e.ID.Topic)
	t := c.image.TopicByID(id)
	where := fmt.Sprintf("group %s, topic %v[%d]", e.ID.Group, id, e.ID.Partition)
	if t != nil {
		where = fmt.Sprintf("group %s, %s[%d]", e.ID.Group, t.Name, e.ID.Partition)
	}
	if want := coordinator.PartitionFor(e.ID.Group, homes); want != home {
		c.find(Error, where, "its ledger is in partition %d of %s and belongs in %d", home, individualcommit.TopicName, want)
	}
	if err := e.Trouble(); err != nil {
		c.find(Error, where, "%v; the group goes on from its offset in %s", err, offsetsTopic)
		return
	}
	c.report.Ledgers++
	c.report.Gaps += e.Ledger.GapCount()
	if err := e.Ledger.CheckInvariants(); err != nil {
		c.find(Error, where, "%v", err)
	}
	if t == nil {
		c.find(Note, where, "the topic was deleted; the next start removes its ledgers")
		return
	}
	c.compareWithData(e, where, id)
	c.checkCounts(e, where, c.ends[partitionID{id, e.ID.Partition}].end)
	c.compareWithOffsets(e, where, offsets[committedKey{e.ID.Group, t.Name, e.ID.Partition}], id)
}

// compareWithData checks that the ledger is not ahead of its log: it would skip records
// that are written there next.
func (c *check) compareWithData(e *individualcommit.Entry, where string, id metadata.TopicID) {
	log, ok := c.ends[partitionID{id, e.ID.Partition}]
	switch {
	case !ok && e.Ledger.MaxCommit() > 0:
		c.find(c.afterCrash(), where, "offsets up to %d are committed, and the partition has no log", e.Ledger.MaxCommit()-1)
	case ok && e.Ledger.MaxCommit() > max(log.end, e.Ledger.Committed()):
		c.find(c.afterCrash(), where, "offset %d is committed, and the log ends at %d; the next start forgets it", e.Ledger.MaxCommit()-1, log.end)
	}
}

// checkCounts checks that the delivery counts of a share group can be read, and that none
// is of a record that is still to be written.
func (c *check) checkCounts(e *individualcommit.Entry, where string, end int64) {
	for block, value := range e.Counts() {
		left, err := cooperative.CutCounts(nil, block, value, individualcommit.Run{Start: end, End: math.MaxInt64})
		switch {
		case err != nil:
			c.find(Error, where, "delivery counts cannot be read: %v", err)
		case !bytes.Equal(left, value):
			c.find(c.afterCrash(), where, "records of block %d have delivery counts, and the log ends at %d; the next start forgets them", block, end)
		}
	}
}

// compareWithOffsets checks that a stock consumer starts where the ledger says. After a
// crash it may start before, since the offsets topic follows with a second's delay, but
// never behind.
func (c *check) compareWithOffsets(e *individualcommit.Entry, where string, stock committedOffset, id metadata.TopicID) {
	stable := e.Ledger.Committed()
	behind := Note
	if c.report.CleanStop {
		behind = Error
	}
	switch {
	case stock == committedOffset{} || stock.topicID != id && stock.topicID != metadata.TopicID{}:
		if stable > 0 {
			c.find(behind, where, "%s has no offset yet, and the ledger's stable offset is %d", offsetsTopic, stable)
		}
	case stock.offset > max(stable, c.ends[partitionID{id, e.ID.Partition}].start): // retention closes what it deletes
		c.find(Error, where, "%s has offset %d, and the ledger's stable offset is %d: a stock consumer would skip what is between",
			offsetsTopic, stock.offset, stable)
	case stock.offset < stable:
		c.find(behind, where, "%s has offset %d, and the ledger's stable offset is %d: a stock consumer would read what is between again",
			offsetsTopic, stock.offset, stable)
	}
}
