package cooperative

// State is where a record stands between its append and its end.
type State uint8

const (
	Unknown   State = iota // not fed, or done: which of the two, the ledger tells
	Available              // to be dealt, at once or when its key is free
	Acquired               // with a member, until it acknowledges or the lock runs out
	Delayed                // released, and not dealt before its backoff is over
	Pending                // acknowledged in a transaction that is open
	Archiving              // not dealt any more; its dead letter is not yet durable
	Settled                // accepted, rejected or archived: the ledger's business from here on
)

var stateNames = [...]string{"unknown", "available", "acquired", "delayed", "pending", "archiving", "settled"}

func (s State) String() string { return stateNames[s] }

// mayBecome decides whether a change of a record's state is legal. There is no other
// place that does.
func (s State) mayBecome(to State) bool {
	if to == Settled {
		return s != Settled // a commit, or the start of the log, may pass any record
	}
	switch s {
	case Unknown:
		return to == Available || to == Pending || to == Archiving // fed; the last two after a restart
	case Available:
		return to == Acquired || to == Archiving // at its limit, when that was lowered
	case Acquired:
		return to == Available || to == Acquired || to == Delayed || to == Pending || to == Archiving // to itself: renewed
	case Delayed:
		return to == Available
	case Pending:
		return to == Available || to == Archiving
	case Archiving, Settled:
	}
	return false
}
