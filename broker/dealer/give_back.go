package dealer

import (
	"slices"

	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
)

// GiveBack takes back what a fetch was dealt and its member will not get, whatever the
// reason: it can be dealt again at once, and no delivery counts.
func (d *Dealt) GiveBack() { d.giveBackFrom(0) }

// giveBackFrom takes back what was dealt of the offsets from at on.
func (d *Dealt) giveBackFrom(at int64) {
	n := slices.IndexFunc(d.Deliveries, func(g cooperative.Delivery) bool { return g.End > at })
	if n < 0 {
		return
	}
	back := slices.Clone(d.Deliveries[n:])
	d.Deliveries = d.Deliveries[:n]
	if first := &back[0]; first.Start < at {
		kept := *first
		kept.End, first.Start = at, at
		d.Deliveries = append(d.Deliveries, kept)
	}
	d.p.giveBack(d.member, back)
}

func (p *partition) giveBack(member string, deliveries []cooperative.Delivery) {
	// If the ledger is gone, so is what was acquired.
	_, _ = p.act(func(*individualcommit.Ledger) {
		p.locked.dealing.GiveBack(member, deliveries, p.d.nowMs(), &p.locked.changes)
	})
}
