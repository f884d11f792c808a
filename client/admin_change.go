package client

import (
	"context"
	"fmt"

	"github.com/lacunamq/lacuna/protocol"
)

// State is a ledger's window after a change.
type State = protocol.IndividualState

// Commit makes offsets of one partition committed, as an operator does to a group whose
// members have stopped. All of runs is committed, or nothing is, unless there are more
// than 100,000 of them, which go in several requests. Committing a committed offset
// changes nothing; so does one below the log start.
func (a *Admin) Commit(ctx context.Context, group, topic string, partition int32, runs ...Run) (State, error) {
	return a.change(ctx, "commit", group, TopicPartition{topic, partition}, runs, func(part []Run) *protocol.IndividualOffsets {
		return &protocol.IndividualOffsets{Commit: part, Origin: protocol.NoOrigin}
	})
}

// Reopen makes committed offsets of one partition uncommitted again, so that they are
// delivered once more: to a running Reader within its refresh interval, to a new one at
// once. Below the stable offset it lowers that. Offsets below the log start or above the
// max commit offset, and those that hold no record, stay as they are. The group may have
// members.
func (a *Admin) Reopen(ctx context.Context, group, topic string, partition int32, runs ...Run) (State, error) {
	return a.change(ctx, "reopen", group, TopicPartition{topic, partition}, runs, func(part []Run) *protocol.IndividualOffsets {
		return &protocol.IndividualOffsets{Reopen: part, Origin: protocol.NoOrigin}
	})
}

// change sends runs in as many requests as the limit of runs needs; usually one.
func (a *Admin) change(ctx context.Context, doing, group string, tp TopicPartition, runs []Run, offsets func([]Run) *protocol.IndividualOffsets) (State, error) {
	fail := func(err error) (State, error) {
		return State{}, &PartitionError{Topic: tp.Topic, Partition: tp.Partition, Group: group, Doing: doing, Err: err}
	}
	if err := a.ready(ctx); err != nil {
		return State{}, err
	}
	runs, err := normalize(append([]Run(nil), runs...))
	if err != nil {
		return fail(err)
	}
	if len(runs) == 0 {
		return fail(fmt.Errorf("%w: none given", ErrBadRuns))
	}
	t, err := a.find(ctx, tp)
	if err != nil {
		return State{}, err
	}
	var state State
	for len(runs) > 0 {
		n := min(len(runs), maxRunsPerCommit)
		answers, err := commitOffsets(ctx, a.cl, group, nil, []change{{tp: tp, id: t.id, offset: -1, individual: offsets(runs[:n])}})
		if err != nil {
			return fail(err)
		}
		if answers[0].err != nil {
			return fail(answers[0].err)
		}
		state, runs = answers[0].state, runs[n:]
	}
	return state, nil
}
