package broker

import (
	"context"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/lacunamq/lacuna/broker/dealer"
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/ledgers"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/broker/share"
	"github.com/lacunamq/lacuna/broker/transaction"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/twmb/franz-go/pkg/kerr"
)

// OffsetExplanation is what GET /share-groups/GROUP/explain of the admin listener says of
// one offset.
type OffsetExplanation struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	// State is one of: gone, not written, committed, absent, acquired, delayed, pending,
	// archiving, available, not read; or open, when nobody fetches from the partition.
	State string `json:"state"`
	Why   string `json:"why"`
	// Member acquired the offset, or staged it in a transaction.
	Member      string  `json:"member,omitempty"`
	AgeMs       int64   `json:"age_ms,omitempty"`        // since it was acquired or renewed
	ExpiresInMs int64   `json:"expires_in_ms,omitempty"` // when that, or a backoff, ends by itself
	Deliveries  int     `json:"deliveries"`              // that have begun
	Key         *string `json:"key,omitempty"`           // of the record, if it is UTF-8
	Slot        *uint16 `json:"slot,omitempty"`          // key slot of the record
	SlotHolder  string  `json:"slot_holder,omitempty"`   // who is dealt the slot, in the mode key-range
	Blocker     string  `json:"blocker,omitempty"`       // who has earlier records of the key
	ProducerID  *int64  `json:"producer_id,omitempty"`   // of the transaction
	Epoch       *int16  `json:"producer_epoch,omitempty"`
	// TransactionalID is that of the transaction, none if no coordinator knows it.
	TransactionalID string `json:"transactional_id,omitempty"`
}

// adminExplain answers GET /share-groups/{group}/explain?topic=&partition=&offset=.
func (b *Broker) adminExplain(r *http.Request) (any, error) {
	q := adminQuery{r: r}
	group, name := r.PathValue("group"), r.FormValue("topic")
	partition, offset := int32(q.number("partition", 0)), q.number("offset", -1)
	if q.err != nil {
		return nil, q.err
	}
	if name == "" || offset < 0 {
		return nil, fmt.Errorf("%w: topic and offset have to be said", kerr.InvalidRequest)
	}
	view, err := b.shareView(r.Context(), group)
	if err != nil {
		return nil, err
	}
	t, refused := b.topics.find(name, metadata.TopicID{}, false)
	if refused != nil || t.partition(partition) == nil {
		return nil, fmt.Errorf("%w: there is no partition %d of topic %q", errNotFound, partition, name)
	}
	x := &explaining{b: b, view: view, tp: extension.TopicPartition{Topic: t.id, Partition: partition}, nowMs: b.nowMs(),
		OffsetExplanation: OffsetExplanation{Topic: name, Partition: partition, Offset: offset}}
	if err := x.explain(r.Context()); err != nil {
		return nil, err
	}
	return &x.OffsetExplanation, nil
}

// explaining finds out about one offset.
type explaining struct {
	OffsetExplanation
	b     *Broker
	view  *share.View
	tp    extension.TopicPartition
	nowMs int64
}

func (x *explaining) explain(ctx context.Context) error {
	bounds, err := dataLogs{x.b}.Bounds(x.tp)
	switch {
	case err != nil:
		return err
	case x.Offset < bounds.Start:
		x.say("gone", "the log starts at %d; what was below it was deleted", bounds.Start)
		return nil
	case x.Offset >= bounds.HighWatermark:
		x.say("not written", "the log ends at %d", bounds.HighWatermark)
		return nil
	}
	record := x.b.recordAt(x.tp, x.Offset)
	x.addKey(record)
	standing, dealt := x.b.dealer.Explain(x.view.Group(), x.tp, x.Offset)
	switch {
	case !dealt:
		err = x.fromLedger(ctx)
	case standing.Staged && !standing.Committed:
		x.Member, x.Deliveries = standing.Member, standing.Deliveries
		err = x.pending(ctx, standing.By)
	default:
		x.fromDealer(&standing)
	}
	if err != nil {
		return err
	}
	if !record.there && x.State != "committed" {
		x.say("absent", "there is no record at it: compaction removed it, or it is the end of a transaction; it holds nothing up")
	}
	return nil
}

func (x *explaining) say(state, why string, args ...any) {
	x.State, x.Why = state, fmt.Sprintf(why, args...)
}

// addKey adds what the record's key says.
func (x *explaining) addKey(record copiedRecord) {
	if !record.there {
		return
	}
	if record.key != nil && utf8.Valid(record.key) {
		key := string(record.key)
		x.Key = &key
	}
	slot := keyfilter.Slot(record.key, x.Offset)
	x.Slot = &slot
	x.SlotHolder = x.view.Holder(x.tp.Topic, x.tp.Partition, slot)
}

