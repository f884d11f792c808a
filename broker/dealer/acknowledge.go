package dealer

import (
	"context"
	"errors"
	"fmt"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/ledgers"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Acknowledgement is what a member says of records of one partition, once it has been
// carried out and is to become durable.
type Acknowledgement struct {
	p       *partition
	receipt ledgers.ShareReceipt
	err     error
}

// BeginAcknowledge carries out what a member says of records, in the order of the calls.
// It does not wait for the disk.
func (d *Dealer) BeginAcknowledge(group, member string, tp extension.TopicPartition, acks []cooperative.Ack) Acknowledgement {
	a := Acknowledgement{p: d.existing(key{group, tp})}
	if a.p == nil {
		// Nobody has acquired anything since the broker started.
		a.err = fmt.Errorf("%s: nothing is acquired: %w", key{group, tp}, kerr.InvalidRecordState)
		return a
	}
	a.receipt, a.err = a.p.acknowledge(member, acks)
	return a
}

func (p *partition) acknowledge(member string, acks []cooperative.Ack) (receipt ledgers.ShareReceipt, err error) {
	var refused error
	receipt, err = p.act(func(*individualcommit.Ledger) {
		s := &p.locked
		if refused = p.checkRenewals(acks); refused != nil {
			return
		}
		if at, outcome := s.dealing.Check(member, acks, p.d.nowMs(), &s.changes); outcome != cooperative.Done {
			refused = p.refusal(&acks[at], outcome) // as in Kafka, none of them counts
			return
		}
		s.outcomes = s.dealing.Acknowledge(s.outcomes[:0], member, acks, p.d.nowMs(), &s.changes)
		for i, outcome := range s.outcomes {
			if refused == nil {
				refused = p.refusal(&acks[i], outcome)
			}
		}
	})
	if err != nil {
		if errors.Is(err, ledgers.ErrShareGone) {
			err = fmt.Errorf("%s: %w: %w", p.key, kerr.InvalidRecordState, err)
		}
		return receipt, err
	}
	return receipt, refused
}

// checkRenewals refuses renewals where the group's settings do.
func (p *partition) checkRenewals(acks []cooperative.Ack) error {
	if p.current().Renew {
		return nil
	}
	for i := range acks {
		if acks[i].Type == cooperative.Renew {
			return fmt.Errorf("%s: share.renew.acknowledge.enable is false: %w", p.key, kerr.InvalidRecordState)
		}
	}
	return nil
}

func (p *partition) refusal(a *cooperative.Ack, outcome cooperative.Outcome) error {
	switch outcome {
	case cooperative.NotHeld:
		return fmt.Errorf("%s: offsets %d to %d are not all acquired by the member: %w", p.key, a.Start, a.End-1, kerr.InvalidRecordState)
	case cooperative.Moved:
		return fmt.Errorf("%s: offsets %d to %d: another member waits for their bucket: %w", p.key, a.Start, a.End-1, kerr.InvalidRecordState)
	case cooperative.Invalid:
		return fmt.Errorf("%s: offsets %d to %d, acknowledge type %d: %w", p.key, a.Start, a.End-1, a.Type, kerr.InvalidRequest)
	case cooperative.Done:
	}
	return nil
}

// Wait waits until the acknowledgement is durable, and gives the error that the client is
// to see.
func (a *Acknowledgement) Wait(ctx context.Context) error {
	if a.p == nil {
		return a.err
	}
	if a.err != nil && errors.Is(a.err, ledgers.ErrShareGone) {
		return a.err
	}
	if err := a.p.ledger.Wait(ctx, a.receipt); err != nil {
		return fmt.Errorf("%s: %w", a.p.key, err)
	}
	return a.err
}

// EndSession frees what a member of a group has acquired. When it says itself that it goes
// no delivery counts; when its connection broke, those that it had do.
func (d *Dealer) EndSession(group, member string, normally bool) {
	for _, p := range d.of(group) {
		p.endSession(member, normally)
	}
}

func (p *partition) endSession(member string, normally bool) {
	// If the ledger is gone, so is what was acquired.
	_, _ = p.act(func(*individualcommit.Ledger) {
		if normally {
			p.locked.dealing.ReleaseMember(member, p.d.nowMs(), &p.locked.changes)
		} else {
			p.locked.dealing.MemberLeft(member, p.d.nowMs(), &p.locked.changes)
		}
		p.dropWaiter(member)
		delete(p.locked.sieves, member)
	})
}
