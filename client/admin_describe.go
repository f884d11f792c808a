package client

import (
	"context"
	"fmt"
	"sort"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Ledger is what one group has committed of one topic partition.
type Ledger struct {
	TopicPartition
	Group string
	// Stable is the offset below which everything is committed, and where a stock
	// consumer of the group would start; -1 if nothing is committed.
	Stable int64
	// MaxCommit is one past the highest committed offset; it equals Stable if there is
	// no gap; -1 if nothing is committed.
	MaxCommit int64
	// Gaps is the number of open runs between Stable and MaxCommit, Open the number of
	// offsets in them. Some of them may hold no record.
	Gaps, Open int64
	// LongestGap is the longest of them, the first if several are; empty without gaps.
	LongestGap Run
	// LogStart and LogEnd bound the partition's log, half-open.
	LogStart, LogEnd int64
	// LeaderEpoch is that of the record below Stable; -1 if unknown.
	LeaderEpoch int32
	// Metadata is the string that came with the last cumulative commit.
	Metadata string
	// Err is why the rest could not be read.
	Err error
}

// String is the ledger in one line.
func (l Ledger) String() string {
	if l.Err != nil {
		return fmt.Sprintf("%v of group %s: %v", l.TopicPartition, l.Group, l.Err)
	}
	return fmt.Sprintf("%v of group %s: stable %d, max commit %d, %d open in %d gaps, log %d to %d",
		l.TopicPartition, l.Group, l.Stable, l.MaxCommit, l.Open, l.Gaps, l.LogStart, l.LogEnd)
}

// Lag is the number of offsets of the log that the group has not committed: its gaps and
// what lies beyond its max commit offset.
func (l *Ledger) Lag() int64 {
	if l.MaxCommit < 0 {
		return l.LogEnd - l.LogStart
	}
	return l.Open + max(l.LogEnd-max(l.MaxCommit, l.LogStart), 0)
}

// Describe returns the ledgers of a group: of the partitions of the named topics, or of
// all that it has committed something of. They are ordered by topic and partition.
// Counting the gaps reads all of them, page by page.
func (a *Admin) Describe(ctx context.Context, group string, topics ...string) ([]Ledger, error) {
	if err := a.ready(ctx); err != nil {
		return nil, err
	}
	infos, err := findTopics(ctx, a.cl, topics...)
	if err != nil {
		return nil, err
	}
	pages, err := fetchLedgers(ctx, a.cl, group, askAll(infos), protocol.GapsRequest{MaxRuns: gapsPerPage})
	if err != nil {
		return nil, err
	}
	ledgers := make([]Ledger, 0, len(pages))
	for i := range pages {
		l, err := a.describe(ctx, group, &pages[i])
		if err != nil {
			return nil, err
		}
		ledgers = append(ledgers, l)
	}
	sort.Slice(ledgers, func(i, j int) bool {
		return compareTopicPartitions(ledgers[i].TopicPartition, ledgers[j].TopicPartition) < 0
	})
	return ledgers, a.addBounds(ctx, ledgers)
}

// describe counts the gaps of one ledger, of which page is the first.
func (a *Admin) describe(ctx context.Context, group string, page *ledgerPage) (Ledger, error) {
	l := Ledger{TopicPartition: page.tp, Group: group, Stable: page.stable, LeaderEpoch: page.epoch, Metadata: page.metadata}
	if page.err != nil {
		l.Err = ledgerError(group, page)
		return l, nil
	}
	err := walkLedger(ctx, a.cl, group, *page, func(page *ledgerPage) error {
		l.MaxCommit = page.maxCommit
		for _, gap := range page.gaps {
			l.Gaps++
			l.Open += gap.End - gap.Start
			if gap.End-gap.Start > l.LongestGap.End-l.LongestGap.Start {
				l.LongestGap = gap
			}
		}
		return nil
	})
	return l, err
}

// addBounds fills in where the logs begin and end. A topic that is gone has no log any
// more; its ledger says so.
func (a *Admin) addBounds(ctx context.Context, ledgers []Ledger) error {
	tps := make([]TopicPartition, 0, len(ledgers))
	for i := range ledgers {
		if ledgers[i].Err == nil {
			tps = append(tps, ledgers[i].TopicPartition)
		}
	}
	if len(tps) == 0 {
		return nil
	}
	all, err := loadBounds(ctx, a.kad, tps)
	if err != nil {
		return err
	}
	for i := range ledgers {
		l := &ledgers[i]
		b := all[l.TopicPartition]
		l.LogStart, l.LogEnd = b.start, b.end
	}
	return nil
}

// askAll asks for every partition of topics; nil, and so everything, if there are none.
func askAll(topics map[string]topicInfo) map[string]topicPartitions {
	if len(topics) == 0 {
		return nil
	}
	ask := make(map[string]topicPartitions, len(topics))
	for name, t := range topics {
		ask[name] = topicPartitions{id: t.id, numbers: t.numbers()}
	}
	return ask
}

func noSuchPartition(tp TopicPartition, t topicInfo) error {
	return &PartitionError{Topic: tp.Topic, Partition: tp.Partition, Doing: "find",
		Err: fmt.Errorf("%w: the topic has partitions 0 to %d", kerr.UnknownTopicOrPartition, len(t.partitions)-1)}
}
