package group

// ends gives the end of a partition, with ok false when it is not known.
type ends = func(topic string, topicID [16]byte, partition int32) (offset int64, ok bool)

// Clamp lowers offsets that are past the end of their partition, as a crash that lost the
// end of a log leaves them; otherwise records that come to be there would be skipped.
// Those that a transaction may still commit are lowered within it. end gives the end of a
// partition, with ok false when it is not known. It returns what was lowered, by group,
// with the offsets as they were.
func (s *State) Clamp(end ends, out *Output) map[string][]PartitionOffset {
	var lowered map[string][]PartitionOffset
	for _, id := range s.ids() {
		e := s.groups[id]
		for _, tp := range e.partitions() {
			was := s.clamp(e, tp, end, out)
			if len(was) == 0 {
				continue
			}
			if lowered == nil {
				lowered = make(map[string][]PartitionOffset)
			}
			for _, c := range was {
				lowered[id] = append(lowered[id], PartitionOffset{TopicPartition: tp, Committed: c})
			}
		}
	}
	return lowered
}

// clamp lowers the offsets of one partition. A record written now overtakes the pending
// ones, so these are written again behind it, in their order.
func (s *State) clamp(e *entry, tp TopicPartition, end ends, out *Output) (was []Committed) {
	lower := func(c Committed) Committed {
		if last, ok := end(tp.Topic, c.TopicID, tp.Partition); ok && c.Offset > last {
			was = append(was, c)
			c.Offset = last
		}
		return c
	}
	var records []Record
	if c, ok := e.offsets[tp]; ok {
		if c = lower(c); len(was) > 0 {
			records = append(records, offsetRecord(e.id, tp, &c))
		}
	}
	for _, p := range e.pending[tp] {
		if !p.overtaken {
			c := lower(p.offset)
			records = append(records, pendingRecord(p.producer, e.id, tp, &c))
		}
	}
	if len(was) == 0 {
		return nil
	}
	for i := range records {
		s.emit(records[i], out)
	}
	return was
}
