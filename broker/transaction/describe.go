package transaction

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Description is a transactional id as DescribeTransactions shows it.
type Description struct {
	Producer
	Status     Status
	TimeoutMs  int32
	StartMs    int64            // Unix milliseconds; -1 before the first transaction
	Partitions []TopicPartition // in order; read only
}

// Describe describes a transactional id, and tells whether there is one of that name.
func (s *State) Describe(transactionalID string) (Description, bool) {
	e := s.ids[transactionalID]
	if e == nil {
		return Description{}, false
	}
	return Description{
		Producer: e.producer, Status: e.status, TimeoutMs: e.timeoutMs, StartMs: e.startMs, Partitions: e.partitions,
	}, true
}

// Listed is a transactional id as ListTransactions shows it.
type Listed struct {
	TransactionalID string
	ProducerID      int64
	Status          Status
}

// Filter chooses transactional ids. The zero value chooses all.
type Filter struct {
	states      []Status
	byState     bool
	producerIDs []int64
	byAge       bool
	longerMs    int64
	pattern     *regexp.Regexp
}

// NewFilter chooses ids in any of the states, which are named as Status does; with any of
// the producer ids; whose transaction began more than durationMs ago, or never, unless that
// is negative; and that match the pattern as a whole, in the syntax of RE2. What is empty
// chooses all. It returns the names that are no states' too; a pattern that is no pattern
// is INVALID_REGULAR_EXPRESSION.
func NewFilter(states []string, producerIDs []int64, durationMs int64, pattern string) (Filter, []string, *kerr.Error) {
	f := Filter{
		byState: len(states) > 0, producerIDs: producerIDs, byAge: durationMs >= 0, longerMs: durationMs,
	}
	var unknown []string
	for _, name := range states {
		switch i := slices.Index(statusNames[:], name); {
		case i >= 0:
			f.states = append(f.states, Status(i))
		case name != "Dead" && name != "PrepareEpochFence":
			unknown = append(unknown, name)
		}
	}
	if pattern != "" {
		var err error
		if _, err = syntax.Parse(pattern, syntax.Perl); err == nil { // by itself, not only within the group
			f.pattern, err = regexp.Compile(`^(?:` + pattern + `)$`)
		}
		if err != nil {
			return Filter{}, nil, kerr.InvalidRegularExpression
		}
	}
	return f, unknown, nil
}

func (f *Filter) chooses(now time.Time, e *entry) bool {
	switch {
	case len(f.producerIDs) > 0 && !slices.Contains(f.producerIDs, e.producer.ID):
		return false
	case f.byState && !slices.Contains(f.states, e.status):
		return false
	case f.byAge && now.UnixMilli()-e.startMs <= f.longerMs:
		return false
	}
	return f.pattern == nil || f.pattern.MatchString(e.id)
}

// List lists the transactional ids that the filter chooses, in order.
func (s *State) List(now time.Time, f *Filter) []Listed {
	list := []Listed{}
	for id, e := range s.ids {
		if f.chooses(now, e) {
			list = append(list, Listed{TransactionalID: id, ProducerID: e.producer.ID, Status: e.status})
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].TransactionalID < list[j].TransactionalID })
	return list
}
