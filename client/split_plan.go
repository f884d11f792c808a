package client

import (
	"fmt"
	"slices"

	"github.com/lacunamq/lacuna/keyfilter"
)

// splitSlice is the bucket that a member holds of a topic that is split: number bucket of
// so many, on the line of the topic's first so many partitions. A member that holds whole
// partitions has 0 partitions and 0 buckets, and the lowest partition as its bucket.
type splitSlice struct {
	partitions, buckets, bucket int32
}

// splitMember is a subscriber of a topic, as it joins a generation of its group.
type splitMember struct {
	id string
	// splits tells that it can be given a part of a partition.
	splits bool
	// claim is what it held in generation claimed, -1 if nothing. It holds it no more: a
	// claim is a wish to get the same again.
	claim   splitSlice
	claimed int32
}

// splitShare is what a member gets of a topic.
type splitShare struct {
	slice splitSlice // zero of a member that cannot split
	parts []keyfilter.PartitionSlots
}

// split tells whether a topic of so many partitions is to be split between members.
func split(partitions int32, members []splitMember) bool {
	return partitions > 0 && len(members) > int(partitions) &&
		slices.ContainsFunc(members, func(m splitMember) bool { return m.splits })
}

// splitPlan divides a topic of which split says that it is to be: every slot of every
// partition goes to one member. The result is in the order of the members.
//
// Members that cannot split get one whole partition each, from the last partition on, for
// as long as there is more than one left; the rest of them get nothing. The others get one
// bucket each of the partitions that are left (linear hashing, with as many initial buckets
// as partitions). One that joins takes a part of one bucket, and when one leaves at most
// two buckets change, unless the number of partitions left changes: then all are dealt anew.
func splitPlan(partitions int32, members []splitMember) ([]splitShare, error) {
	shares := make([]splitShare, len(members))
	left := partitions
	for i, m := range members {
		if !m.splits && left > 1 {
			left--
			shares[i].parts = []keyfilter.PartitionSlots{{Partition: left, End: keyfilter.Slots}}
		}
	}
	line, err := keyfilter.NewLine(left)
	if err != nil {
		return nil, err
	}
	assigned, err := splitBuckets(line, members)
	if err != nil {
		return nil, fmt.Errorf("split %d partitions: %w", left, err)
	}
	buckets := assigned.Buckets()
	for i, m := range members {
		if !m.splits {
			continue
		}
		for _, bucket := range assigned.AppendHeld(nil, m.id) {
			shares[i].slice = splitSlice{partitions: left, buckets: buckets.Count(), bucket: bucket}
			shares[i].parts = line.AppendSlots(shares[i].parts, buckets.Interval(bucket, line), left)
		}
	}
	return shares, nil
}

// splitBuckets gives the members that can split the buckets of a line. Whoever comes takes
// the place of somebody who left before any bucket is added or returned.
func splitBuckets(line keyfilter.Line, members []splitMember) (keyfilter.Assignment, error) {
	initial := line.Partitions()
	limit := keyfilter.MaxBuckets(initial, line)
	holders := splitClaims(line, limit, members)
	var gone []string
	for i := range holders {
		if holders[i] == "" {
			// No member has this id, since it begins with a zero byte.
			holders[i] = fmt.Sprintf("\x00%d", i)
			gone = append(gone, holders[i])
		}
	}
	var came []string
	for _, m := range members {
		switch {
		case !m.splits || slices.Contains(holders, m.id):
		case len(gone) > 0:
			holders[slices.Index(holders, gone[0])] = m.id
			gone = gone[1:]
		default:
			came = append(came, m.id)
		}
	}
	a, err := keyfilter.NewAssignment(initial, limit)
	if err == nil && len(holders) > 0 {
		a, err = keyfilter.RestoreAssignment(initial, limit, holders, nil)
	}
	if err != nil {
		return a, err
	}
	for _, id := range gone {
		a = a.Leave(id)
	}
	for _, id := range came {
		a = a.Join(id)
	}
	return a, nil
}

// splitClaims are the holders of the buckets in the newest generation that members have a
// claim of, "" where nobody claims; empty if they were not buckets of this line.
func splitClaims(line keyfilter.Line, limit int32, members []splitMember) (holders []string) {
	newest := int32(-1)
	for _, m := range members {
		if m.splits {
			newest = max(newest, m.claimed)
		}
	}
	if newest < 0 {
		return nil
	}
	// What is claimed is another's word: it makes a leader allocate only so much. A group
	// that lost so many members is as well dealt anew.
	most := int(line.Partitions()) + 8*len(members)
	for _, m := range members {
		c := m.claim
		if !m.splits || m.claimed != newest {
			continue
		}
		if c.buckets == 0 { // whole partitions are the initial buckets
			c.partitions, c.buckets = line.Partitions(), line.Partitions()
		}
		switch {
		case c.partitions != line.Partitions() || c.buckets < c.partitions || c.buckets > limit, c.bucket < 0 || c.bucket >= c.buckets:
			continue
		case holders == nil && int(c.buckets) <= most:
			holders = make([]string, c.buckets) // all of a generation have the same number
		case int(c.buckets) != len(holders):
			continue
		}
		if holders[c.bucket] == "" {
			holders[c.bucket] = m.id
		}
	}
	return holders
}
