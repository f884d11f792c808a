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

// BeginStage makes records that a member has acquired pending in the transaction of p: they
// have no deadline and are not dealt until ledgers.Coordinator.BeginEnd commits them
// or has them dealt again. It is all or nothing, and what is pending in that transaction
// already may be asked for again, by anybody. A record that is neither is Kafka's
// INVALID_RECORD_STATE, and the client has to abort. It does not wait for the disk.
func (d *Dealer) BeginStage(ctx context.Context, group, member string, tp extension.TopicPartition,
	p individualcommit.Producer, runs []individualcommit.Run,
) Acknowledgement {
	for {
		a := Acknowledgement{}
		if a.p, a.err = d.staging(ctx, key{group, tp}); a.err != nil {
			a.p = nil
			return a
		}
		if a.receipt, a.err = a.p.stage(member, p, runs); !errors.Is(a.err, ledgers.ErrShareGone) {
			return a
		}
	}
}

// staging is the share partition of that key. It is opened if it has a ledger, since that
// may have pending records from before the broker started.
func (d *Dealer) staging(ctx context.Context, k key) (*partition, error) {
	if p := d.existing(k); p != nil {
		return p, nil
	}
	founded, err := d.opts.Ledgers.Founded(ctx, k.group, k.TopicPartition)
	switch {
	case err != nil:
		return nil, err
	case !founded:
		return nil, fmt.Errorf("%s: nothing is acquired: %w", k, kerr.InvalidRecordState)
	}
	return d.partition(ctx, k)
}

func (p *partition) stage(member string, by individualcommit.Producer, runs []individualcommit.Run) (ledgers.ShareReceipt, error) {
	var refused error
	receipt, err := p.ledger.Stage(&p.locked.changes, by, runs, func(_ *individualcommit.Ledger, refusal error) bool {
		s := &p.locked
		s.changes.Reset()
		p.hear()
		if refused = refusal; refused == nil {
			refused = p.stageRefusal(s.dealing.Stage(member, runs, p.d.nowMs(), &s.changes), member)
		}
		p.settle()
		return refused == nil
	})
	p.rouse()
	if err != nil {
		return receipt, err
	}
	return receipt, refused
}

func (p *partition) stageRefusal(outcome cooperative.Outcome, member string) error {
	switch outcome {
	case cooperative.Done:
		return nil
	case cooperative.Invalid:
		return fmt.Errorf("%s: offsets that are no runs: %w", p.key, kerr.InvalidRequest)
	case cooperative.NotHeld, cooperative.Moved:
	}
	return fmt.Errorf("%s: not all of the offsets are acquired by %q: %w", p.key, member, kerr.InvalidRecordState)
}
