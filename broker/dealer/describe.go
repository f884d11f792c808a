package dealer

import (
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
)

// Description is how the dealing of a share partition stands.
type Description struct {
	extension.TopicPartition
	Mode      cooperative.Mode
	Acquired  int
	Delayed   int // released, and not dealt before their backoff is over
	Pending   int // staged in transactions that are open
	Archiving int // they wait for their dead letters
	FedTo     int64
	Members   []cooperative.MemberStanding
	// Held are records that members have acquired, by offset.
	Held []cooperative.Held
	// HeldTo is where to go on for more of them, -1 if these are all.
	HeldTo int64
	// Oldest is the oldest offset that is not committed. It may be one that is not written.
	Oldest int64
}

// Page says which acquired records are wanted: at most Limit runs, from an offset on.
type Page struct {
	From  int64
	Limit int
}

// Open are the share partitions of a group that are dealt, in no order.
func (d *Dealer) Open(group string) []extension.TopicPartition {
	var open []extension.TopicPartition
	for _, p := range d.of(group) {
		open = append(open, p.TopicPartition)
	}
	return open
}

// Describe tells how a share partition stands. It changes nothing. It is not ok if nobody
// has fetched from the partition since it was closed last, so that nothing is acquired.
func (d *Dealer) Describe(group string, tp extension.TopicPartition, page Page) (about Description, ok bool) {
	about = Description{TopicPartition: tp, HeldTo: -1}
	ok = d.look(key{group, tp}, func(dealing *cooperative.Dispatcher, l *individualcommit.Ledger) {
		about.Mode, about.FedTo = dealing.Mode(), dealing.FeedFrom()
		about.Acquired, about.Delayed = dealing.Count(cooperative.Acquired), dealing.Count(cooperative.Delayed)
		about.Pending, about.Archiving = dealing.Count(cooperative.Pending), dealing.Count(cooperative.Archiving)
		about.Members, about.Oldest = dealing.Members(), l.Stable()
		for held := range dealing.Holdings(page.From) {
			if len(about.Held) == page.Limit {
				about.HeldTo = held.Start
				return
			}
			about.Held = append(about.Held, held)
		}
	})
	return about, ok
}

// Explanation is what is known of one offset of a share partition.
type Explanation struct {
	cooperative.Standing
	Committed bool
	// Staged tells that a transaction holds the offset, which By is of.
	Staged bool
	By     individualcommit.Producer
	FedTo  int64 // up to where records have been read to be dealt
	Mode   cooperative.Mode
}

// Explain tells where one offset stands. It changes nothing, and is not ok when Describe
// is not.
func (d *Dealer) Explain(group string, tp extension.TopicPartition, offset int64) (e Explanation, ok bool) {
	ok = d.look(key{group, tp}, func(dealing *cooperative.Dispatcher, l *individualcommit.Ledger) {
		e.Standing, e.Committed = dealing.Explain(offset), l.IsCommitted(offset)
		e.By, e.Staged = l.PendingIn(offset)
		e.FedTo, e.Mode = dealing.FeedFrom(), dealing.Mode()
	})
	return e, ok
}

// look lets f look at a share partition that is open, under the ledger's lock.
func (d *Dealer) look(k key, f func(*cooperative.Dispatcher, *individualcommit.Ledger)) (ok bool) {
	p := d.existing(k)
	if p == nil {
		return false
	}
	var nothing cooperative.Changes
	_, err := p.ledger.Do(&nothing, func(l *individualcommit.Ledger) { f(p.locked.dealing, l) })
	return err == nil
}
