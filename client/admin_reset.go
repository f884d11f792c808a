package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
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
// gaps on either side are forgotten. The group must have no members; it may be a share group.
// Offsets outside of a log are moved to its nearer end.
func (a *Admin) Reset(ctx context.Context, group string, to Position, tps ...TopicPartition) ([]Reset, error) {
	return a.resetBy(ctx, a.move, group, to, tps)
}

// ResetShare is Reset for a share group, which is made if there is none: Reset would make a
// group of consumers.
func (a *Admin) ResetShare(ctx context.Context, group string, to Position, tps ...TopicPartition) ([]Reset, error) {
	return a.resetBy(ctx, a.moveShare, group, to, tps)
}

// mover sends the changes of a reset, and gives what failed.
type mover func(ctx context.Context, group string, changes []change) (failed map[TopicPartition]error, err error)

func (a *Admin) resetBy(ctx context.Context, move mover, group string, to Position, tps []TopicPartition) ([]Reset, error) {
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
	return reset(ctx, move, group, before, targets)
}

// reset sends one commit for all partitions. What is committed above a target is reopened
// in the same step: a cumulative commit alone keeps it, unless it goes back.
func reset(ctx context.Context, move mover, group string, before []ledgerPage, targets map[TopicPartition]int64) ([]Reset, error) {
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
		failed, err := move(ctx, group, changes)
		if err != nil {
			return nil, err
		}
		for tp, err := range failed {
			r := &done[slices.IndexFunc(done, func(r Reset) bool { return r.TopicPartition == tp })]
			r.Err = &PartitionError{Topic: tp.Topic, Partition: tp.Partition, Group: group, Doing: "reset", Err: err}
		}
	}
	sort.Slice(done, func(i, j int) bool { return compareTopicPartitions(done[i].TopicPartition, done[j].TopicPartition) < 0 })
	return done, nil
}

// move is the mover of a group of any type.
func (a *Admin) move(ctx context.Context, group string, changes []change) (failed map[TopicPartition]error, err error) {
	answers, err := commitOffsets(ctx, a.cl, group, nil, changes)
	failed = make(map[TopicPartition]error)
	for _, answer := range answers {
		if errors.Is(answer.err, kerr.GroupIDNotFound) { // of another type, since any other would have been made
			return a.moveShare(ctx, group, changes)
		}
		if answer.err != nil {
			failed[answer.tp] = answer.err
		}
	}
	return failed, err
}

// moveShare is the mover of share groups: nobody but its members commits its offsets, but an
// operator may say where it goes on (AlterShareGroupOffsets).
func (a *Admin) moveShare(ctx context.Context, group string, changes []change) (failed map[TopicPartition]error, err error) {
	req := kmsg.NewPtrAlterShareGroupOffsetsRequest()
	req.GroupID = group
	for _, c := range changes {
		i := slices.IndexFunc(req.Topics, func(t kmsg.AlterShareGroupOffsetsRequestTopic) bool { return t.Topic == c.tp.Topic })
		if i < 0 {
			i = len(req.Topics)
			req.Topics = append(req.Topics, kmsg.AlterShareGroupOffsetsRequestTopic{Topic: c.tp.Topic})
		}
		t := &req.Topics[i]
		t.Partitions = append(t.Partitions, kmsg.AlterShareGroupOffsetsRequestTopicPartition{Partition: c.tp.Partition, StartOffset: c.offset})
	}
	resp, err := req.RequestWith(ctx, a.cl)
	if err == nil {
		err = answerError(resp.ErrorCode, resp.ErrorMessage)
	}
	if err != nil {
		return nil, &GroupError{Group: group, Doing: "reset", Err: err}
	}
	failed = make(map[TopicPartition]error)
	for _, c := range changes {
		failed[c.tp] = errUnanswered
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			tp := TopicPartition{t.Topic, p.Partition}
			if failed[tp] = answerError(p.ErrorCode, p.ErrorMessage); failed[tp] == nil {
				delete(failed, tp)
			}
		}
	}
	return failed, nil
}
