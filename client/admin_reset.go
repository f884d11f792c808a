package client

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/lacunamq/lacuna/protocol"
)

// Reset is what [Admin.Reset] did to one partition.
type Reset struct {
	TopicPartition
	// From and To are the stable offset before (-1: nothing was committed) and after.
	From, To int64
	// Forgotten is the max commit offset before, above which nothing was committed: single
	// offsets committed between To and it are uncommitted now.
	Forgotten int64
	Err       error
}

// String is what was done, in one line.
func (r Reset) String() string {
	if r.Err != nil {
		return fmt.Sprintf("%v: %v", r.TopicPartition, r.Err)
	}
	return fmt.Sprintf("%v from %d to %d", r.TopicPartition, r.From, r.To)
}

// Reset moves a group to a position in every partition of the named topics, or in the
// given partitions of them: below it all is committed, from it on nothing is, so that
// gaps on either side are forgotten. The group must have no members. Offsets outside of a
// log are moved to its nearer end.
func (a *Admin) Reset(ctx context.Context, group string, to Position, tps ...TopicPartition) ([]Reset, error) {
	if err := a.ready(ctx); err != nil {
		return nil, err
	}
	topics, err := findTopics(ctx, a.cl, topicsOf(tps)...)
	if err != nil {
		return nil, err
	}
	for _, tp := range tps {
		if _, ok := topics[tp.Topic].partitions[tp.Partition]; !ok {
			return nil, noSuchPartition(tp, topics[tp.Topic])
		}
	}
	targets, err := to.resolve(ctx, a.kad, tps)
	if err != nil {
		return nil, err
	}
	ask := make(map[string]topicPartitions)
	for _, tp := range tps {
		t := ask[tp.Topic]
		t.id, t.numbers = topics[tp.Topic].id, append(t.numbers, tp.Partition)
		ask[tp.Topic] = t
	}
	before, err := fetchLedgers(ctx, a.cl, group, ask, protocol.GapsRequest{MaxRuns: 1})
	if err != nil {
		return nil, err
	}
	for i := range before {
		before[i].id = topics[before[i].tp.Topic].id
	}
	return a.reset(ctx, group, before, targets)
}

// reset sends one commit for all partitions. What is committed above a target is reopened
// in the same step: a cumulative commit alone keeps it, unless it goes back.
func (a *Admin) reset(ctx context.Context, group string, before []ledgerPage, targets map[TopicPartition]int64) ([]Reset, error) {
	var done []Reset
	var changes []change
	for i := range before {
		page := &before[i]
		to, ok := targets[page.tp]
		r := Reset{TopicPartition: page.tp, From: page.stable, To: to, Forgotten: page.maxCommit}
		switch {
		case page.err != nil:
			r.Err = ledgerError(group, page)
		case !ok:
			r.Err = &PartitionError{Topic: page.tp.Topic, Partition: page.tp.Partition, Group: group, Doing: "reset", Err: ErrNoPosition}
		default:
			c := change{tp: page.tp, id: page.id, offset: to}
			if page.maxCommit > page.stable && page.maxCommit > to {
				c.individual = &protocol.IndividualOffsets{Reopen: []Run{{Start: to, End: page.maxCommit}}, Origin: protocol.NoOrigin}
			}
			changes = append(changes, c)
		}
		done = append(done, r)
	}
	if len(changes) > 0 {
		answers, err := commitOffsets(ctx, a.cl, group, nil, changes)
		if err != nil {
			return nil, err
		}
		for _, answer := range answers {
			r := &done[slices.IndexFunc(done, func(r Reset) bool { return r.TopicPartition == answer.tp })]
			if answer.err != nil {
				r.Err = &PartitionError{Topic: answer.tp.Topic, Partition: answer.tp.Partition, Group: group, Doing: "reset", Err: answer.err}
			}
		}
	}
	sort.Slice(done, func(i, j int) bool { return compareTopicPartitions(done[i].TopicPartition, done[j].TopicPartition) < 0 })
	return done, nil
}
