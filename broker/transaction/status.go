package transaction

import "fmt"

// Status is what stage a transactional id is at. The numbers are those of the log.
type Status int8

// The stages. Kafka's Dead and PrepareEpochFence are never logged, and do not exist here.
const (
	Empty          Status = 0 // no transaction since InitProducerId
	Ongoing        Status = 1
	PrepareCommit  Status = 2 // decided; the markers are not all written
	PrepareAbort   Status = 3
	CompleteCommit Status = 4
	CompleteAbort  Status = 5
)

var statusNames = [...]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"}

// String is the name that Kafka's tools show.
func (s Status) String() string {
	if s < 0 || int(s) >= len(statusNames) {
		return fmt.Sprintf("Status(%d)", int8(s))
	}
	return statusNames[s]
}

func (s Status) ending() bool   { return s == PrepareCommit || s == PrepareAbort }
func (s Status) complete() bool { return s == CompleteCommit || s == CompleteAbort }
