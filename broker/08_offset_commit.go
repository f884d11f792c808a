package broker

import (
	"context"
	"errors"
	"strings"

	"github.com/lacunamq/lacuna/broker/group"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetCommit (8), versions 2 to 10.
//
// v5 took the retention away, v6 added leader epochs, v7 static members (KIP-345), v8
// flexible versions, v9 errors of KIP-848, v10 topic ids (KIP-848).
//
// From version 8 on a partition may carry IndividualOffsets, and is then answered with
// IndividualState (docs/protocol.md). What it commits, and every commit of a partition
// that has a ledger, goes to the ledger.
//
// A commit begins in the order of the connection; its answer waits until it is durable.
func (b *Broker) offsetCommit(c *call, req *kmsg.OffsetCommitRequest) func(context.Context) kmsg.Response {
	o := &offsetCommitting{
		b: b, byID: c.version >= 10, resp: req.ResponseKind().(*kmsg.OffsetCommitResponse),
		told: func(err error) error { return commitError(err, c.version) },
	}
	// The request's strings are gone when this returns.
	o.plain = group.CommitRequest{
		Identity: group.Identity{
			Group: strings.Clone(req.Group), MemberID: strings.Clone(req.MemberID),
			InstanceID: strings.Clone(orEmpty(req.InstanceID)), Generation: req.Generation,
		},
		RetentionMs: -1,
	}
	if c.version <= 4 {
		o.plain.RetentionMs = req.RetentionTimeMillis
	}
	o.begin(c.ctx, req)
	if o.commit == nil && o.ledgers == nil {
		c.answer = o.resp
		return nil
	}
	return o.await
}

// commitError is what a client of that version understands.
func commitError(err error, version int16) error {
	if version < 9 && errors.Is(err, kerr.GroupIDNotFound) {
		return kerr.IllegalGeneration
	}
	return err
}
