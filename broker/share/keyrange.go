package share

import (
	"bytes"
	"slices"
	"sort"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/lacunamq/lacuna/keyfilter"
)

// maxBuckets is how many buckets there may be on the line of a topic of one partition,
// the narrowest that a group may come to subscribe to.
func maxBuckets(initial int32) int32 {
	l, err := keyfilter.NewLine(1)
	if err != nil {
		panic(err) // one partition is a line
	}
	return keyfilter.MaxBuckets(initial, l)
}

// keyRange is what the group is to remember from now on. A line stays as long as its topic
// does.
func (g *Group) keyRange(cluster Cluster, settings *Settings, topics []subscribedTopic) keyRangeValue {
	v := keyRangeValue{mode: settings.Mode, initial: g.initial}
	for _, l := range g.lines {
		if t, ok := cluster.Topic(l.name); ok && t.ID == l.topic {
			v.lines = append(v.lines, l)
		}
	}
	if v.mode != KeyRange {
		return v
	}
	v.initial = g.firstBuckets(settings)
	for _, t := range topics {
		at, found := searchLine(v.lines, t.ID)
		if !found {
			v.lines = slices.Insert(v.lines, at, line{t.ID, t.name, t.Partitions})
		}
	}
	return v
}

// firstBuckets is how many buckets the group began with, or would.
func (g *Group) firstBuckets(settings *Settings) int32 {
	if g.initial > 0 {
		return g.initial
	}
	return min(max(settings.KeyRangeInitial, 1), keyfilter.Slots)
}

func searchLine(lines []line, topic [16]byte) (at int, found bool) {
	return slices.BinarySearchFunc(lines, topic, func(l line, topic [16]byte) int { return bytes.Compare(l.topic[:], topic[:]) })
}

// deal is the buckets among the members, without the one that leaves. Who has none yet
// joins in order. It is the zero Assignment in modes without buckets.
func (g *Group) deal(env *Env, leaving string) keyfilter.Assignment {
	settings := env.Cluster.Settings(g.id)
	if settings.Mode != KeyRange {
		return keyfilter.Assignment{}
	}
	initial := g.firstBuckets(&settings)
	buckets, err := g.logged(initial)
	if err != nil {
		// A crash between the records of one change leaves holders that do not go together.
		if buckets, err = keyfilter.NewAssignment(initial, maxBuckets(initial)); err != nil {
			panic(err) // firstBuckets is within what a line takes
		}
	}
	dealt := make(map[string]bool, len(g.members))
	for _, id := range buckets.AppendMembers(nil) {
		dealt[id] = true
	}
	for _, m := range g.members {
		if !dealt[m.id] && m.id != leaving {
			buckets = buckets.Join(m.id)
		}
	}
	if leaving != "" {
		buckets = buckets.Leave(leaving)
	}
	return buckets
}

// logged is the buckets as the records of the members say.
func (g *Group) logged(initial int32) (keyfilter.Assignment, error) {
	limit := maxBuckets(initial)
	count := initial
	for _, m := range g.members {
		for _, b := range m.target.buckets {
			if b >= 0 && b < limit {
				count = max(count, b+1)
			}
		}
	}
	holders := make([]string, count)
	idle := make(map[int32]string)
	var places []int32
	for _, m := range g.members {
		for _, b := range m.target.buckets {
			if b >= 0 && b < limit {
				holders[b] = m.id
			}
		}
		if m.target.idle > 0 {
			idle[m.target.idle] = m.id
			places = append(places, m.target.idle)
		}
	}
	slices.Sort(places)
	var waiting []string
	for _, at := range slices.Compact(places) {
		waiting = append(waiting, idle[at])
	}
	return keyfilter.RestoreAssignment(initial, limit, holders, waiting)
}

