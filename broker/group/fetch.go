package group

import (
	"sort"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Committed is what the group has committed of a partition. An offset of another topic
// of that name does not count; a zero topic id takes any.
func (s *State) Committed(group string, tp TopicPartition, topicID [16]byte) (Committed, bool) {
	c, ok := s.groups[group].committed(tp)
	if !ok || !c.Concerns(topicID) {
		return Committed{}, false
	}
	return c, true
}

// PartitionOffset is an offset with its partition.
type PartitionOffset struct {
	TopicPartition
	Committed
}

// AllCommitted lists all that the group has committed, in order of topic and partition.
func (s *State) AllCommitted(group string) []PartitionOffset {
	e := s.groups[group]
	if e == nil {
		return nil
	}
	list := make([]PartitionOffset, 0, len(e.offsets))
	for tp, c := range e.offsets {
		list = append(list, PartitionOffset{TopicPartition: tp, Committed: c})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].compare(list[j].TopicPartition) < 0 })
	return list
}

// CheckDeleteOffsets tells which offsets DeleteOffsets would forget. The errors are in the
// order of the partitions, nil for those.
func (s *State) CheckDeleteOffsets(group string, tps []TopicPartition) ([]*kerr.Error, *kerr.Error) {
	if group == "" {
		return nil, kerr.InvalidGroupID
	}
	c, err := s.classicGroup(group)
	if err != nil {
		return nil, err
	}
	if c.state != Empty && c.protocolType != ConsumerProtocolType {
		return nil, kerr.NonEmptyGroup
	}
	errs := make([]*kerr.Error, len(tps))
	for i, tp := range tps {
		if c.subscribes(tp.Topic) {
			errs[i] = kerr.GroupSubscribedToTopic
		}
	}
	return errs, nil
}

// DeleteOffsets forgets offsets of topics that no member is subscribed to (OffsetDelete).
// The errors are in the order of the partitions. Deleting what is not there succeeds. What
// transactions would commit is forgotten too.
func (s *State) DeleteOffsets(group string, tps []TopicPartition, out *Output) ([]*kerr.Error, *kerr.Error) {
	errs, err := s.CheckDeleteOffsets(group, tps)
	if err != nil {
		return nil, err
	}
	e := s.groups[group]
	for i, tp := range tps {
		if _, ok := e.committed(tp); (ok || len(e.pending[tp]) > 0) && errs[i] == nil {
			s.emit(offsetRecord(group, tp, nil), out)
		}
	}
	return errs, nil
}

// CheckDelete tells whether the group may be deleted: it exists and has no members.
func (s *State) CheckDelete(group string) *kerr.Error {
	e := s.groups[group]
	if e != nil && e.share != nil {
		return checkEmptyShare(e)
	}
	c, err := s.classicGroup(group)
	if err != nil {
		return err
	}
	if c.state != Empty {
		return kerr.NonEmptyGroup
	}
	return nil
}

// DeleteGroup deletes a group for which CheckDelete holds, with its offsets and those that
// transactions would commit.
func (s *State) DeleteGroup(group string, out *Output) *kerr.Error {
	if err := s.CheckDelete(group); err != nil {
		return err
	}
	e := s.groups[group]
	for _, tp := range e.partitions() {
		s.emit(offsetRecord(group, tp, nil), out)
	}
	if e.share != nil {
		s.deleteShare(e, out)
		return nil
	}
	s.emit(groupRecord(group, nil), out)
	return nil
}
