package group

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// ClassicState is the state of a classic group, spelled as Kafka does.
type ClassicState string

// The states of a classic group. Dead is reported for a group that does not exist.
const (
	Empty               ClassicState = "Empty"
	PreparingRebalance  ClassicState = "PreparingRebalance"
	CompletingRebalance ClassicState = "CompletingRebalance"
	Stable              ClassicState = "Stable"
	Dead                ClassicState = "Dead"
)

// ConsumerProtocolType is the protocol type of consumers, whose subscriptions the
// coordinator reads.
const ConsumerProtocolType = "consumer"

// classic is a group of the classic protocol.
type classic struct {
	id      string
	state   ClassicState
	before  ClassicState // the state it was in before this one
	sinceMs int64        // when it came to this one; -1 unknown

	protocolType string // empty: no member yet
	protocol     string // selected for this generation; empty: none
	generation   int32
	leader       string // a member id; empty: none

	members []*member // in the order in which they joined
	byID    map[string]*member
	static  map[string]string // instance id to member id
	// pending are member ids that were given out and whose member has not joined yet.
	pending map[string]*groupDeadline

	awaiting  int            // members whose JoinGroup is parked
	supported map[string]int // how many members support a protocol

	joinPhase, syncPhase groupDeadline
	// initial is set while the first members of an empty group are waited for:
	// initialStep is how long the wait under way is, initialLeft how much longer all of
	// them may get.
	initial                  bool
	initialStep, initialLeft time.Duration
	grew                     bool // a member came during the initial wait

	// subscribed are the topics of all members; nil with known false when they cannot be
	// told.
	subscribed map[string]struct{}
	known      bool
}

func newClassic(id string) *classic {
	c := &classic{
		id: id, state: Empty, before: Dead, sinceMs: noTimestamp,
		byID: make(map[string]*member), static: make(map[string]string),
		pending: make(map[string]*groupDeadline), supported: make(map[string]int),
	}
	c.joinPhase = groupDeadline{Of: ending{kind: joinEnds, group: c}}
	c.syncPhase = groupDeadline{Of: ending{kind: syncEnds, group: c}}
	return c
}

// become is the one place where a group changes its state.
func (c *classic) become(next ClassicState, sinceMs int64) {
	legal := false
	switch next {
	case PreparingRebalance:
		legal = c.canRebalance()
	case CompletingRebalance, Empty:
		legal = c.state == PreparingRebalance
	case Stable:
		legal = c.state == CompletingRebalance
	}
	if !legal {
		panic(fmt.Sprintf("group %q: from %s to %s", c.id, c.state, next))
	}
	c.before, c.state, c.sinceMs = c.state, next, sinceMs
}

func (c *classic) canRebalance() bool {
	return c.state == Stable || c.state == CompletingRebalance || c.state == Empty
}

// member is a member of a classic group.
type member struct {
	id, instanceID, clientID, clientHost string
	sessionTimeout, rebalanceTimeout     time.Duration
	protocols                            []Protocol // its own copies, in its order
	assignment                           []byte     // never written to

	session groupDeadline
	join    Ticket // of its parked JoinGroup; zero: none
	sync    Ticket // of its parked SyncGroup; zero: none
	// unsynced says that it has not asked for its assignment in this generation.
	unsynced bool
	// fresh says that it has not been in a generation yet. Only then may its session end
	// while its JoinGroup is parked.
	fresh bool
}

// awaitingJoin says whether the member has joined the rebalance under way.
func (m *member) awaitingJoin() bool { return m.join != 0 }

// metadata is what the member says in a protocol.
func (m *member) metadata(protocol string) []byte {
	said, _ := m.knows(protocol)
	return said
}

// knows tells whether the member has a protocol, and what it says in it.
func (m *member) knows(protocol string) (said []byte, ok bool) {
	for i := range m.protocols {
		if m.protocols[i].Name == protocol {
			return m.protocols[i].Metadata, true
		}
	}
	return nil, false
}

// says tells whether protocols are the very ones that the member has.
func (m *member) says(protocols []Protocol) bool {
	return slices.EqualFunc(m.protocols, distinct(protocols), func(a, b Protocol) bool {
		return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata)
	})
}

// check tells whether a request comes from a member, and not from one that was replaced
// under its instance id.
func (c *classic) check(memberID, instanceID string) *kerr.Error {
	if instanceID != "" {
		id, ok := c.static[instanceID]
		if !ok {
			return kerr.UnknownMemberID
		}
		if id != memberID {
			return kerr.FencedInstanceID
		}
	}
	if c.byID[memberID] == nil {
		return kerr.UnknownMemberID
	}
	return nil
}

// checkGeneration is check for a request that names a generation.
func (c *classic) checkGeneration(memberID, instanceID string, generation int32) *kerr.Error {
	if err := c.check(memberID, instanceID); err != nil {
		return err
	}
	if generation != c.generation {
		return kerr.IllegalGeneration
	}
	return nil
}

// allJoined says that nobody is waited for in this rebalance.
func (c *classic) allJoined() bool { return c.awaiting == len(c.members) && len(c.pending) == 0 }

// rebalanceTimeout is the longest that a member asks for.
func (c *classic) rebalanceTimeout() time.Duration {
	var longest time.Duration
	for _, m := range c.members {
		longest = max(longest, m.rebalanceTimeout)
	}
	return longest
}

// simple says that the group only keeps offsets and never had a member.
func (c *classic) simple() bool {
	return c.protocolType == "" && c.state == Empty && len(c.pending) == 0
}
