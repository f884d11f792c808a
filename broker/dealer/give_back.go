package dealer

import (
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
)

// GiveBack takes back what a fetch was dealt and its member will not get, whatever the
// reason: it can be dealt again at once, and no delivery counts.
func (d *Dealt) GiveBack() { d.giveBackFrom(0) }

// giveBackFrom takes back the deliveries from index n on.
func (d *Dealt) giveBackFrom(n int) {
	if d.p != nil && n < len(d.Deliveries) {
		d.p.giveBack(d.member, d.Deliveries[n:])
		d.Deliveries = d.Deliveries[:n]
	}
}

func (p *partition) giveBack(member string, deliveries []cooperative.Delivery) {
	// If the ledger is gone, so is what was acquired.
	_, _ = p.act(func(*individualcommit.Ledger) {
		p.locked.dealing.GiveBack(member, deliveries, p.d.nowMs(), &p.locked.changes)
	})
}
