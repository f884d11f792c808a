package cooperative

// key is a key of which records are acquired, pending, or waiting for that. While records
// of it are acquired by one member, further ones go only to it, in order of the offsets.
type key struct {
	hash       uint64
	from, to   int64 // its records in [from, to) are not kept but read again; from == to: there are none
	last       int64 // no record above it is taken
	lane       uint32
	head, tail ref // all records of it that are kept, in order
	wait       ref // the first of those that no member and no transaction has
	taken      uint32
	waiting    uint32
	orphans    uint32 // of the taken ones, those pending of a member that is gone: till their end, nothing more is dealt
	holder     uint32 // the member that has the other taken ones, none if there are none
	listed     bool   // in the list `in` of ready keys
	asked      bool   // in Dispatcher.keyAsks, or asked for
	live       bool
	in         listName
	next, prev uint32 // in that list
}

// waitingBytes is about what a waiting record takes.
const waitingBytes = 16

// list is ready keys: those with a record that could be dealt now.
type list struct {
	head, tail uint32
	n          int
}

var emptyList = list{head: none, tail: none}

// listName says whose list: a member's, or else a lane's.
type listName struct {
	of     uint32
	member bool
}

func (d *Dispatcher) list(n listName) *list {
	if n.member {
		return &d.members.at(n.of).ready
	}
	return &d.lanes[n.of].ready
}

func (d *Dispatcher) enlist(ki uint32, n listName) {
	l, k := d.list(n), d.keys.at(ki)
	k.in, k.listed, k.next, k.prev = n, true, none, l.tail
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
	k.listed = false
	l.n--
}

// keyOf is the key with a hash, made if there is none.
func (d *Dispatcher) keyOf(hash uint64) uint32 {
	ki, ok := d.keyBy.find(hash)
	if !ok {
		ki = d.addKey(hash, d.laneOf(hash))
	}
	return ki
}

// addKey makes the key with a hash, of which there is none.
func (d *Dispatcher) addKey(hash uint64, li uint32) uint32 {
	ki := d.keys.add(key{hash: hash, lane: li, head: none, tail: none, wait: none, holder: none, live: true})
	d.keyBy.put(ki)
	return ki
}

// dropKey forgets a key; the records that it kept become unknown unless they are taken.
func (d *Dispatcher) dropKey(ki uint32) {
	k := d.keys.at(ki)
	if k.listed {
		d.delist(ki)
	}
	for k.head != none {
		r := k.head
		d.unlink(ki, r)
		d.pages.tidy(r >> pageShift)
	}
	d.waiting -= int(k.waiting)
	d.keyBy.remove(k.hash)
	d.keys.remove(ki)
}

// insert puts a record in the list of its key, by default at the end.
func (d *Dispatcher) insert(ki uint32, offset int64) ref {
	k := d.keys.at(ki)
	r := d.pages.refOf(d.pages.get(offset>>pageShift), offset)
	prev := k.tail
	for prev != none && d.pages.offsetOf(prev) > offset {
		prev = d.pages.link(prev).prev
	}
	next := k.head
	if prev != none {
		next = d.pages.link(prev).next
	}
	d.pages.addLink(r, link{key: ki, next: next, prev: prev})
	d.join(k, prev, r)
	d.join(k, r, next)
	return r
}

// join makes two records neighbours in the list of their key, none being its ends.
func (d *Dispatcher) join(k *key, a, b ref) {
	if a == none {
		k.head = b
	} else {
		d.pages.link(a).next = b
	}
	if b == none {
		k.tail = a
	} else {
		d.pages.link(b).prev = a
	}
}

// unlink takes a record out of the list of its key.
func (d *Dispatcher) unlink(ki uint32, r ref) {
	d.bypass(d.keys.at(ki), r)
	d.pages.removeLinks(r>>pageShift, 1<<(r&(pageBits-1)))
}

// bypass takes a record out of the list of its key but for its link, which is to be removed.
func (d *Dispatcher) bypass(k *key, r ref) {
	l := d.pages.link(r)
	if k.wait == r {
		k.wait = d.nextWaiting(l.next)
	}
	d.join(k, l.prev, l.next)
}

// nextWaiting is the first record from r on that no member and no transaction has.
func (d *Dispatcher) nextWaiting(r ref) ref {
	for r != none && d.hasTaker(r) {
		r = d.pages.link(r).next
	}
	return r
}

func (d *Dispatcher) hasTaker(r ref) bool {
	s := d.stateOf(r)
	return s == Acquired || s == Pending
}

// stateOf is the state of a record that is in the list of a key.
func (d *Dispatcher) stateOf(r ref) State {
	pi, bit := r>>pageShift, uint64(1)<<(r&(pageBits-1))
	if d.pages.at(pi).taken&bit == 0 {
		return Available
	}
	return d.holds.at(d.holds.group(d.groupOf(pi, bit)).hold).state
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
	if k.head == none && k.from == k.to {
		d.dropKey(ki)
		return
	}
	in, ready := d.readyIn(k)
	if k.listed && (!ready || in != k.in) {
		d.delist(ki)
	}
	if ready && !k.listed {
		d.enlist(ki, in)
	}
	if d.asksAgain(k) {
		k.asked = true
		d.keyAsks = append(d.keyAsks, ki)
	}
}

// behindStretch tells whether records of a key that are not kept may come before the first
// that waits: one that was pending or delayed before it was read.
func (d *Dispatcher) behindStretch(k *key) bool {
	return k.from < k.to && k.wait != none && d.pages.offsetOf(k.wait) >= k.from
}

// readyIn is the list in which a key belongs, if its next record can be dealt now.
func (d *Dispatcher) readyIn(k *key) (in listName, ready bool) {
	switch {
	case k.wait == none || d.stateOf(k.wait) != Available || d.behindStretch(k):
		return in, false
	case k.orphans > 0:
		return in, false
	case d.config.Mode == KeyRange || k.taken == 0:
		return listName{of: k.lane}, true
	default:
		return listName{of: k.holder, member: true}, true
	}
}
