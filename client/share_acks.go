package client

import (
	"cmp"
	"slices"
)

// ackItem is one acknowledgement: of a record, or of offsets without one.
type ackItem struct {
	first, last int64 // both included, as on the wire
	kind        ackKind
	delivery    *delivery // nil for gaps
}

// ackPart is what a request says of one partition. Kafka takes it whole or not at all;
// Lacuna takes each run of it so.
type ackPart struct {
	at    sharePartition
	items []ackItem // by offset
}

// ackQueue is what is to be acknowledged. What was refused together is sent again in
// halves, until what is to blame stands alone.
type ackQueue struct {
	open  map[sharePartition][]ackItem
	apart []ackPart // each in a request without others of its partition
	count int       // items in all
}

func (q *ackQueue) add(at sharePartition, items ...ackItem) {
	if len(items) == 0 {
		return
	}
	if q.open == nil {
		q.open = make(map[sharePartition][]ackItem)
	}
	q.open[at] = append(q.open[at], items...)
	q.count += len(items)
}

// addDelivery adds the acknowledgement of one record.
func (q *ackQueue) addDelivery(d *delivery, kind ackKind) {
	q.add(d.at, ackItem{first: d.offset(), last: d.offset(), kind: kind, delivery: d})
}

// halve queues a part of several items again, to be sent in two requests.
func (q *ackQueue) halve(p ackPart) {
	half := len(p.items) / 2
	q.apart = append(q.apart, ackPart{p.at, p.items[:half:half]}, ackPart{p.at, p.items[half:]})
	q.count += len(p.items)
}

// put queues a part once more as it was.
func (q *ackQueue) put(p ackPart) {
	q.apart = append(q.apart, p)
	q.count += len(p.items)
}

// take empties the queue into the parts of one request, as far as they fit in one. What was
// lost meanwhile is left out.
func (q *ackQueue) take() []ackPart {
	var parts []ackPart
	taken := make(map[sharePartition]bool)
	use := func(at sharePartition, items []ackItem) {
		q.count -= len(items)
		if items = stillOurs(items); len(items) > 0 {
			taken[at] = true
			parts = append(parts, ackPart{at, items})
		}
	}
	rest := q.apart[:0]
	for _, p := range q.apart {
		if taken[p.at] {
			rest = append(rest, p)
			continue
		}
		use(p.at, p.items)
	}
	clear(q.apart[len(rest):])
	q.apart = rest
	for at, items := range q.open {
		if taken[at] {
			continue
		}
		slices.SortFunc(items, func(a, b ackItem) int { return cmp.Compare(a.first, b.first) })
		use(at, items)
		delete(q.open, at)
	}
	return parts
}

// stillOurs leaves out, in place, what is over.
func stillOurs(items []ackItem) []ackItem {
	kept := items[:0]
	for _, item := range items {
		if item.delivery == nil || item.delivery.state != deliveryOver {
			kept = append(kept, item)
		}
	}
	return kept
}

// ackRun is a run of offsets that are acknowledged alike, both ends included.
type ackRun struct {
	first, last int64
	kind        ackKind
}

// appendRuns appends the part as it goes over the wire.
func (p *ackPart) appendRuns(runs []ackRun) []ackRun {
	from := len(runs)
	for _, item := range p.items {
		if n := len(runs); n > from && runs[n-1].last+1 == item.first && runs[n-1].kind == item.kind {
			runs[n-1].last = item.last
			continue
		}
		runs = append(runs, ackRun{item.first, item.last, item.kind})
	}
	return runs
}
