package individualcommit

import (
	"errors"
	"fmt"

	"github.com/lacunamq/lacuna/protocol"
)

// Run is the offsets [Start, End).
type Run = protocol.Run

// ErrInvalidRuns marks runs that are empty, below 0 or out of order; Kafka's error code
// for it is INVALID_REQUEST.
var ErrInvalidRuns = errors.New("invalid runs of offsets")

// checkRuns checks that runs rise, do not touch, and are not empty.
func checkRuns(runs []Run, what string) error {
	last := int64(-1)
	for _, r := range runs {
		if r.Start <= last || r.Start >= r.End {
			return fmt.Errorf("%w: %s [%d,%d) after %d", ErrInvalidRuns, what, r.Start, r.End, last)
		}
		last = r.End
	}
	return nil
}
