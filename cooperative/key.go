package cooperative

// key is a key of which records are acquired, pending, or waiting for that. While records
// of it are acquired by one member, further ones go only to it, in order of the offsets.
//
// It is a line of the processor's cache, 64 bytes: with many keys, most of the time goes to
// fetching them from memory.
type key struct {
	hash       uint64
	last       int64 // no record above it is taken
	head, tail ref   // all records of it that are kept, in order, and some that left: see order.go
	wait       ref   // the first of those that no member and no transaction has
	taken      uint32
	waiting    uint32
	near       ref      // one of them, from where others are looked for; or none
	holder     uint32   // the member that has the taken ones that are no orphans, none if there are none
	extra      uint32   // in Dispatcher.extras, mostly none
	in         listName // the list of ready keys that it is in
	next, prev uint32   // in that list
	left       uint16
	asked      bool // in Dispatcher.keyAsks, or asked for
	live       bool
}

// extra is what few keys have besides.
type extra struct {
	from, to int64  // the key's records in [from, to) are not kept but read again; from == to: there are none
	orphans  uint32 // of the taken ones, those pending of a member that is gone: till their end, nothing more is dealt
}

func (d *Dispatcher) extraOf(k *key) extra {
	if k.extra == none {
		return extra{}
	}
	return *d.extras.at(k.extra)
}

func (d *Dispatcher) setExtra(k *key, e extra) {
	empty := e.from >= e.to && e.orphans == 0
	switch {
	case empty && k.extra != none:
		d.extras.remove(k.extra)
		k.extra = none
	case empty:
	case k.extra == none:
		k.extra = d.extras.add(e)
	default:
		*d.extras.at(k.extra) = e
	}
}

// stretch is between which offsets the records of a key are not kept but read again.
func (d *Dispatcher) stretch(k *key) (from, to int64) {
	e := d.extraOf(k)
	return e.from, e.to
}

func (d *Dispatcher) setStretch(k *key, from, to int64) {
	d.setExtra(k, extra{from, to, d.extraOf(k).orphans})
}

func (d *Dispatcher) isSpilt(k *key) bool {
	from, to := d.stretch(k)
	return from < to
}

func (d *Dispatcher) orphans(k *key) uint32 { return d.extraOf(k).orphans }

func (d *Dispatcher) addOrphan(k *key) {
	e := d.extraOf(k)
	e.orphans++
	d.setExtra(k, e)
}

func (d *Dispatcher) dropOrphan(k *key) {
	e := d.extraOf(k)
	e.orphans--
	d.setExtra(k, e)
}

// waitingBytes is about what a waiting record takes.
const waitingBytes = 16

// list is ready keys: those with a record that could be dealt now.
type list struct {
	head, tail uint32
	n          int
}

var emptyList = list{head: none, tail: none}

// listName says whose list of ready keys: that of a lane, by its index, or of a member.
type listName uint32

const (
	noList     = listName(none)
	memberList = listName(1 << 31) // and the member's index
)

func (d *Dispatcher) list(n listName) *list {
	if n >= memberList {
		return &d.members.at(uint32(n &^ memberList)).ready
	}
	return &d.lanes[n].ready
}

func (d *Dispatcher) enlist(ki uint32, n listName) {
	l, k := d.list(n), d.keys.at(ki)
	k.in, k.next, k.prev = n, none, l.tail
	if l.tail == none {
		l.head = ki
	} else {
		d.keys.at(l.tail).next = ki
	}
	l.tail = ki
	l.n++
}

func (d *Dispatcher) delist(ki uint32) {
	k := d.keys.at(ki)
	l := d.list(k.in)
	if k.prev == none {
		l.head = k.next
	} else {
		d.keys.at(k.prev).next = k.next
	}
	if k.next == none {
		l.tail = k.prev
	} else {
		d.keys.at(k.next).prev = k.prev
	}
	k.in = noList
	l.n--
}

// keyOf is the key with a hash, made if there is none.
func (d *Dispatcher) keyOf(hash uint64) uint32 {
	ki, ok := d.keyBy.find(hash)
	if !ok {
		ki = d.addKey(hash)
	}
	return ki
}

// addKey makes the key with a hash, of which there is none.
func (d *Dispatcher) addKey(hash uint64) uint32 {
	ki := d.keys.add(key{
		hash: hash, head: none, tail: none, wait: none, near: none, holder: none, extra: none, in: noList, live: true,
	})
	d.keyBy.put(ki)
	return ki
}

// dropKey forgets a key; the records that it kept become unknown unless they are taken.
func (d *Dispatcher) dropKey(ki uint32) {
	k := d.keys.at(ki)
	if k.in != noList {
		d.delist(ki)
	}
	for r := k.head; r != none; {
		wi, bit := splitRef(r)
		r = d.pages.link(r).next
		d.pages.removeLinks(wi, bit)
		d.pages.tidy(wi)
	}
	d.setExtra(k, extra{})
	d.waiting -= int(k.waiting)
	d.keyBy.remove(k.hash, ki)
	d.keys.remove(ki)
}

func (d *Dispatcher) hasTaker(r ref) bool {
	s := d.stateOf(r)
	return s == Acquired || s == Pending
}

// stateOf is the state of a record that is in the list of a key.
func (d *Dispatcher) stateOf(r ref) State {
	wi, bit := splitRef(r)
	if d.pages.taken(wi)&bit == 0 {
		return Available
	}
	hi, _ := d.partOf(wi, bit)
	return d.holds.at(hi).state
}

// addWaiting puts a record that no member has in the list of its key.
func (d *Dispatcher) addWaiting(ki uint32, offset int64) {
	r := d.insert(ki, offset)
	d.startWaiting(ki, r)
}

// startTaken counts a record that a member or a transaction has from now on.
func (k *key) startTaken(offset int64) {
	k.taken++
	k.last = max(k.last, offset)
}

func (d *Dispatcher) startWaiting(ki uint32, r ref) {
	k := d.keys.at(ki)
	k.waiting++
	d.waiting++
	if k.wait == none || d.pages.offsetOf(r) < d.pages.offsetOf(k.wait) {
		k.wait = r
	}
}

// place puts the key where it belongs after a change: in the list of those who may be
// dealt its records, in line to be read again, or away.
func (d *Dispatcher) place(ki uint32) {
	k := d.keys.at(ki)
	if k.taken == 0 {
		k.holder = none
	}
	if k.taken+k.waiting == 0 && !d.isSpilt(k) {
		d.dropKey(ki)
		return
	}
	d.sweep(k)
	if in := d.readyIn(k); in != k.in {
		if k.in != noList {
			d.delist(ki)
		}
		if in != noList {
			d.enlist(ki, in)
		}
	}
	if d.asksAgain(k) {
		k.asked = true
		d.keyAsks = append(d.keyAsks, ki)
	}
}

// behindStretch tells whether records of a key that are not kept may come before the first
// that waits: one that was pending or delayed before it was read.
func (d *Dispatcher) behindStretch(k *key) bool {
	from, to := d.stretch(k)
	return from < to && k.wait != none && d.pages.offsetOf(k.wait) >= from
}

// readyIn is the list in which a key belongs: none, if its next record cannot be dealt now.
func (d *Dispatcher) readyIn(k *key) listName {
	switch {
	case k.wait == none || d.stateOf(k.wait) != Available || d.behindStretch(k) || d.orphans(k) > 0:
		return noList
	case d.config.Mode == KeyRange || k.taken == 0:
		return listName(d.laneOf(k.hash))
	default:
		return memberList | listName(k.holder)
	}
}
