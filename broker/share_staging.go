package broker

import (
	"context"
	"fmt"

	"github.com/lacunamq/lacuna/broker/dealer"
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/ledgers"
	"github.com/lacunamq/lacuna/broker/share"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/twmb/franz-go/pkg/kerr"
)

// shareStaging is what a member of a share group wants to have committed with its
// transaction, once it has been carried out and is to become durable.
type shareStaging struct {
	b       *Broker
	group   string
	staged  []dealer.Acknowledgement
	of      []extension.TopicPartition
	results []ledgers.Result
}

// stageShared makes records that a member has acquired pending in a transaction. Each
// partition is done whole or not at all. The member must be there; its epoch may be older.
func (b *Broker) stageShared(ctx context.Context, view *share.View, m *extension.Member, p individualcommit.Producer,
	parts []ledgers.PartitionCommit,
) *shareStaging {
	s := &shareStaging{b: b, group: m.Group, results: make([]ledgers.Result, len(parts))}
	var err error
	if !view.Member(m.MemberID) {
		err = fmt.Errorf("%q is no member of share group %q: %w", m.MemberID, m.Group, kerr.UnknownMemberID)
	}
	for i := range parts {
		part := &parts[i]
		switch {
		case err != nil:
			s.results[i].Err = err
		case part.Offset != individualcommit.NoOffset:
			s.results[i].Err = refusal(kerr.InvalidRequest, "a share group commits no offset for all below it")
		}
		s.of = append(s.of, part.TopicPartition)
		if s.results[i].Err != nil {
			s.staged = append(s.staged, dealer.Acknowledgement{})
			continue
		}
		s.staged = append(s.staged, b.dealer.BeginStage(ctx, m.Group, m.MemberID, part.TopicPartition, p, part.Commit))
	}
	return s
}

// wait waits until all of it is durable. The results are in the order of the partitions,
// and tell of the ledgers as they are before the transaction's end.
func (s *shareStaging) wait(ctx context.Context) []ledgers.Result {
	for i := range s.staged {
		if s.results[i].Err == nil {
			s.results[i].Err = s.staged[i].Wait(ctx)
		}
	}
	views, err := s.b.ledgers.Fetch(ctx, s.group, s.of, nil)
	for i := range s.results {
		switch r := &s.results[i]; {
		case r.Err != nil:
		case err != nil:
			r.Err = err
		default:
			r.Stable, r.MaxCommit = views[i].Offset, views[i].MaxCommit
		}
	}
	return s.results
}