// fromLedger explains an offset of a partition that is not being dealt.
func (x *explaining) fromLedger(ctx context.Context) error {
	views, err := x.b.ledgers.Fetch(ctx, x.view.Group(), []extension.TopicPartition{x.tp}, &ledgers.GapsQuery{From: x.Offset, MaxRuns: 1, MaxPending: 1})
	if err != nil {
		return err
	}
	v := &views[0]
	switch {
	case !v.Founded:
		x.say("open", "the group has not begun the partition")
	case x.Offset < v.Offset:
		x.say("committed", "everything below the stable offset %d is done", v.Offset)
	case x.Offset < v.MaxCommit && (len(v.Gaps) == 0 || v.Gaps[0].Start > x.Offset):
		x.say("committed", "on its own, above the stable offset %d", v.Offset)
	default:
		for _, t := range v.InTransactions.Transactions {
			if len(t.Runs) > 0 && t.Runs[0].Start == x.Offset { // what begins below is cut off there
				return x.pending(ctx, individualcommit.Producer{ID: t.ProducerID, Epoch: t.ProducerEpoch})
			}
		}
		x.say("open", "nobody fetches from the partition now; it is dealt when a member does")
	}
	return nil
}

// pending explains an offset that a transaction holds.
func (x *explaining) pending(ctx context.Context, by individualcommit.Producer) error {
	f, _, refused := transaction.NewFilter(nil, []int64{by.ID}, -1, "")
	if refused != nil {
		return refused
	}
	known, err := x.b.transactions.List(ctx, &f)
	if err != nil {
		return err
	}
	of := "that no transactional id knows"
	if len(known) > 0 {
		x.TransactionalID = known[0].TransactionalID
		of = "of " + x.TransactionalID
	}
	x.ProducerID, x.Epoch = &by.ID, &by.Epoch
	x.say("pending", "it is with the open transaction %s (producer %d, epoch %d): committed if that commits, dealt again if it aborts", of, by.ID, by.Epoch)
	return nil
}

func (x *explaining) fromDealer(e *dealer.Explanation) {
	x.Deliveries = e.Deliveries
	switch {
	case e.Committed:
		x.say("committed", "it is done: accepted, rejected, or archived at its delivery limit")
		return
	}
	switch e.State {
	case cooperative.Acquired:
		x.Member, x.Deliveries = e.Member, e.Deliveries+1
		x.AgeMs, x.ExpiresInMs = max(x.nowMs-e.SinceMs, 0), max(e.DeadlineMs-x.nowMs, 0)
		x.say("acquired", "member %s has it for %v, in delivery %d; its lock ends in %v", e.Member, rounded(x.AgeMs), x.Deliveries, rounded(x.ExpiresInMs))
	case cooperative.Delayed:
		x.ExpiresInMs = max(e.DeadlineMs-x.nowMs, 0)
		x.say("delayed", "it was released after delivery %d, and is not dealt again before its backoff ends in %v", e.Deliveries, rounded(x.ExpiresInMs))
	case cooperative.Archiving:
		x.say("archiving", "%s; its dead letter is not written yet, why the broker's log says", map[cooperative.Cause]string{
			cooperative.Rejected: "a member rejected it", cooperative.Exhausted: fmt.Sprintf("it reached its limit with delivery %d", e.Deliveries)}[e.Cause])
	case cooperative.Available:
		x.available(e)
	default:
		x.notFed(e)
	}
}

// available explains an offset that could be dealt.
func (x *explaining) available(e *dealer.Explanation) {
	switch {
	case e.Blocker != "":
		x.Blocker = e.Blocker
		x.say("available", "it waits for earlier records of its key, which member %s has; it goes to the same member, in order", e.Blocker)
	case e.Moved:
		x.say("available", "its key range has moved to %s, and waits until the member before has done what it acquired of it", x.holderInWords())
	case e.Mode == cooperative.KeyRange:
		x.say("available", "it is dealt with the next fetch of %s, which holds its key range", x.holderInWords())
	default:
		x.say("available", "it is dealt with one of the next fetches, in its turn")
	}
}

func (x *explaining) holderInWords() string {
	if x.SlotHolder == "" {
		return "a member that is yet to come"
	}
	return "member " + x.SlotHolder
}

func (x *explaining) notFed(e *dealer.Explanation) {
	if x.Offset < e.FedTo {
		x.say("not read", "it waits behind many others of its key, and is read again when it is their turn")
		return
	}
	x.say("not read", "the log was read up to offset %d to be dealt, and is read on when that is nearly dealt", e.FedTo)
}

// rounded is a duration for people.
func rounded(ms int64) time.Duration {
	d := time.Duration(ms) * time.Millisecond
	if d >= 10*time.Second {
		return d.Round(time.Second)
	}
	return d
}
