package tests

import (
	"slices"
	"syscall"
	"time"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// eosEvent is something that happens once so many inputs are done.
type eosEvent struct {
	at     int
	name   string
	happen func()
}

// plan draws what happens to the workers and the broker. Each kind of it happens.
func (r *eosRun) plan() (events []eosEvent) {
	kinds := []eosEvent{
		{name: "broker killed", happen: r.killBroker},
		{name: "broker killed", happen: r.killBroker},
		{name: "workers killed", happen: r.killWorkers},
		{name: "workers killed", happen: r.killWorkers},
		{name: "workers stopped", happen: r.stopWorkers},
		{name: "workers replaced", happen: r.replaceWorkers},
		{name: "connections cut", happen: r.proxy.cut},
		{name: "all killed", happen: r.killAll},
	}
	n := max(len(kinds), r.inputs/1000)
	for len(events) < n {
		r.rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		events = append(events, kinds...)
	}
	for i := range events {
		events[i].at = r.inputs * (i + 1) * 8 / (10 * (len(events) + 1))
	}
	return events
}

// killBroker kills the broker, and starts another over what is left.
func (r *eosRun) killBroker() {
	r.broker.kill()
	r.startBroker()
}

// killWorkers kills a process, and others of which somebody else has the seat. The next one
// takes over its transactional ids, or leaves them to their time-out.
func (r *eosRun) killWorkers() {
	for _, p := range r.zombies {
		p.kill()
	}
	r.zombies = nil
	seat := r.rng.IntN(eosSeats)
	was := r.seats[seat]
	was.kill()
	name := was.job.Name
	if r.rng.IntN(2) == 0 {
		name = r.newName()
	}
	r.seats[seat] = r.hire(seat, name)
}

// stopWorkers stops a process for longer than the locks of its records last.
func (r *eosRun) stopWorkers() {
	p := r.seats[r.rng.IntN(eosSeats)]
	p.signal(syscall.SIGSTOP)
	<-time.After(eosLock + 300*time.Millisecond)
	p.signal(syscall.SIGCONT)
}

// replaceWorkers stops a process, hires another one in its place, and lets both go on.
func (r *eosRun) replaceWorkers() {
	seat := r.rng.IntN(eosSeats)
	p := r.seats[seat]
	p.signal(syscall.SIGSTOP)
	r.seats[seat] = r.hire(seat, r.newName())
	r.zombies = append(r.zombies, p)
	<-time.After(eosLock + 300*time.Millisecond)
	p.signal(syscall.SIGCONT)
}

// killAll kills all workers, and sometimes the broker too, looks at what they left, and
// takes new ones.
func (r *eosRun) killAll() {
	resume := r.rival.rest()
	for _, p := range slices.Concat(r.seats[:], r.zombies) {
		p.kill()
	}
	r.zombies = nil
	if r.rng.IntN(2) == 0 {
		r.killBroker()
	}
	r.look()
	resume()
	r.hireAll()
}

// countBatches adds the number of records of whole batches to n, and returns the offset
// behind them.
func countBatches(batches []byte, n *int) (next int64, err error) {
	err = wire.EachRecord(batches, func(*protocol.Record) error {
		*n++
		return nil
	})
	for err == nil && len(batches) > 0 {
		var h protocol.BatchHeader
		if h, err = protocol.ParseBatchHeader(batches); err == nil {
			batches, next = batches[h.Size():], h.NextOffset()
		}
	}
	return next, err
}
