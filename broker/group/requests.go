package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Ticket names a request whose answer may come with a later operation. The caller
// chooses it, unique among the requests under way; zero is no ticket.
type Ticket uint64

// JoinRequest asks to become or stay a member of a classic group (JoinGroup).
type JoinRequest struct {
	Group      string
	MemberID   string // empty: not a member yet
	InstanceID string // static membership; empty: none
	ClientID   string
	ClientHost string
	// SessionTimeout is how long the member may be silent, RebalanceTimeout how long a
	// rebalance waits for it to rejoin.
	SessionTimeout, RebalanceTimeout time.Duration
	ProtocolType                     string
	Protocols                        []Protocol // in the member's order of preference; copied
	// NewMemberID is what a member without an id is called, if it is admitted.
	NewMemberID string
	// RequireMemberID makes a dynamic member join twice, the second time with the id that
	// it was given (KIP-394, JoinGroup 4 and later).
	RequireMemberID bool
	// CanSkipAssignment says that a leader understands that it is to keep the assignment
	// (KIP-814, JoinGroup 9 and later).
	CanSkipAssignment bool
	Reason            string // for people
}

// Protocol is one way of assigning partitions that a member supports, with what the
// member tells the leader in it.
type Protocol struct {
	Name     string
	Metadata []byte
}

// JoinAnswer tells a member its generation. With an error, all but the member id is
// empty and the generation -1.
type JoinAnswer struct {
	Err          *kerr.Error
	Generation   int32
	ProtocolType string
	Protocol     string
	Leader       string
	MemberID     string
	// SkipAssignment tells the leader that the group's assignment stands.
	SkipAssignment bool
	Members        []JoinedMember // for the leader only; shared with the group, read only
}

// JoinedMember is a member as the leader learns of it.
type JoinedMember struct {
	ID, InstanceID string
	Metadata       []byte
}

// SyncRequest asks for the member's assignment; the leader's brings all (SyncGroup).
type SyncRequest struct {
	Group, MemberID, InstanceID string
	Generation                  int32
	// ProtocolType and Protocol are checked when given (KIP-559, SyncGroup 5 and later).
	ProtocolType, Protocol string
	Assignments            []Assignment // the leader's; copied
}

// Assignment is what the leader gives a member.
type Assignment struct {
	MemberID string
	Data     []byte
}

// SyncAnswer is a member's assignment, read only.
type SyncAnswer struct {
	Err                    *kerr.Error
	ProtocolType, Protocol string
	Assignment             []byte
}

// HeartbeatRequest keeps a member's session (Heartbeat).
type HeartbeatRequest struct {
	Group, MemberID, InstanceID string
	Generation                  int32
}

// LeaveRequest takes members out of a group (LeaveGroup).
type LeaveRequest struct {
	Group   string
	Members []LeavingMember
}

// LeavingMember is named by its member id, or by its instance id alone (an operator's
// removal of a static member).
type LeavingMember struct {
	MemberID, InstanceID string
	Reason               string // for people
}

// Reply is the decision about one request with a ticket: exactly one of Join and Sync is
// set.
type Reply struct {
	Ticket Ticket
	Join   *JoinAnswer
	Sync   *SyncAnswer
}

// Event is something that happened to a group, for the log that people read.
type Event struct {
	Group      string
	Generation int32
	Members    int
	What       string // such as "rebalance begins"
	Detail     string // why, or who
}

// Output collects what operations decided. Records are to be appended in their order,
// and no reply may be sent before they are durable.
type Output struct {
	Records []Record
	Replies []Reply
	Events  []Event
	Shares  []ShareChange
}

// Reset empties the output, keeping its memory.
func (o *Output) Reset() {
	clear(o.Records)
	clear(o.Replies)
	clear(o.Events)
	clear(o.Shares)
	o.Records, o.Replies, o.Events, o.Shares = o.Records[:0], o.Replies[:0], o.Events[:0], o.Shares[:0]
}

// Appended says that the records are appended; what else there is stays.
func (o *Output) Appended() {
	clear(o.Records)
	o.Records = o.Records[:0]
}

func (o *Output) join(t Ticket, a JoinAnswer) {
	if t != 0 {
		o.Replies = append(o.Replies, Reply{Ticket: t, Join: &a})
	}
}

func (o *Output) sync(t Ticket, a SyncAnswer) {
	if t != 0 {
		o.Replies = append(o.Replies, Reply{Ticket: t, Sync: &a})
	}
}

func joinError(memberID string, err *kerr.Error) JoinAnswer {
	return JoinAnswer{Err: err, MemberID: memberID, Generation: -1}
}
