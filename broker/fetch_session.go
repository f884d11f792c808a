package broker

import (
	"container/list"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchKey names a partition as a fetch request does: by name up to version 12, by id
// from 13 on.
type fetchKey struct {
	name      string
	id        metadata.TopicID
	partition int32
}

// fetchTarget is a partition that a fetch asks for, with what its session remembers of
// it.
type fetchTarget struct {
	fetchKey
	offset      int64
	maxBytes    int32
	leaderEpoch int32
	lastEpoch   int32 // of the last record that the client fetched, -1 when it does not say
	// What the client was told last; an incremental answer leaves out what has not
	// changed.
	highWatermark, logStart int64
	told                    bool
}

// fetchSession is an incremental fetch session (KIP-227). One request at a time uses it.
type fetchSession struct {
	mu      sync.Mutex
	id      int32
	epoch   int32 // that the next request has to name
	targets []*fetchTarget
	byKey   map[fetchKey]*fetchTarget

	element *list.Element // in the cache's order of use
	used    time.Time
}

// fetchSessions is the bounded cache of all sessions.
type fetchSessions struct {
	now func() time.Time
	max int
	mu  struct {
		sync.Mutex
		byID  map[int32]*fetchSession
		order *list.List // least recently used first
	}
}

// sessionEvictAge is how long a session must have been unused before a new one may take
// its place (Kafka's min.incremental.fetch.session.eviction.ms).
const sessionEvictAge = 2 * time.Minute

func newFetchSessions(max int, now func() time.Time) *fetchSessions {
	s := &fetchSessions{now: now, max: max}
	s.mu.byID = make(map[int32]*fetchSession)
	s.mu.order = list.New()
	return s
}

// count is the number of sessions kept.
func (s *fetchSessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.byID)
}

// create makes room for a session and returns it, or nil when every one is in use: then
// the client goes on with full requests.
func (s *fetchSessions) create() *fetchSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if len(s.mu.byID) >= s.max {
		oldest := s.mu.order.Front()
		if oldest == nil || now.Sub(oldest.Value.(*fetchSession).used) < sessionEvictAge {
			return nil
		}
		s.dropLocked(oldest.Value.(*fetchSession))
	}
	session := &fetchSession{epoch: 1, byKey: make(map[fetchKey]*fetchTarget), used: now}
	for session.id == 0 || s.mu.byID[session.id] != nil {
		session.id = rand.Int32N(1<<31-1) + 1
	}
	session.element = s.mu.order.PushBack(session)
	s.mu.byID[session.id] = session
	return session
}

func (s *fetchSessions) find(id int32) *fetchSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	session := s.mu.byID[id]
	if session != nil {
		session.used = s.now()
		s.mu.order.MoveToBack(session.element)
	}
	return session
}

func (s *fetchSessions) drop(id int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session := s.mu.byID[id]; session != nil {
		s.dropLocked(session)
	}
}

func (s *fetchSessions) dropLocked(session *fetchSession) {
	delete(s.mu.byID, session.id)
	s.mu.order.Remove(session.element)
}

// fetchContext is what one request asks for, whether it names it all or refers to a
// session.
type fetchContext struct {
	targets []*fetchTarget
	session *fetchSession // locked while the request is served; nil without one
	// incremental answers leave out partitions of which there is nothing new.
	incremental bool
}

// close ends the use of the session by this request.
func (f *fetchContext) close() {
	if f.session != nil {
		f.session.mu.Unlock()
	}
}

// sessionID is the id that the answer names, 0 for none.
func (f *fetchContext) sessionID() int32 {
	if f.session == nil {
		return 0
	}
	return f.session.id
}

// open finds out what a request asks for.
func (s *fetchSessions) open(req *kmsg.FetchRequest) (*fetchContext, *kerr.Error) {
	switch req.SessionEpoch {
	case -1, 0:
		if req.SessionID != 0 {
			s.drop(req.SessionID)
		}
		f := &fetchContext{targets: appendTargets(nil, req)}
		if req.SessionEpoch == -1 || req.Version < 7 || len(f.targets) == 0 {
			return f, nil
		}
		if f.session = s.create(); f.session != nil {
			f.session.mu.Lock()
			f.session.add(f.targets)
		}
		return f, nil
	}
	session := s.find(req.SessionID)
	if session == nil {
		return nil, kerr.FetchSessionIDNotFound
	}
	session.mu.Lock()
	if session.epoch != req.SessionEpoch {
		session.mu.Unlock()
		return nil, kerr.InvalidFetchSessionEpoch
	}
	session.epoch++
	if session.epoch <= 0 {
		session.epoch = 1
	}
	if !session.update(req) {
		session.mu.Unlock()
		return nil, kerr.FetchSessionTopicIDError
	}
	return &fetchContext{targets: session.targets, session: session, incremental: true}, nil
}

// appendTargets appends the partitions that a request names.
func appendTargets(dst []*fetchTarget, req *kmsg.FetchRequest) []*fetchTarget {
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			dst = append(dst, &fetchTarget{
				fetchKey: fetchKey{name: t.Topic, id: t.TopicID, partition: p.Partition},
				offset:   p.FetchOffset, maxBytes: p.PartitionMaxBytes,
				leaderEpoch: p.CurrentLeaderEpoch, lastEpoch: p.LastFetchedEpoch,
			})
		}
	}
	return dst
}

func (s *fetchSession) add(targets []*fetchTarget) {
	for _, t := range targets {
		if have := s.byKey[t.fetchKey]; have != nil {
			have.offset, have.maxBytes, have.leaderEpoch, have.lastEpoch = t.offset, t.maxBytes, t.leaderEpoch, t.lastEpoch
			continue
		}
		s.byKey[t.fetchKey] = t
		s.targets = append(s.targets, t)
	}
}

// update takes in what an incremental request adds, changes and forgets. It refuses a
// request that names topics in another way than the session does.
func (s *fetchSession) update(req *kmsg.FetchRequest) bool {
	byID := req.Version >= 13
	if len(s.targets) > 0 && (s.targets[0].name == "") != byID {
		return false
	}
	forgotten := false
	for _, t := range req.ForgottenTopics {
		for _, p := range t.Partitions {
			delete(s.byKey, fetchKey{name: t.Topic, id: t.TopicID, partition: p})
			forgotten = true
		}
	}
	if forgotten {
		kept := s.targets[:0]
		for _, t := range s.targets {
			if s.byKey[t.fetchKey] == t {
				kept = append(kept, t)
			}
		}
		clear(s.targets[len(kept):])
		s.targets = kept
	}
	s.add(appendTargets(nil, req))
	return true
}

// rotate moves the first n partitions to the end, so that those which filled this
// answer do not starve the others in the next.
func (s *fetchSession) rotate(n int) {
	if n <= 0 || n >= len(s.targets) {
		return
	}
	head := append([]*fetchTarget(nil), s.targets[:n]...)
	copy(s.targets, s.targets[n:])
	copy(s.targets[len(s.targets)-n:], head)
}
