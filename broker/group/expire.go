package group

import "time"

// Keep tells whether an offset is to be kept although its time is up, because it is in
// use in a way that commits do not show. Since is the moment from which it has counted as
// unused.
type Keep func(group string, tp TopicPartition, since time.Time) bool

// Expire forgets offsets whose time is up, and groups that thereby keep nothing
// (offsets.retention.minutes). With keep nil none is spared.
//
// The time runs from the commit, and in a group that has lost its last member not before
// that moment. (Kafka takes that moment alone, and so forgets at once what is committed
// for a group that has long been empty.) In a group of consumers with members the time
// runs for topics that no member is subscribed to. Other groups with members keep all.
func (s *State) Expire(now time.Time, keep Keep, out *Output) {
	for _, id := range s.ids() {
		e := s.groups[id]
		if e.share != nil {
			continue // share groups do not expire
		}
		if s.expireOffsets(e, now, keep, out) && e.classic.state == Empty && len(e.classic.pending) == 0 {
			s.emit(groupRecord(id, nil), out)
		}
	}
}

// expireOffsets tells whether the group keeps no offset.
func (s *State) expireOffsets(e *entry, now time.Time, keep Keep, out *Output) bool {
	if len(e.offsets) == 0 {
		return true
	}
	c := e.classic
	if c.state != Empty && (c.protocolType != ConsumerProtocolType || !c.known || c.state != Stable) {
		return false
	}
	emptySinceMs := int64(noTimestamp)
	if c.state == Empty && c.protocolType != "" {
		emptySinceMs = c.sinceMs
	}
	none := true
	for _, o := range s.AllCommitted(e.id) {
		sinceMs := max(o.CommitMs, emptySinceMs)
		if !s.expired(now, &o.Committed, sinceMs) || c.state != Empty && c.subscribes(o.Topic) ||
			keep != nil && keep(e.id, o.TopicPartition, time.UnixMilli(sinceMs)) {
			none = false
			continue
		}
		s.emit(offsetRecord(e.id, o.TopicPartition, nil), out)
	}
	return none
}

func (s *State) expired(now time.Time, c *Committed, sinceMs int64) bool {
	if c.ExpireMs != noTimestamp {
		return now.UnixMilli() >= c.ExpireMs
	}
	return now.UnixMilli()-sinceMs >= s.config.OffsetsRetention.Milliseconds()
}

// DeleteTopic forgets all offsets of a topic that was deleted. Those of another topic of
// that name stay; a zero id takes all.
func (s *State) DeleteTopic(topic string, topicID [16]byte, out *Output) {
	s.deleteWhere(func(tp TopicPartition, c *Committed) bool {
		return tp.Topic == topic && c.Concerns(topicID)
	}, out)
}

// Sweep forgets offsets of topics that are gone, whose deletion was not heard of because
// of a crash.
func (s *State) Sweep(gone func(topic string, topicID [16]byte) bool, out *Output) {
	s.deleteWhere(func(tp TopicPartition, c *Committed) bool {
		return c.TopicID != [16]byte{} && gone(tp.Topic, c.TopicID)
	}, out)
}

// Clamp lowers offsets that are past the end of their partition, as a crash that lost the
// end of a log leaves them; otherwise records that come to be there would be skipped. end
// gives the end of a partition, with ok false when it is not known. It returns what was
// lowered, by group, with the offsets as they were.
func (s *State) Clamp(end func(topic string, topicID [16]byte, partition int32) (offset int64, ok bool), out *Output) map[string][]PartitionOffset {
	var lowered map[string][]PartitionOffset
	for _, id := range s.ids() {
		for _, o := range s.AllCommitted(id) {
			last, ok := end(o.Topic, o.TopicID, o.Partition)
			if !ok || o.Offset <= last {
				continue
			}
			if lowered == nil {
				lowered = make(map[string][]PartitionOffset)
			}
			lowered[id] = append(lowered[id], o)
			o.Offset = last
			s.emit(offsetRecord(id, o.TopicPartition, &o.Committed), out)
		}
	}
	return lowered
}

func (s *State) deleteWhere(hit func(TopicPartition, *Committed) bool, out *Output) {
	for _, id := range s.ids() {
		for _, o := range s.AllCommitted(id) {
			if hit(o.TopicPartition, &o.Committed) {
				s.emit(offsetRecord(id, o.TopicPartition, nil), out)
			}
		}
	}
}
