package cooperative

// freshRecord is a record with a key that was fed and not looked at.
type freshRecord struct {
	offset int64
	hash   uint64
}

// ring is a queue of such records, in order of their offsets.
type ring struct {
	items []freshRecord // a power of 2 of them
	head  int
	n     int
}

func (q *ring) at(i int) *freshRecord { return &q.items[(q.head+i)&(len(q.items)-1)] }

func (q *ring) push(f freshRecord) {
	if q.n == len(q.items) {
		items := make([]freshRecord, max(64, 2*q.n))
		for i := range q.n {
			items[i] = *q.at(i)
		}
		q.items, q.head = items, 0
	}
	q.n++
	*q.at(q.n - 1) = f
	for i := q.n - 1; i > 0 && q.at(i-1).offset > q.at(i).offset; i-- { // reopened
		*q.at(i - 1), *q.at(i) = *q.at(i), *q.at(i - 1)
	}
}

func (q *ring) pop() freshRecord {
	f := *q.at(0)
	q.head = (q.head + 1) & (len(q.items) - 1)
	q.n--
	return f
}

// has tells whether the offset is in the queue.
func (q *ring) has(offset int64) bool {
	_, ok := q.find(offset)
	return ok
}

// find is where the offset is in the queue.
func (q *ring) find(offset int64) (at int, ok bool) {
	lo, hi := 0, q.n
	for lo < hi {
		if mid := (lo + hi) / 2; q.at(mid).offset < offset {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < q.n && q.at(lo).offset == offset
}

// hasBefore tells whether a record of the key is in the queue before an offset.
func (q *ring) hasBefore(offset int64, hash uint64) bool {
	for i := 0; i < q.n && q.at(i).offset < offset; i++ {
		if q.at(i).hash == hash {
			return true
		}
	}
	return false
}

// retain keeps the records that keep says yes to.
func (q *ring) retain(keep func(freshRecord) bool) {
	n := 0
	for i := range q.n {
		if f := *q.at(i); keep(f) {
			*q.at(n) = f
			n++
		}
	}
	q.n = n
}
