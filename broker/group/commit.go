package group

import (
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Identity is who commits: a member in its generation, or, with generation -1 and an
// empty member id, somebody who manages partitions without a group.
type Identity struct {
	Group, MemberID, InstanceID string
	Generation                  int32 // the member epoch in other kinds of group
	// Operator says that somebody sets the offsets of a share group, as an administrator.
	Operator bool
	// InTransaction says that CheckCommitInTransaction is to hold, and not CheckCommit.
	InTransaction bool
}

// CommitRequest commits offsets (OffsetCommit).
type CommitRequest struct {
	Identity
	// RetentionMs is how long the offsets are kept, -1 as the broker is configured
	// (OffsetCommit 2 to 4).
	RetentionMs int64
	Offsets     []CommitOffset
}

// CommitOffset is what is committed of one partition.
type CommitOffset struct {
	TopicPartition
	TopicID     [16]byte // zero: unknown
	Offset      int64    // the next to read; -1 changes nothing
	LeaderEpoch int32    // of the record before it; -1 unknown
	Metadata    string
}

// CheckCommit tells whether somebody may commit offsets of a group: a current member, or
// anybody while the group has no members. GROUP_ID_NOT_FOUND, which a version of
// OffsetCommit below 9 calls ILLEGAL_GENERATION, is for members of a group that is not
// there.
func (s *State) CheckCommit(id *Identity) *kerr.Error {
	if id.InTransaction {
		return s.CheckCommitInTransaction(id)
	}
	e := s.groups[id.Group]
	if e == nil {
		if id.Generation < 0 {
			return nil
		}
		return kerr.GroupIDNotFound
	}
	c := e.classic
	if c == nil {
		return s.checkShareCommit(e, id)
	}
	if id.Generation < 0 && c.state == Empty {
		return nil
	}
	if id.Generation < 0 && id.MemberID == "" && id.InstanceID == "" {
		return kerr.UnknownMemberID // members own the partitions
	}
	if err := c.checkGeneration(id.MemberID, id.InstanceID, id.Generation); err != nil {
		return err
	}
	if c.state == CompletingRebalance {
		// It has joined the generation, but another may own the partitions in it.
		return kerr.RebalanceInProgress
	}
	return nil
}

// Commit commits offsets, by somebody for whom CheckCommit holds, and keeps the session
// of a member. The errors are in the order of the offsets, nil when all are well.
func (s *State) Commit(now time.Time, req *CommitRequest, out *Output) ([]*kerr.Error, *kerr.Error) {
	if err := s.CheckCommit(&req.Identity); err != nil {
		return nil, err
	}
	s.KeepSession(now, &req.Identity)
	expireMs := int64(noTimestamp)
	if req.RetentionMs != -1 {
		expireMs = now.UnixMilli() + req.RetentionMs
	}
	var errs []*kerr.Error
	for i := range req.Offsets {
		o := &req.Offsets[i]
		if s.tooLong(o.Metadata) {
			if errs == nil {
				errs = make([]*kerr.Error, len(req.Offsets))
			}
			errs[i] = kerr.OffsetMetadataTooLarge
			continue
		}
		s.put(now, req.Group, o, expireMs, out)
	}
	return errs, nil
}

// KeepSession counts a commit as a heartbeat of the member, as Kafka does but for the
// time between joining and assignment.
func (s *State) KeepSession(now time.Time, id *Identity) {
	e := s.groups[id.Group]
	if e == nil || e.classic == nil || e.classic.state == CompletingRebalance {
		return
	}
	if m := e.classic.byID[id.MemberID]; m != nil {
		s.keepSession(m, now)
	}
}

func (s *State) put(now time.Time, group string, o *CommitOffset, expireMs int64, out *Output) {
	if o.Offset == -1 {
		return
	}
	s.emit(offsetRecord(group, o.TopicPartition, &Committed{
		Offset: o.Offset, LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata,
		CommitMs: now.UnixMilli(), ExpireMs: expireMs, TopicID: o.TopicID,
	}), out)
}

// Put sets offsets without asking who does it, for those who have asked already. An
// offset with KeepMetadata leaves the metadata of the one before.
func (s *State) Put(now time.Time, group string, offsets []PutOffset, out *Output) {
	for i := range offsets {
		o := offsets[i]
		if o.KeepMetadata {
			if was, ok := s.Committed(group, o.TopicPartition, o.TopicID); ok {
				o.Metadata = was.Metadata
			}
		}
		s.put(now, group, &o.CommitOffset, noTimestamp, out)
	}
}

// PutOffset is an offset set by Put.
type PutOffset struct {
	CommitOffset
	KeepMetadata bool
}

// tooLong measures metadata as Java does, in UTF-16 units.
func (s *State) tooLong(metadata string) bool {
	if len(metadata) <= s.config.OffsetMetadataMaxBytes {
		return false
	}
	units := 0
	for _, r := range metadata {
		units++
		if r > 0xffff && r != utf8.RuneError {
			units++
		}
	}
	return units > s.config.OffsetMetadataMaxBytes
}
