package share

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
)

// MaxMemberID is how many characters the id of a member has at most, as in Kafka: those of a
// UUID.
const MaxMemberID = 36

// Epochs in heartbeats that are none.
const (
	epochJoin  = 0
	epochLeave = -1
)

// Env is what an operation sees and does.
type Env struct {
	Now     time.Time
	Cluster Cluster
	// Emit logs a record and applies it to the group.
	Emit func(Change)
}

// Heartbeat is a member's request (ShareGroupHeartbeat).
type Heartbeat struct {
	Group    string
	MemberID string
	Epoch    int32 // 0 to join, -1 to leave
	RackID   *string
	// Topics are the names subscribed to; nil: as before.
	Topics               []string
	ClientID, ClientHost string
}

// Leaves tells that the member goes.
func (h *Heartbeat) Leaves() bool { return h.Epoch == epochLeave }

// Joins tells that the member comes, or comes back.
func (h *Heartbeat) Joins() bool { return h.Epoch == epochJoin }

// Answer is what a member is told.
type Answer struct {
	Epoch             int32
	HeartbeatInterval time.Duration
	// Assignment is what the member is to fetch; without Assigned it is as before.
	Assignment []TopicPartitions
	Assigned   bool
}

// Error is a refusal with the words that a client is told.
type Error struct {
	Kind    *kerr.Error
	Message string
}

// Error is part of error.
func (e *Error) Error() string { return e.Message }

// Unwrap gives the code.
func (e *Error) Unwrap() error { return e.Kind }

func refusal(kind *kerr.Error, format string, args ...any) error {
	return &Error{kind, fmt.Sprintf(format, args...)}
}

// Check refuses a request that no group could grant.
func (h *Heartbeat) Check() error {
	switch {
	case h.MemberID == "":
		return refusal(kerr.InvalidRequest, "MemberId can't be empty.")
	case utf8.RuneCountInString(h.MemberID) > MaxMemberID:
		return refusal(kerr.InvalidRequest, "MemberId can't be longer than %d characters.", MaxMemberID)
	case h.Group == "":
		return refusal(kerr.InvalidRequest, "GroupId can't be empty.")
	case h.RackID != nil && *h.RackID == "":
		return refusal(kerr.InvalidRequest, "RackId can't be empty.")
	case h.Joins() && len(h.Topics) == 0:
		return refusal(kerr.InvalidRequest, "SubscribedTopicNames must be set in first request.")
	case h.Epoch < epochLeave:
		return refusal(kerr.InvalidRequest, "MemberEpoch is invalid.")
	}
	return nil
}

// Heartbeat takes a member in, keeps it up to date, or lets it go. The session of a member
// is the caller's.
func (g *Group) Heartbeat(env *Env, h *Heartbeat) (Answer, error) {
	settings := env.Cluster.Settings(g.id)
	m := g.find(h.MemberID)
	switch {
	case m == nil && !h.Joins():
		return Answer{}, refusal(kerr.UnknownMemberID, "Member %s is not a member of group %s.", h.MemberID, g.id)
	case m == nil && len(g.members) >= settings.MaxSize:
		return Answer{}, refusal(kerr.GroupMaxSizeReached, "The share group has reached its maximum capacity of %d members.", settings.MaxSize)
	case h.Leaves():
		g.Remove(env, h.MemberID)
		return Answer{Epoch: epochLeave}, nil
	case m != nil:
		if err := m.checkEpoch(h.Epoch); err != nil {
			return Answer{}, err
		}
	}
	g.update(env, m, h)
	m = g.find(h.MemberID)
	// A member that is behind has not heard the answer that told it of its assignment.
	behind := h.Epoch != m.current.epoch
	changed := g.reconcile(env, m)
	a := Answer{Epoch: m.current.epoch, HeartbeatInterval: settings.HeartbeatInterval}
	if changed || behind || h.Topics != nil {
		a.Assignment, a.Assigned = m.current.partitions, true
	}
	return a, nil
}

// checkEpoch fences a member that is neither up to date nor one answer behind.
func (m *member) checkEpoch(epoch int32) error {
	at := m.current.epoch
	switch {
	case epoch == epochJoin || epoch == at || epoch == m.current.previousEpoch:
		return nil
	case epoch > at:
		return refusal(kerr.FencedMemberEpoch, "The share group member has a greater member epoch (%d) than the one known by the group coordinator (%d). "+
			"The member must abandon all its partitions and rejoin.", epoch, at)
	}
	return refusal(kerr.FencedMemberEpoch, "The share group member has a smaller member epoch (%d) than the one known by the group coordinator (%d). "+
		"The member must abandon all its partitions and rejoin.", epoch, at)
}

// update takes in what the member, nil for a new one, says of itself.
func (g *Group) update(env *Env, m *member, h *Heartbeat) {
	next := memberValue{clientID: h.ClientID, clientHost: h.ClientHost, rackID: h.RackID}
	if m != nil {
		next.topics = m.topics
		if h.RackID == nil {
			next.rackID = m.rackID
		}
	}
	if h.Topics != nil {
		next.topics = slices.Compact(slices.Sorted(slices.Values(h.Topics)))
	}
	if m != nil && m.memberValue.equal(&next) {
		return
	}
	subscribes := m == nil || !slices.Equal(m.topics, next.topics)
	env.Emit(memberRecord(g.id, h.MemberID, &next))
	if subscribes {
		g.bump(env)
	}
}

func (v *memberValue) equal(other *memberValue) bool {
	return v.clientID == other.clientID && v.clientHost == other.clientHost && slices.Equal(v.topics, other.topics) &&
		(v.rackID == nil) == (other.rackID == nil) && (v.rackID == nil || *v.rackID == *other.rackID)
}

// reconcile brings a member to the newest assignment, and tells whether it is another.
func (g *Group) reconcile(env *Env, m *member) (changed bool) {
	if m.current.epoch == g.assignment.epoch {
		return false
	}
	changed = !equalPartitions(m.current.partitions, m.target.partitions)
	env.Emit(currentRecord(g.id, m.id, &currentValue{
		epoch: g.assignment.epoch, previousEpoch: m.current.epoch, partitions: m.target.partitions,
	}))
	return changed
}

// Remove takes a member out: it leaves, or was silent for too long.
func (g *Group) Remove(env *Env, id string) {
	buckets := g.deal(env, id)
	g.bury(env, id)
	g.bumpTo(env, buckets)
}

// bury logs that there is nothing of a member any more.
func (g *Group) bury(env *Env, id string) {
	env.Emit(currentRecord(g.id, id, nil))
	env.Emit(targetRecord(g.id, id, nil))
	env.Emit(memberRecord(g.id, id, nil))
}

func equalPartitions(a, b []TopicPartitions) bool {
	return slices.EqualFunc(a, b, func(x, y TopicPartitions) bool {
		return x.Topic == y.Topic && slices.Equal(x.Partitions, y.Partitions)
	})
}
