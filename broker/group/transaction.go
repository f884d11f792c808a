package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Producer is who has a transaction.
type Producer struct {
	ID    int64
	Epoch int16
}

// TxnCommitRequest commits offsets in a transaction (TxnOffsetCommit): they count once it
// is committed. A client that knows no groups (versions below 3) has generation -1 and no
// member id. Retention and Operator are not used.
type TxnCommitRequest struct {
	CommitRequest
	Producer Producer
}

// CheckCommitInTransaction tells whether somebody may commit offsets of a group in a
// transaction: a current member, in any phase of a rebalance, or anybody who does not say
// that he is a member. The producer's epoch is what fences the others.
func (s *State) CheckCommitInTransaction(id *Identity) *kerr.Error {
	e := s.groups[id.Group]
	switch {
	case e == nil && id.Generation < 0:
		return nil
	case e == nil:
		return kerr.IllegalGeneration
	case e.share != nil:
		return ErrShareGroup
	case id.Generation < 0 && (e.classic.state == Empty || id.MemberID == "" && id.InstanceID == ""):
		return nil
	}
	return e.classic.checkGeneration(id.MemberID, id.InstanceID, id.Generation)
}

// CommitInTransaction decides what a transaction commits, if it is committed. The records
// are to be appended as the producer's, and only then given to Apply: the log may refuse
// them for the producer's epoch, and nothing has happened then. The errors are in the
// order of the offsets, nil when all are well.
func (s *State) CommitInTransaction(now time.Time, req *TxnCommitRequest) (records []Record, errs []*kerr.Error, err *kerr.Error) {
	if err := s.CheckCommitInTransaction(&req.Identity); err != nil {
		return nil, nil, err
	}
	for i := range req.Offsets {
		o := &req.Offsets[i]
		switch {
		case s.tooLong(o.Metadata):
			if errs == nil {
				errs = make([]*kerr.Error, len(req.Offsets))
			}
			errs[i] = kerr.OffsetMetadataTooLarge
		case o.Offset != -1:
			records = append(records, pendingRecord(req.Producer, req.Group, o.TopicPartition, &Committed{
				Offset: o.Offset, LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata,
				CommitMs: now.UnixMilli(), ExpireMs: noTimestamp, TopicID: o.TopicID,
			}))
		}
	}
	return records, errs, nil
}

// pendingRecord logs an offset that the producer's transaction commits.
func pendingRecord(producer Producer, group string, tp TopicPartition, c *Committed) Record {
	r := offsetRecord(group, tp, c)
	r.Producer = &producer
	return r
}

// EndTransaction carries out the marker that ends the producer's transaction, live or in
// recovery. Its offsets become the committed ones, but for those that something written
// later has overtaken, or are forgotten. A transaction without any changes nothing.
func (s *State) EndTransaction(producerID int64, commit bool) {
	for _, p := range s.pending.byProducer[producerID] { // each concerns another partition
		e := s.groups[p.group]
		s.unstage(e, p)
		if !commit || p.overtaken {
			continue
		}
		s.overtake(e, p.tp, p.order)
		e.commit(p.tp, &p.offset)
		s.pending.settled[groupPartition{p.group, p.tp}] = struct{}{}
	}
}

// HasPending tells whether a transaction that has not ended commits an offset of the
// partition; see Committed for the topic id.
func (s *State) HasPending(group string, tp TopicPartition, topicID [16]byte) bool {
	e := s.groups[group]
	if e == nil {
		return false
	}
	for _, p := range e.pending[tp] {
		if p.offset.Concerns(topicID) {
			return true
		}
	}
	return false
}

// DropPending forgets the offsets of all transactions that have not ended, for when the
// log has lost records: a marker may be among them, and the next one of its producer must
// not decide about a transaction that is not its own. Groups then go on from what they
// had committed before. It returns how many it dropped.
func (s *State) DropPending() (n int) {
	for _, transaction := range s.pending.byProducer {
		for _, p := range transaction {
			s.unstage(s.groups[p.group], p)
			n++
		}
	}
	return n
}
