package broker

import (
	"slices"
	"sync"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/twmb/franz-go/pkg/kerr"
)

// The epochs of a share session that mean something of their own; others count its
// requests.
const (
	openShareSession  = 0
	closeShareSession = -1
)

// shareMember names a member of a share group.
type shareMember struct{ group, member string }

// shareSession is what a member fetches, request by request (KIP-932). It lives as long as
// the connection that opened it, since what the member has acquired is freed when it is
// gone.
type shareSession struct {
	shareMember
	conn    *conn
	epoch   int32 // that the next request has to name
	targets []extension.TopicPartition
	turn    int // rises with each fetch, so that each partition is first in turn
}

// shareSessions are all of them.
type shareSessions struct {
	max int
	mu  struct {
		sync.Mutex
		all    map[shareMember]*shareSession
		byConn map[*conn]map[*shareSession]struct{}
	}
}

func newShareSessions(max int) *shareSessions {
	s := &shareSessions{max: max}
	s.mu.all = make(map[shareMember]*shareSession)
	s.mu.byConn = make(map[*conn]map[*shareSession]struct{})
	return s
}

// count is the number of sessions.
func (s *shareSessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.all)
}

// shareTargets is what one request changes of what its member fetches.
type shareTargets struct {
	add, forget []extension.TopicPartition
}

// fetch finds out what a fetch is for. The targets are the caller's, in the order in which
// to look at them. The session is nil if the fetch ends it.
func (s *shareSessions) fetch(m shareMember, epoch int32, c *conn, t shareTargets) (session *shareSession, targets []extension.TopicPartition, refused *kerr.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	session = s.mu.all[m]
	switch {
	case epoch == openShareSession:
		if session != nil {
			s.dropLocked(session)
		}
		if len(s.mu.all) >= s.max {
			return nil, nil, kerr.ShareSessionLimitReached
		}
		session = s.openLocked(m, c)
	case session == nil:
		return nil, nil, kerr.ShareSessionNotFound
	case epoch == closeShareSession:
		return nil, nil, nil
	case epoch != session.epoch:
		return nil, nil, kerr.InvalidShareSessionEpoch
	default:
		session.next()
	}
	session.update(t)
	return session, session.rotated(), nil
}

// isOpen tells whether a session has not ended. What a member acquires under one that has
// is freed by nobody.
func (s *shareSessions) isOpen(session *shareSession) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.all[session.shareMember] == session
}

// acknowledge checks the epoch of a request that only acknowledges.
func (s *shareSessions) acknowledge(m shareMember, epoch int32) *kerr.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	session := s.mu.all[m]
	switch {
	case epoch == openShareSession:
		return kerr.InvalidShareSessionEpoch
	case session == nil:
		return kerr.ShareSessionNotFound
	case epoch == closeShareSession:
		return nil
	case epoch != session.epoch:
		return kerr.InvalidShareSessionEpoch
	}
	session.next()
	return nil
}

// end ends a session, if there is one.
func (s *shareSessions) end(m shareMember) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session := s.mu.all[m]; session != nil {
		s.dropLocked(session)
	}
}

// endAll ends the sessions that a connection opened, and names their members.
func (s *shareSessions) endAll(c *conn) (members []shareMember) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for session := range s.mu.byConn[c] {
		members = append(members, session.shareMember)
		s.dropLocked(session)
	}
	return members
}

func (s *shareSessions) openLocked(m shareMember, c *conn) *shareSession {
	session := &shareSession{shareMember: m, conn: c, epoch: 1}
	s.mu.all[m] = session
	if s.mu.byConn[c] == nil {
		s.mu.byConn[c] = make(map[*shareSession]struct{})
	}
	s.mu.byConn[c][session] = struct{}{}
	return session
}

func (s *shareSessions) dropLocked(session *shareSession) {
	delete(s.mu.all, session.shareMember)
	delete(s.mu.byConn[session.conn], session)
	if len(s.mu.byConn[session.conn]) == 0 {
		delete(s.mu.byConn, session.conn)
	}
}

// next raises the epoch.
func (s *shareSession) next() {
	if s.epoch++; s.epoch <= 0 {
		s.epoch = 1
	}
}

// update adds and then forgets, since a client that acknowledges records of a partition
// that it does not fetch any more names it in both.
func (s *shareSession) update(t shareTargets) {
	for _, tp := range t.add {
		if !slices.Contains(s.targets, tp) {
			s.targets = append(s.targets, tp)
		}
	}
	if len(t.forget) > 0 {
		s.targets = slices.DeleteFunc(s.targets, func(tp extension.TopicPartition) bool { return slices.Contains(t.forget, tp) })
	}
}

// rotated are the targets, each time beginning with another.
func (s *shareSession) rotated() []extension.TopicPartition {
	if len(s.targets) == 0 {
		return nil
	}
	s.turn = (s.turn + 1) % len(s.targets)
	return slices.Concat(s.targets[s.turn:], s.targets[:s.turn])
}
