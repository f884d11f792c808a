package client

// The two steps of a cooperative rebalance, for slots.
//
// A member goes on reading what it keeps while its group rebalances, so what is to change
// hands may still be read by the member that had it. Kafka's rule is that a leader then
// assigns it to nobody; the member that had it sees in its assignment that it lost it, gives
// it up, and joins again; and in the generation after that it is assigned to its new holder.
// Kafka's rule is for whole partitions. Here it is for slots: of a planned range in which
// another member still reads something, its new holder first gets what it holds already.

// handOver cuts what is planned for members, by their ids, to what they can begin to read at
// once, given what members are still reading when they join. Each of the two is without
// overlaps in itself; what members read may overlap if one of them missed a generation.
func handOver(planned, reading map[string][]AssignedSlots) {
	readers := make(map[TopicPartition][]slotReader)
	for id, ranges := range reading {
		for _, r := range ranges {
			readers[r.TopicPartition] = append(readers[r.TopicPartition], slotReader{id, r})
		}
	}
	for id, ranges := range planned {
		var now []AssignedSlots
		for _, r := range ranges {
			if readByAnother(r, id, readers[r.TopicPartition]) {
				now = append(now, within([]AssignedSlots{r}, reading[id])...)
				continue
			}
			now = append(now, r)
		}
		planned[id] = now
	}
}

// slotReader is a member that reads a range.
type slotReader struct {
	id   string
	what AssignedSlots
}

func readByAnother(r AssignedSlots, id string, readers []slotReader) bool {
	for _, reader := range readers {
		if _, overlaps := r.overlap(reader.what); overlaps && reader.id != id {
			return true
		}
	}
	return false
}
