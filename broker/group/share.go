package group

import (
	"fmt"
	"time"

	"github.com/lacunamq/lacuna/broker/share"
	"github.com/twmb/franz-go/pkg/kerr"
)

// ShareChange says that a share group has another assignment, or other members.
type ShareChange struct {
	Group string
	// Gone are members that are none any more, in order. One that has come back since is
	// among them, and in View too.
	Gone []string
	View *share.View // nil: the group was deleted
}

// noCluster is a cluster without topics, until there is another.
type noCluster struct{}

func (noCluster) Topic(string) (share.Topic, bool) { return share.Topic{}, false }

func (noCluster) Settings(string) share.Settings {
	return share.Settings{SessionTimeout: 45 * time.Second, HeartbeatInterval: 5 * time.Second, MaxSize: 200, KeyRangeInitial: 16}
}

// SetCluster tells of topics and settings as they are now. Once the state is loaded, what
// share groups assign follows at once.
func (s *State) SetCluster(now time.Time, c share.Cluster, out *Output) {
	s.cluster = c
	if !s.live {
		return
	}
	for _, id := range s.ids() {
		if e := s.groups[id]; e.share != nil {
			s.onShare(e, now, out, func(env *share.Env) { e.share.Refresh(env) })
		}
	}
}

// HasShares tells whether there are share groups.
func (s *State) HasShares() bool {
	for _, e := range s.groups {
		if e.share != nil {
			return true
		}
	}
	return false
}

func (s *State) applyShare(c *share.Change) {
	e := s.groups[c.Group]
	switch {
	case c.EndsGroup():
		if e != nil && e.share != nil {
			s.forget(e)
		}
		return
	case e == nil && c.Removes():
		return
	case e == nil:
		e = &entry{id: c.Group}
		s.groups[c.Group] = e
	}
	if e.share == nil {
		s.release(e)
		e.classic, e.share, e.sessions = nil, share.New(e.id), make(map[string]*groupDeadline)
	}
	e.share.Apply(c)
}

// loadedShare begins the sessions of a share group, and brings it up to date.
func (s *State) loadedShare(e *entry, now time.Time, out *Output) {
	s.onShare(e, now, out, func(env *share.Env) { e.share.Refresh(env) })
	timeout := s.cluster.Settings(e.id).SessionTimeout
	for _, id := range e.share.Members() {
		s.keepShareSession(e, id, now.Add(timeout))
	}
}

// onShare runs an operation on a share group, and tells what it changed.
func (s *State) onShare(e *entry, now time.Time, out *Output, do func(*share.Env)) {
	g, before := e.share, e.share.View()
	do(&share.Env{Now: now, Cluster: s.cluster, Emit: func(c share.Change) {
		s.emit(Record{Key: c.Key, Value: c.Value, share: &c}, out)
	}})
	if g.View() == before {
		return
	}
	var gone []string
	if before != nil {
		for _, id := range before.Members() {
			if !g.Member(id) {
				gone = append(gone, id)
				s.endsShareSession(e, id)
			}
		}
	}
	out.Shares = append(out.Shares, ShareChange{Group: e.id, Gone: gone, View: g.View()})
}

func (s *State) keepShareSession(e *entry, member string, until time.Time) {
	d := e.sessions[member]
	if d == nil {
		d = &groupDeadline{Of: ending{kind: shareSessionEnds, share: e, member: member}}
		e.sessions[member] = d
	}
	s.deadlines.Set(d, until)
}

func (s *State) endsShareSession(e *entry, member string) {
	if d := e.sessions[member]; d != nil {
		s.deadlines.Clear(d)
		delete(e.sessions, member)
	}
}

// endShareSession takes out a member that was silent for too long.
func (s *State) endShareSession(d *ending, now time.Time, out *Output) {
	s.onShare(d.share, now, out, func(env *share.Env) { d.share.share.Remove(env, d.member) })
	out.Events = append(out.Events, Event{
		Group: d.share.id, Generation: d.share.share.View().Epoch(), Members: d.share.share.Size(),
		What: "a member of a share group was silent for too long", Detail: d.member,
	})
}

// ShareHeartbeat takes a member of a share group in, keeps it, or lets it go
// (ShareGroupHeartbeat). A refusal is a *share.Error.
func (s *State) ShareHeartbeat(now time.Time, h *share.Heartbeat, out *Output) (answer share.Answer, err error) {
	if err := h.Check(); err != nil {
		return answer, err
	}
	e := s.groups[h.Group]
	switch {
	case e == nil && h.Joins():
		e = s.addShare(h.Group)
	case e == nil:
		return answer, shareRefusal(kerr.GroupIDNotFound, "Share group %s not found.", h.Group)
	case e.share == nil:
		return answer, notShare(h.Group)
	}
	s.onShare(e, now, out, func(env *share.Env) { answer, err = e.share.Heartbeat(env, h) })
	switch {
	case e.share.View() == nil: // refused, and not there before
		delete(s.groups, h.Group)
	case err == nil && !h.Leaves():
		s.keepShareSession(e, h.MemberID, now.Add(s.cluster.Settings(e.id).SessionTimeout))
	}
	return answer, err
}

