package processor

import (
	"slices"
	"time"
)

// schedules are the punctuations of a task. They are a plain value: whoever has them asks
// what is due, and when to ask again.
type schedules struct {
	all []*schedule
	// kept are those by stream time of before a restart, which have not been added again yet.
	kept []keptSchedule
}

type schedule struct {
	every     time.Duration
	by        Clock
	punctuate func(at time.Time) error
	// next is when it is due; zero while stream time has not begun.
	next time.Time
}

// add adds a punctuation and returns what removes it.
func (s *schedules) add(every time.Duration, by Clock, punctuate func(time.Time) error, now, streamTime time.Time) func() {
	added := &schedule{every: every, by: by, punctuate: punctuate}
	if by == WallClock {
		added.next = after(now, every)
	} else if !streamTime.IsZero() {
		added.next = s.goOn(every, after(streamTime, every))
	}
	s.all = append(s.all, added)
	return func() {
		s.all = slices.DeleteFunc(slices.Clone(s.all), func(other *schedule) bool { return other == added })
	}
}

// goOn is when a punctuation by stream time is due next that is added: where one with this
// interval was before a restart, or else as given.
func (s *schedules) goOn(every time.Duration, next time.Time) time.Time {
	i := slices.IndexFunc(s.kept, func(k keptSchedule) bool { return k.every == every })
	if i < 0 {
		return next
	}
	next = s.kept[i].next
	s.kept = slices.Delete(s.kept, i, i+1)
	return next
}

// after is the first whole multiple of an interval after a moment.
func after(t time.Time, every time.Duration) time.Time {
	n := t.UnixNano() / int64(every)
	return time.Unix(0, (n+1)*int64(every))
}

// begin has punctuations by stream time that have not begun begin with a record, wherever in
// a unit of work that is.
func (s *schedules) begin(streamTime time.Time) {
	for _, sch := range s.all {
		if sch.by == StreamTime && sch.next.IsZero() {
			sch.next = after(streamTime, sch.every)
		}
	}
}

// clock is the time that the punctuation goes by.
func (s *schedule) clock(now, streamTime time.Time) time.Time {
	if s.by == StreamTime {
		return streamTime
	}
	return now
}

// due is the punctuation that is due first, nil if none is.
func (s *schedules) due(now, streamTime time.Time) (first *schedule) {
	for _, sch := range s.all {
		if sch.next.IsZero() || sch.next.After(sch.clock(now, streamTime)) {
			continue
		}
		if first == nil || sch.next.Before(first.next) {
			first = sch
		}
	}
	return first
}

// skip leaves out what stream time has passed, from one moment to another, with records that
// were processed before: who processed them punctuated then. What was due already stays so.
func (s *schedules) skip(from, streamTime time.Time) {
	for _, sch := range s.all {
		if sch.by == StreamTime && sch.next.After(from) && !sch.next.After(streamTime) {
			sch.next = after(streamTime, sch.every)
		}
	}
}

// passed moves a punctuation that was called on to its next time.
func (s *schedule) passed(now, streamTime time.Time) {
	s.next = after(s.clock(now, streamTime), s.every)
}

// wake is when the next punctuation by wall clock is due; zero if there is none.
func (s *schedules) wake() (at time.Time) {
	for _, sch := range s.all {
		if sch.by == WallClock && (at.IsZero() || sch.next.Before(at)) {
			at = sch.next
		}
	}
	return at
}
