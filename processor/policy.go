package processor

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrorPolicy decides what becomes of a record whose processing has failed so many times, 1
// at first. For a punctuation the record is nil.
type ErrorPolicy func(r *kgo.Record, err error, failures int) Decision

// Decision is what becomes of a record that failed.
type Decision struct {
	action action
	after  time.Duration
}

type action int8

const (
	stop action = iota
	retry
	skip
)

// Stop ends the App with the error. It is the zero Decision.
func Stop() Decision { return Decision{} }

// RetryAfter tries again after a while. The task does nothing else meanwhile, since the
// records behind may be of the same key.
func RetryAfter(d time.Duration) Decision { return Decision{action: retry, after: d} }

// Skip takes the record for done. It goes to the dead-letter topic if there is one
// ([DeadLetters]), with the outcome in the same transaction if there are any. A punctuation
// cannot be skipped: the App stops.
func Skip() Decision { return Decision{action: skip} }

// RetryThen tries so many times again, with a pause that doubles from the given one up to a
// minute, before it does what last says.
func RetryThen(times int, pause time.Duration, last Decision) ErrorPolicy {
	return func(_ *kgo.Record, _ error, failures int) Decision {
		if failures > times {
			return last
		}
		after := pause
		for range failures - 1 {
			after = min(2*after, time.Minute)
		}
		return RetryAfter(after)
	}
}
