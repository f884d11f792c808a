package main

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	heartbeatEvery = 2 * time.Second
	// joinTimeout is how long a member waits for its first assignment, looking every joinPoll.
	joinTimeout = 20 * time.Second
	joinPoll    = 100 * time.Millisecond
)

// newMemberID makes a random id in the form of Kafka's, which never begins with a dash.
func newMemberID() string {
	var id [16]byte
	rand.Read(id[:]) // it never fails
	id[0] &= 0x7f
	member := base64.RawURLEncoding.EncodeToString(id[:])
	if member[0] == '-' {
		member = "a" + member[1:]
	}
	return member
}

func (s *rawShare) findTopic() error {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(settings.Topic)
	req.Topics = append(req.Topics, t)
	resp, err := s.fetches.do(req)
	if err != nil {
		return err
	}
	topics := resp.(*kmsg.MetadataResponse).Topics
	if len(topics) != 1 {
		return fmt.Errorf("%d topics in the answer", len(topics))
	}
	s.topicID = topics[0].TopicID
	return kerr.ErrorForCode(topics[0].ErrorCode)
}

// join becomes a member of the group and waits for the first assignment. On a fresh Apache
// Kafka nobody coordinates until a client has looked for a coordinator: only that makes the
// offsets topic.
func (s *rawShare) join(deadline time.Time) error {
	var last error
	for ; time.Now().Before(deadline); time.Sleep(joinPoll) {
		if s.heartbeats == nil {
			if last = s.findCoordinator(); last != nil {
				if comingUp(last) {
					continue
				}
				return fmt.Errorf("coordinator of group %s: %w", s.o.Group, last)
			}
		}
		if last = s.heartbeat(); last != nil && !comingUp(last) {
			return last
		}
		if len(s.parts) > 0 {
			return nil
		}
	}
	if last == nil {
		last = errors.New("the heartbeats were answered without one")
	}
	return fmt.Errorf("no assignment within %v: %w", joinTimeout, last)
}

// findCoordinator connects to the broker that takes the group's heartbeats.
func (s *rawShare) findCoordinator() error {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorType, req.CoordinatorKeys = 4, 0, []string{s.o.Group}
	answer, err := s.fetches.do(req)
	if err != nil {
		return err
	}
	found := answer.(*kmsg.FindCoordinatorResponse).Coordinators
	if len(found) != 1 {
		return fmt.Errorf("%d coordinators in the answer", len(found))
	}
	if err := kerr.ErrorForCode(found[0].ErrorCode); err != nil {
		return err
	}
	s.heartbeats, err = rawDial(net.JoinHostPort(found[0].Host, strconv.Itoa(int(found[0].Port))))
	return err
}

// heartbeat keeps the membership, and takes in the assignment.
func (s *rawShare) heartbeat() error {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.Version, req.GroupID, req.MemberID, req.MemberEpoch = 1, s.o.Group, s.member, s.memberEpoch
	if s.memberEpoch == 0 {
		req.SubscribedTopicNames = []string{settings.Topic}
	}
	answer, err := s.heartbeats.do(req)
	if err != nil {
		return fmt.Errorf("share heartbeat: %w", err)
	}
	resp := answer.(*kmsg.ShareGroupHeartbeatResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fmt.Errorf("share heartbeat: %w", err)
	}
	s.lastBeat, s.memberEpoch = time.Now(), resp.MemberEpoch
	if resp.Assignment != nil {
		for _, tp := range resp.Assignment.TopicPartitions {
			if tp.TopicID == s.topicID {
				s.parts = tp.Partitions
			}
		}
	}
	return nil
}

// comingUp says whether an error only means that the coordinator is not there yet.
func comingUp(err error) bool {
	return errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.CoordinatorLoadInProgress) ||
		errors.Is(err, kerr.NotCoordinator)
}