// planRanges gives each member its buckets, and the partitions that these reach into.
func (g *Group) planRanges(v *View, topics []subscribedTopic, buckets keyfilter.Assignment, targets []targetValue) {
	index := make(map[string]int, len(g.members))
	for i, m := range g.members {
		index[m.id] = i
	}
	for b := range buckets.Buckets().Count() {
		if i, ok := index[buckets.Holder(b)]; ok {
			targets[i].buckets = append(targets[i].buckets, b)
		}
	}
	for at, id := range buckets.AppendIdle(nil) {
		targets[index[id]].idle = int32(at + 1)
	}
	for _, t := range topics {
		tv := v.topics[t.ID]
		tv.buckets = g.bucketsOf(t, buckets)
		tv.slices = tv.buckets.slicesOf(t.Partitions)
		for p, list := range tv.slices {
			for _, s := range list {
				addPartition(&targets[index[s.Member]], t.ID, int32(p))
			}
		}
	}
}

// addPartition adds to a target; topics and partitions come in order.
func addPartition(target *targetValue, topic [16]byte, p int32) {
	last := len(target.partitions) - 1
	if last < 0 || target.partitions[last].Topic != topic {
		target.partitions = append(target.partitions, TopicPartitions{Topic: topic})
		last++
	}
	at := &target.partitions[last].Partitions
	if n := len(*at); n == 0 || (*at)[n-1] != p {
		*at = append(*at, p)
	}
}

// bucketsOf deals the buckets of a topic's line to the members that subscribe to it.
func (g *Group) bucketsOf(t subscribedTopic, buckets keyfilter.Assignment) *Buckets {
	partitions := t.Partitions
	if at, found := searchLine(g.lines, t.ID); found {
		partitions = g.lines[at].partitions
	}
	l, err := keyfilter.NewLine(partitions)
	if err != nil {
		panic(err) // a topic has partitions, and a line with none is not read
	}
	var subscribers []string
	for _, m := range g.members {
		if m.subscribes(t.name) {
			subscribers = append(subscribers, m.id)
		}
	}
	dealt := &Buckets{Line: l, buckets: buckets.Buckets(), holders: make([]string, buckets.Buckets().Count())}
	for b := range dealt.holders {
		dealt.holders[b] = holderFor(buckets.Holder(int32(b)), int32(b), subscribers)
	}
	return dealt
}

// slicesOf divides the slots of so many partitions among the holders.
func (b *Buckets) slicesOf(partitions int32) [][]Slice {
	divided := make([][]Slice, partitions)
	var slots []keyfilter.PartitionSlots
	for bucket, holder := range b.holders {
		slots = b.Line.AppendSlots(slots[:0], b.buckets.Interval(int32(bucket), b.Line), partitions)
		for _, s := range slots {
			divided[s.Partition] = append(divided[s.Partition], Slice{s.Start, s.End, holder})
		}
	}
	for p := range divided {
		divided[p] = joined(divided[p])
	}
	return divided
}

// holderFor is who works on a bucket of a topic: its holder, or if that does not subscribe
// to the topic, the subscriber that the hash of both ranks highest, so that as little as
// possible changes hands when one comes or goes.
func holderFor(holder string, bucket int32, subscribers []string) string {
	if _, subscribes := slices.BinarySearch(subscribers, holder); subscribes {
		return holder
	}
	best, rank := "", uint64(0)
	for _, s := range subscribers {
		h := xxhash.Sum64String(s)
		h = (h ^ uint64(bucket)) * 0x9e3779b97f4a7c15
		h ^= h >> 29
		if best == "" || h > rank {
			best, rank = s, h
		}
	}
	return best
}

// joined sorts slices, and makes one of those of a member that touch.
func joined(list []Slice) []Slice {
	sort.Slice(list, func(i, j int) bool { return list[i].Start < list[j].Start })
	n := 0
	for _, s := range list {
		if n > 0 && list[n-1].End == s.Start && strings.Compare(list[n-1].Member, s.Member) == 0 {
			list[n-1].End = s.End
			continue
		}
		list[n] = s
		n++
	}
	return list[:n]
}
