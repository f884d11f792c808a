package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ledgerPage is what an OffsetFetch says of one partition's ledger, all of one moment.
type ledgerPage struct {
	tp TopicPartition
	id topicID
	// stable is the offset below which everything is committed; -1: nothing is.
	stable int64
	// maxCommit is one past the highest committed offset; -1: nothing is committed.
	maxCommit int64
	// gaps are the open runs from the asked offset on, in order.
	gaps []Run
	// completeTo is where the next page begins; -1: there is none.
	completeTo int64
	// pending is what open transactions hold, if it was asked for and the broker knows it.
	pending *protocol.Pending
	// epoch is the leader epoch of the record below stable, -1: unknown.
	epoch    int32
	metadata string
	err      error // Kafka's, or ErrNoEcho
}

// gapsPerPage is how many gaps are asked for at a time; at most some 200 KB on the wire.
const gapsPerPage = 10_000

// fetchLedgers asks the group's coordinator for the ledgers of partitions, nil for all
// that the group has.
func fetchLedgers(ctx context.Context, cl *kgo.Client, group string, partitions map[string]topicPartitions, ask protocol.GapsRequest) ([]ledgerPage, error) {
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	g.UnknownTags.Set(protocol.ExtensionTag, ask.AppendTo(nil))
	for name, tps := range partitions {
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.TopicID, t.Partitions = name, tps.id, tps.numbers
		g.Topics = append(g.Topics, t)
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("read the ledgers of group %s: %w", group, err)
	}
	if len(resp.Groups) != 1 {
		return nil, &GroupError{Group: group, Doing: "read the ledgers", Err: errors.New("the broker did not answer for the group")}
	}
	if err := kerr.ErrorForCode(resp.Groups[0].ErrorCode); err != nil {
		return nil, &GroupError{Group: group, Doing: "read the ledgers", Err: err}
	}
	return ledgerPages(&resp.Groups[0]), nil
}

// topicPartitions are some partitions of one topic.
type topicPartitions struct {
	id      topicID
	numbers []int32
}

func ledgerPages(g *kmsg.OffsetFetchResponseGroup) []ledgerPage {
	var pages []ledgerPage
	for i := range g.Topics {
		t := &g.Topics[i]
		for j := range t.Partitions {
			page := parseLedgerPage(&t.Partitions[j])
			page.tp.Topic, page.id = t.Topic, t.TopicID
			pages = append(pages, page)
		}
	}
	return pages
}

func parseLedgerPage(p *kmsg.OffsetFetchResponseGroupTopicPartition) ledgerPage {
	page := ledgerPage{tp: TopicPartition{Partition: p.Partition}, stable: p.Offset, maxCommit: -1, completeTo: -1, epoch: p.LeaderEpoch}
	if p.Metadata != nil {
		page.metadata = *p.Metadata
	}
	if page.err = kerr.ErrorForCode(p.ErrorCode); page.err != nil {
		return page
	}
	echo, ok := extension(&p.UnknownTags)
	if !ok {
		page.err = ErrNoEcho
		return page
	}
	gaps, err := protocol.ParseIndividualGaps(echo)
	if err != nil {
		page.err = err
		return page
	}
	page.maxCommit, page.gaps, page.completeTo, page.pending = gaps.MaxCommit, gaps.Gaps, gaps.CompleteTo, gaps.Pending
	return page
}

// fetchLedger asks for one page of one ledger.
func fetchLedger(ctx context.Context, cl *kgo.Client, group string, tp TopicPartition, id topicID, ask protocol.GapsRequest) (ledgerPage, error) {
	of := map[string]topicPartitions{tp.Topic: {id: id, numbers: []int32{tp.Partition}}}
	pages, err := fetchLedgers(ctx, cl, group, of, ask)
	if err != nil {
		return ledgerPage{}, err
	}
	for _, page := range pages {
		if page.tp == tp {
			if page.err != nil {
				return page, ledgerError(group, &page)
			}
			return page, nil
		}
	}
	return ledgerPage{}, &PartitionError{Topic: tp.Topic, Partition: tp.Partition, Group: group, Doing: "read the ledger",
		Err: errUnanswered}
}

func ledgerError(group string, page *ledgerPage) error {
	return &PartitionError{Topic: page.tp.Topic, Partition: page.tp.Partition, Group: group, Doing: "read the ledger", Err: page.err}
}

// walkLedger hands fn the given page of a ledger and all that follow it. While the group
// commits, every page is of its own moment.
func walkLedger(ctx context.Context, cl *kgo.Client, group string, page ledgerPage, fn func(*ledgerPage) error) error {
	for {
		if page.err != nil {
			return ledgerError(group, &page)
		}
		if err := fn(&page); err != nil || page.completeTo < 0 {
			return err
		}
		next, err := fetchLedger(ctx, cl, group, page.tp, page.id, protocol.GapsRequest{From: page.completeTo, MaxRuns: gapsPerPage})
		if err != nil {
			return err
		}
		if next.completeTo >= 0 && next.completeTo <= page.completeTo {
			next.err = fmt.Errorf("the broker does not get past offset %d", next.completeTo)
			return ledgerError(group, &next)
		}
		page = next
	}
}
