package assignor

import "slices"

// Topic is what a group knows of an input.
//
// A topic that gains partitions has its keys spread anew: a partitioner that goes by the hash
// of a key modulo the number of partitions, as all stock clients do, puts a key elsewhere. So
// a group counts a partition as its number modulo Fold, which divides every number of
// partitions that there was: there a key stays where it is. While the numbers are multiples
// of the first, that is Fold, and nothing changes but that there is more to read. When they
// are not, Fold falls, and with it what a unit is: everybody gives up everything, and builds
// up a state in the new units.
type Topic struct {
	// ID is the id of the topic, zero while it is not known. One made anew has another.
	ID [16]byte
	// Partitions is how many it has. It does not fall.
	Partitions int32
	// Fold is the greatest number that divides every number of partitions that it had since the
	// group first saw it.
	Fold int32
	// Grown are, for each time that it was found to have grown, the ends of the logs of the
	// partitions that there had been. What lies below comes before what lies above, and before
	// all of the partitions that were added: see Stage.
	Grown [][]int64
}

// maxGrown bounds what is remembered of growths; of more, the oldest are taken for one.
const maxGrown = 8

// Input is an input as it is found now.
type Input struct {
	// ID is the id of the topic, zero if it was not looked up.
	ID         [16]byte
	Partitions int32
	// Ends are those of its logs, by partition. Without them it is not taken to have grown.
	Ends []int64
}

// Stage is how many growths come before an offset of a partition. A state takes in the records
// of a key stage by stage, from whichever partitions they are in. The stage ends at until; -1:
// it is the last.
func (t *Topic) Stage(partition int32, offset int64) (stage int, until int64) {
	for stage = len(t.Grown); stage > 0; stage-- {
		ends := t.Grown[stage-1]
		if int(partition) >= len(ends) || offset >= ends[partition] {
			break
		}
	}
	if stage == len(t.Grown) {
		return stage, -1
	}
	return stage, t.Grown[stage][partition]
}

// sees takes in what is found of the topic. One that was made anew is a new one.
func (t Topic) sees(in Input) Topic {
	if in.Partitions < 1 || in.Partitions > maxPartitions {
		return t
	}
	if t.Partitions == 0 || t.isAnother(in) {
		return Topic{ID: in.ID, Partitions: in.Partitions, Fold: in.Partitions}
	}
	if t.ID == ([16]byte{}) {
		t.ID = in.ID
	}
	if in.Partitions <= t.Partitions || len(in.Ends) < int(t.Partitions) {
		return t
	}
	ends := slices.Clone(in.Ends[:t.Partitions])
	if slices.Max(ends) > 0 {
		t.Grown = append(slices.Clone(t.Grown[max(0, len(t.Grown)-maxGrown+1):]), ends)
	}
	t.Partitions, t.Fold = in.Partitions, divisor(t.Fold, in.Partitions)
	return t
}

// isAnother tells that the topic was made anew.
func (t *Topic) isAnother(in Input) bool {
	return t.ID != in.ID && t.ID != [16]byte{} && in.ID != [16]byte{}
}

func (t Topic) equal(other Topic) bool {
	return t.ID == other.ID && t.Partitions == other.Partitions && t.Fold == other.Fold &&
		slices.EqualFunc(t.Grown, other.Grown, slices.Equal[[]int64])
}

// divisor is the greatest common one.
func divisor(x, y int32) int32 {
	for y != 0 {
		x, y = y, x%y
	}
	return x
}

// Growing are the inputs that have more partitions than the members know of, with how many they
// know: of these the Ends are to be looked up before Assign.
func Growing(members []Member, inputs map[string]Input) map[string]int32 {
	growing := make(map[string]int32)
	if known := plans(members); len(known) > 0 {
		for name, in := range inputs {
			if t := known[0].Group.Topics[name]; t.Partitions > 0 && in.Partitions > t.Partitions && !t.isAnother(in) {
				growing[name] = t.Partitions
			}
		}
	}
	return growing
}
