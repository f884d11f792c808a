package group

import "github.com/lacunamq/lacuna/broker/deadline"

// endKind says what a deadline ends.
type endKind int8

const (
	sessionEnds      endKind = iota // of a member
	pendingEnds                     // of a member id that was given out and not used yet
	joinEnds                        // the phase in which members rejoin
	syncEnds                        // the phase in which members fetch their assignment
	shareSessionEnds                // of a member of a share group
)

// ending is what ends in a group at a deadline.
type ending struct {
	kind   endKind
	group  *classic // nil in a share group
	share  *entry   // nil in a classic group
	member string
}

// groupDeadline is a moment at which something in a group ends unless it is moved.
type groupDeadline = deadline.Deadline[ending]
