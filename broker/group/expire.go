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
// for a group that has long been empty.) What a transaction may be about to commit keeps
// an offset and its group. In a group of consumers with members the time
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
		return len(e.pending) == 0
	}
	c := e.classic
	if c.state != Empty && (c.protocolType != ConsumerProtocolType || !c.known || c.state != Stable) {
		return false
	}
	emptySinceMs := int64(noTimestamp)
	if c.state == Empty && c.protocolType != "" {
		emptySinceMs = c.sinceMs
	}
	none := len(e.pending) == 0
	for _, o := range s.AllCommitted(e.id) {
		sinceMs := max(o.CommitMs, emptySinceMs)
		if len(e.pending[o.TopicPartition]) > 0 ||
			!s.expired(now, &o.Committed, sinceMs) || c.state != Empty && c.subscribes(o.Topic) ||
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

func (s *State) deleteWhere(hit func(TopicPartition, *Committed) bool, out *Output) {
	for _, id := range s.ids() {
		e := s.groups[id]
		for _, tp := range e.partitions() {
			if e.allOf(tp, func(c *Committed) bool { return hit(tp, c) }) {
				s.emit(offsetRecord(id, tp, nil), out)
			}
		}
	}
}

// allOf tells whether all that is committed of a partition, and may be by a transaction,
// is hit. A tombstone takes all of it; what is left for the sake of another is hit once
// that transaction has ended.
func (e *entry) allOf(tp TopicPartition, hit func(*Committed) bool) bool {
	if c, ok := e.offsets[tp]; ok && !hit(&c) {
		return false
	}
	for _, p := range e.pending[tp] {
		if !hit(&p.offset) {
			return false
		}
	}
	return true
}
