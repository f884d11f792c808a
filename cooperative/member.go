package cooperative

// member is somebody who acquires records.
type member struct {
	id    string
	holds uint32   // the first of its own, none: it has none
	ready list     // KeyOrdered: keys that it has records of, with more to be dealt
	want  int      // of its waiting fetch, 0: it has none
	lanes []uint32 // KeyRange: those that it holds, in order
	turn  int      // KeyRange: counts its hands, so that its lanes take turns
}

type members struct {
	arena[member]
	by map[string]uint32
}

// member is the index of a member, made if there is none.
func (d *Dispatcher) member(id string) uint32 {
	if i, ok := d.members.by[id]; ok {
		return i
	}
	i := d.members.add(member{id: id, holds: none, ready: emptyList})
	d.members.by[id] = i
	for l := range d.lanes {
		if d.lanes[l].holderID == id {
			d.give(uint32(l), i)
		}
	}
	return i
}

// dropMember forgets a member that holds nothing of its own.
func (d *Dispatcher) dropMember(i uint32) {
	d.unwait(i)
	for _, l := range d.members.at(i).lanes {
		d.lanes[l].holder = none
	}
	delete(d.members.by, d.members.at(i).id)
	d.members.remove(i)
}

// idOf is the name of a member, "" of none.
func (d *Dispatcher) idOf(i uint32) string {
	if i == none {
		return ""
	}
	return d.members.at(i).id
}
