package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/lacunamq/lacuna/client"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// pendingRun is offsets that one open transaction has acknowledged, both ends included.
type pendingRun struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
	inTransaction
}

// pendingOffset is a stock consumer's offset that one open transaction commits.
type pendingOffset struct {
	Offset int64 `json:"offset"`
	inTransaction
}

// inTransaction names a transaction.
type inTransaction struct {
	TransactionalID string `json:"transactional_id,omitempty"` // none: no coordinator knows it
	ProducerID      int64  `json:"producer_id"`
	ProducerEpoch   int16  `json:"producer_epoch"`
}

func (t *inTransaction) String() string {
	id := "that no transactional id knows"
	if t.TransactionalID != "" {
		id = "of " + t.TransactionalID
	}
	return fmt.Sprintf("the open transaction %s (producer %d, epoch %d)", id, t.ProducerID, t.ProducerEpoch)
}

// pendingOf is what open transactions hold of a partition for a group.
type pendingOf struct {
	runs    []pendingRun
	offsets []pendingOffset
}

// pendingIn reads what open transactions hold of a ledger.
func (c *cli) pendingIn(ctx context.Context, a *client.Admin, l *client.Ledger) (p pendingOf, err error) {
	for t, err := range a.Pending(ctx, l.Group, l.Topic, l.Partition, 0) {
		if err != nil {
			return p, c.reach(err)
		}
		in := inTransaction{ProducerID: t.ProducerID, ProducerEpoch: t.ProducerEpoch}
		for _, r := range t.Runs {
			p.runs = append(p.runs, pendingRun{r.Start, r.End - 1, in})
		}
		if t.Offset >= 0 {
			p.offsets = append(p.offsets, pendingOffset{t.Offset, in})
		}
	}
	return p, p.name(ctx, a)
}

// name adds the transactional ids.
func (p *pendingOf) name(ctx context.Context, a *client.Admin) error {
	producers := make(map[int64]string)
	for i := range p.runs {
		producers[p.runs[i].ProducerID] = ""
	}
	for i := range p.offsets {
		producers[p.offsets[i].ProducerID] = ""
	}
	if err := nameProducers(ctx, a, producers); err != nil {
		return err
	}
	for i := range p.runs {
		p.runs[i].TransactionalID = producers[p.runs[i].ProducerID]
	}
	for i := range p.offsets {
		p.offsets[i].TransactionalID = producers[p.offsets[i].ProducerID]
	}
	return nil
}

// nameProducers looks up the transactional ids of producer ids.
func nameProducers(ctx context.Context, a *client.Admin, names map[int64]string) error {
	ids := make([]int64, 0, len(names))
	for id := range names {
		ids = append(ids, id)
	}
	if len(ids) == 0 { // to ask about none is to ask about all
		return nil
	}
	listed, err := kadm.NewClient(a.Kafka()).ListTransactions(ctx, ids, nil)
	if err != nil {
		return fmt.Errorf("look up transactional ids: %w", err)
	}
	for id, t := range listed {
		names[t.ProducerID] = id
	}
	return nil
}

func (p *pendingOf) empty() bool { return len(p.runs)+len(p.offsets) == 0 }

// transactions is how many there are.
func (p *pendingOf) transactions() int64 {
	distinct := make(map[inTransaction]bool)
	for i := range p.runs {
		distinct[p.runs[i].inTransaction] = true
	}
	for i := range p.offsets {
		distinct[p.offsets[i].inTransaction] = true
	}
	return int64(len(distinct))
}

// summary counts what is pending, in one line.
func (p *pendingOf) summary(b *strings.Builder) {
	if p.empty() {
		return
	}
	var n int64
	for i := range p.runs {
		n += p.runs[i].Last + 1 - p.runs[i].First
	}
	words := plural(int64(len(p.runs)), "run", "runs")
	if len(p.offsets) > 0 {
		words += " and " + plural(int64(len(p.offsets)), "plain offset", "plain offsets")
	}
	fmt.Fprintf(b, "  pending            %15s   in %s, until %s\n", humanize.Comma(n), words,
		plural(p.transactions(), "open transaction ends", "open transactions end"))
}

// list lists at most limit of what is pending.
func (p *pendingOf) list(b *strings.Builder, limit int) {
	if p.empty() {
		return
	}
	fmt.Fprintln(b)
	t := newTable(">FIRST", ">LAST", ">OFFSETS", ">PRODUCER", ">EPOCH", "PENDING IN")
	left := 0
	add := func(first, last, n any, in *inTransaction) {
		if limit > 0 && len(t.rows) == limit {
			left++
			return
		}
		id := in.TransactionalID
		if id == "" {
			id = "-"
		}
		t.add(first, last, n, fmt.Sprint(in.ProducerID), in.ProducerEpoch, id)
	}
	for i := range p.offsets {
		o := &p.offsets[i]
		add("-", o.Offset-1, "all", &o.inTransaction)
	}
	for i := range p.runs {
		r := &p.runs[i]
		add(r.First, r.Last, r.Last+1-r.First, &r.inTransaction)
	}
	if err := t.write(b); err != nil {
		panic(err) // a strings.Builder takes everything
	}
	if left > 0 {
		fmt.Fprintf(b, "and %s; --limit 0 lists all\n", plural(int64(left), "more pending run", "more pending runs"))
	}
}

// pendingJSON is what --output json says of what is pending.
type pendingJSON struct {
	Runs    []pendingRun    `json:"runs"`
	Offsets []pendingOffset `json:"plain_offsets,omitempty"`
	More    int             `json:"more,omitempty"` // runs that are not listed
}

// json lists at most limit runs; nil if nothing is pending.
func (p *pendingOf) json(limit int) *pendingJSON {
	if p.empty() {
		return nil
	}
	out := &pendingJSON{Runs: append([]pendingRun{}, p.runs...), Offsets: p.offsets}
	if limit > 0 && len(out.Runs) > limit {
		out.Runs, out.More = out.Runs[:limit], len(out.Runs)-limit
	}
	return out
}

// unstable are the partitions without a ledger of which an open transaction commits an
// offset, as a stock consumer does: Kafka's protocol says so by refusing to tell a stable
// offset. Of a share group it says nothing.
func (c *cli) unstable(ctx context.Context, group string) (map[client.TopicPartition]bool, error) {
	adm, err := c.kafkaAdmin()
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	offsets, err := adm.FetchOffsets(kadm.RequireStable(ctx), group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, c.reach(err)
	}
	unstable := make(map[client.TopicPartition]bool)
	offsets.Each(func(o kadm.OffsetResponse) {
		if errors.Is(o.Err, kerr.UnstableOffsetCommit) {
			unstable[client.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = true
		}
	})
	return unstable, nil
}
