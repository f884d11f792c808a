package transaction

import "time"

// maxTicked is how many transactional ids one Tick deals with, so that a broker that comes
// back after a week does not log all of them at once.
const maxTicked = 1000

// due is the moment at which Tick has something to do about a transactional id: an ongoing
// transaction times out, or an idle id expires.
func (s *State) due(v *value) (at time.Time, ok bool) {
	switch {
	case v.status.ending():
		return time.Time{}, false
	case v.status == Ongoing:
		return time.UnixMilli(v.startMs + int64(v.timeoutMs)), true
	}
	return time.UnixMilli(v.updateMs + s.config.IDExpiration.Milliseconds()), true
}

// NextDeadline is a moment by which Tick should be called, if there is any. It is past if
// Tick has more to do.
func (s *State) NextDeadline() (time.Time, bool) { return s.deadlines.Next() }

// Tick aborts transactions whose time is up, and forgets transactional ids that have not
// been used for long.
func (s *State) Tick(now time.Time, out *Output) {
	for range maxTicked {
		d := s.deadlines.Due(now)
		if d == nil {
			return
		}
		if e := d.Of; e.status == Ongoing {
			s.abort(now, e, out)
		} else {
			s.emit(e.id, nil, out)
		}
	}
}
