package cooperative

import "slices"

// Wait lets the fetch of a member wait for up to maxRecords records, at the end of the
// line; if it waits already it keeps its place. Ready tells when it is to be tried again.
func (d *Dispatcher) Wait(memberID string, maxRecords int) {
	i := d.member(memberID)
	if m := d.members.at(i); m.want == 0 {
		d.waitList = append(d.waitList, i)
	}
	d.members.at(i).want = max(maxRecords, 1)
}

// Cancel ends the wait of a member's fetch, if it has one. An Acquire that gets something
// does so by itself.
func (d *Dispatcher) Cancel(memberID string) {
	if i, ok := d.members.by[memberID]; ok {
		d.unwait(i)
	}
}

func (d *Dispatcher) unwait(i uint32) {
	if m := d.members.at(i); m.want > 0 {
		m.want = 0
		d.waitList = slices.DeleteFunc(d.waitList, func(w uint32) bool { return w == i })
	}
}

// Ready appends the members whose waiting fetches can be served, in the order in which to
// do so. It is to be asked after every change, and is derived from what there is, so that
// no kind of change can be forgotten. A fetch that then gets nothing, which may be since
// records turned out to have keys of other members, goes on waiting; that is settled
// once these records were looked at, so serve and ask again until nobody is ready.
func (d *Dispatcher) Ready(dst []string) []string {
	room := d.room()
	shared := 0
	if d.config.Mode != KeyRange {
		shared = d.lanes[0].available()
	}
	for i, mi := range d.waitList {
		if room <= 0 {
			return dst
		}
		m := d.members.at(mi)
		switch {
		case m.ready.n > 0 || d.config.Mode == KeyRange && d.ofLanes(mi) > 0:
			dst = append(dst, m.id)
		case shared > 0:
			dst = append(dst, m.id)
			n := shareOf(shared, len(d.waitList)-i, m.want)
			shared -= n
			room -= n
		}
	}
	return dst
}

// ofLanes is about how many records of its own lanes a member could get, in KeyRange.
func (d *Dispatcher) ofLanes(mi uint32) int {
	n := 0
	for _, li := range d.members.at(mi).lanes {
		n += d.lanes[li].available()
	}
	return n
}

// share is how many of the records that others could have a member may take: an equal
// share among those who wait, though at least an eighth of its batch.
func (d *Dispatcher) share(mi uint32, want int) int {
	if d.config.Mode == KeyRange {
		return want
	}
	waiting := len(d.waitList)
	if d.members.at(mi).want == 0 {
		waiting++
	}
	return shareOf(d.lanes[0].available(), waiting, want)
}

func shareOf(available, waiting, want int) int {
	return min(want, max((available+waiting-1)/waiting, (want+7)/8))
}