func (s *State) addShare(id string) *entry {
	e := &entry{id: id, share: share.New(id), sessions: make(map[string]*groupDeadline)}
	s.groups[id] = e
	return e
}

func shareRefusal(kind *kerr.Error, format string, args ...any) error {
	return &share.Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

func notShare(id string) error {
	return shareRefusal(kerr.GroupIDNotFound, "Group %s is not a share group.", id)
}

// findShare is a share group, or the reason why there is none.
func (s *State) findShare(id string) (*entry, error) {
	switch e := s.groups[id]; {
	case e == nil:
		return nil, shareRefusal(kerr.GroupIDNotFound, "Group %s not found.", id)
	case e.share == nil:
		return nil, notShare(id)
	default:
		return e, nil
	}
}

// DescribeShare describes a share group (ShareGroupDescribe).
func (s *State) DescribeShare(id string) (share.Description, error) {
	e, err := s.findShare(id)
	if err != nil {
		return share.Description{}, err
	}
	return e.share.Describe(), nil
}

// ShareView is what the members of a share group may fetch, nil if there is no such group.
func (s *State) ShareView(id string) *share.View {
	if e := s.groups[id]; e != nil && e.share != nil {
		return e.share.View()
	}
	return nil
}

// ShareViews are the views of all share groups, by id.
func (s *State) ShareViews() []*share.View {
	var views []*share.View
	for _, id := range s.ids() {
		if v := s.ShareView(id); v != nil {
			views = append(views, v)
		}
	}
	return views
}

// FoundShare tells why an operator may not set offsets of a share group
// (AlterShareGroupOffsets), and makes one without members if there is none of that id yet
// and something is to be set.
func (s *State) FoundShare(now time.Time, id string, sets bool, out *Output) error {
	if id == "" {
		return shareRefusal(kerr.InvalidGroupID, "GroupId can't be empty.")
	}
	e := s.groups[id]
	switch {
	case e == nil && !sets:
		return nil
	case e == nil:
		e = s.addShare(id)
		s.onShare(e, now, out, func(env *share.Env) { e.share.Found(env) })
		return nil
	case e.share == nil:
		return notShare(id)
	}
	if err := checkEmptyShare(e); err != nil {
		return err
	}
	return nil
}

func checkEmptyShare(e *entry) *kerr.Error {
	if !e.share.Empty() {
		return kerr.NonEmptyGroup
	}
	return nil
}

// ErrShareGroup refuses requests of plain Kafka that do not go with share groups. Clients
// see GROUP_ID_NOT_FOUND in every version, whatever that is in a classic group.
var ErrShareGroup = &kerr.Error{
	Message: kerr.GroupIDNotFound.Message, Code: kerr.GroupIDNotFound.Code, Description: "The group is a share group.",
}

// checkShareCommit admits an operator while the group has no members. Nobody else commits
// offsets of a share group by a request of plain Kafka.
func (s *State) checkShareCommit(e *entry, id *Identity) *kerr.Error {
	if !id.Operator {
		return ErrShareGroup
	}
	return checkEmptyShare(e)
}

// CheckShareEmpty tells whether the offsets of a share group may be deleted: it exists, and
// has no members.
func (s *State) CheckShareEmpty(id string) error {
	if id == "" {
		return shareRefusal(kerr.InvalidGroupID, "GroupId can't be empty.")
	}
	e, err := s.findShare(id)
	if err != nil {
		return err
	}
	if err := checkEmptyShare(e); err != nil {
		return err
	}
	return nil
}

// DeleteShareOffsets forgets what is committed of a topic for a share group without
// members.
func (s *State) DeleteShareOffsets(id, topic string, out *Output) error {
	if err := s.CheckShareEmpty(id); err != nil {
		return err
	}
	for _, o := range s.AllCommitted(id) {
		if o.Topic == topic {
			s.emit(offsetRecord(id, o.TopicPartition, nil), out)
		}
	}
	return nil
}

func (s *State) deleteShare(e *entry, out *Output) {
	e.share.Delete(&share.Env{Cluster: s.cluster, Emit: func(c share.Change) {
		s.emit(Record{Key: c.Key, Value: c.Value, share: &c}, out)
	}})
	out.Shares = append(out.Shares, ShareChange{Group: e.id})
}

// checkShare is CheckInvariants for a share group.
func (s *State) checkShare(e *entry) error {
	if !s.live {
		return nil
	}
	for _, id := range e.share.Members() {
		if d := e.sessions[id]; d == nil || !d.IsSet() {
			return fmt.Errorf("member %q may be silent for ever", id)
		}
	}
	if len(e.sessions) != e.share.Size() {
		return fmt.Errorf("%d sessions of %d members", len(e.sessions), e.share.Size())
	}
	return e.share.CheckInvariants()
}
