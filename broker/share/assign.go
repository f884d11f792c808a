package share

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sort"

	"github.com/cespare/xxhash/v2"
	"github.com/lacunamq/lacuna/keyfilter"
)

// subscribedTopic is a topic that exists and that some member subscribes to.
type subscribedTopic struct {
	name string
	Topic
}

// resolve lists the topics that members subscribe to and that exist, by id.
func (g *Group) resolve(cluster Cluster) []subscribedTopic {
	if g.names == nil {
		g.names = g.subscribedNames()
	}
	var topics []subscribedTopic
	for _, name := range g.names {
		if t, ok := cluster.Topic(name); ok && t.Partitions > 0 {
			topics = append(topics, subscribedTopic{name, t})
		}
	}
	sort.Slice(topics, func(i, j int) bool { return bytes.Compare(topics[i].ID[:], topics[j].ID[:]) < 0 })
	return topics
}

func (g *Group) subscribedNames() []string {
	seen := make(map[string]bool)
	names := []string{}
	for _, m := range g.members {
		for _, name := range m.topics {
			if !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}

// hashOf tells one state of the topics from another; 0 is that of none.
func hashOf(topics []subscribedTopic) int64 {
	if len(topics) == 0 {
		return 0
	}
	var b []byte
	for _, t := range topics {
		b = append(b, t.ID[:]...)
		b = binary.BigEndian.AppendUint32(b, uint32(t.Partitions))
	}
	return int64(xxhash.Sum64(b))
}

// bump raises the group epoch and makes the assignment anew.
func (g *Group) bump(env *Env) { g.bumpTo(env, g.deal(env, "")) }

// bumpTo is bump with the buckets dealt already.
func (g *Group) bumpTo(env *Env, buckets keyfilter.Assignment) {
	topics, settings := g.resolve(env.Cluster), env.Cluster.Settings(g.id)
	env.Emit(groupRecord(g.id, &groupValue{
		epoch: g.epoch + 1, hash: hashOf(topics),
		keyRangeValue: g.keyRange(env.Cluster, &settings, topics),
	}))
	view, targets := g.plan(topics, buckets)
	for i, m := range slices.Clone(g.members) {
		if t := &targets[i]; !m.target.equal(t) {
			env.Emit(targetRecord(g.id, m.id, t))
		}
	}
	env.Emit(assignmentRecord(g.id, &assignmentValue{epoch: g.epoch, madeMs: env.Now.UnixMilli()}))
	g.view = view
}

func (t *targetValue) equal(other *targetValue) bool {
	return equalPartitions(t.partitions, other.partitions) && slices.Equal(t.buckets, other.buckets) && t.idle == other.idle
}

// plan makes the view of the group's epoch, and from it the targets of the members in
// their order.
func (g *Group) plan(topics []subscribedTopic, buckets keyfilter.Assignment) (*View, []targetValue) {
	v := &View{
		group: g.id, epoch: g.epoch, mode: g.mode,
		members: make(map[string][]string, len(g.members)), topics: make(map[[16]byte]*topicView, len(topics)),
	}
	for _, m := range g.members {
		v.members[m.id] = m.topics
		v.ids = append(v.ids, m.id)
	}
	for _, t := range topics {
		v.topics[t.ID] = &topicView{name: t.name, partitions: t.Partitions}
	}
	targets := make([]targetValue, len(g.members))
	if g.mode == KeyRange {
		g.planRanges(v, topics, buckets, targets)
	} else {
		g.planAll(topics, targets)
	}
	return v, targets
}

// planAll gives every member all partitions of its topics.
func (g *Group) planAll(topics []subscribedTopic, targets []targetValue) {
	for _, t := range topics {
		all := make([]int32, t.Partitions)
		for p := range all {
			all[p] = int32(p)
		}
		for i, m := range g.members {
			if m.subscribes(t.name) {
				targets[i].partitions = append(targets[i].partitions, TopicPartitions{t.ID, all})
			}
		}
	}
}

func (m *member) subscribes(topic string) bool {
	_, found := slices.BinarySearch(m.topics, topic)
	return found
}

// Refresh takes in that topics or settings may have changed, and after loading makes the
// view. It finishes what a crash has left undone.
func (g *Group) Refresh(env *Env) {
	if len(g.members) == 0 && g.view != nil {
		return
	}
	for _, m := range slices.Clone(g.members) {
		if !m.named {
			g.bury(env, m.id)
		}
	}
	topics := g.resolve(env.Cluster)
	if g.view != nil && hashOf(topics) == g.hash && env.Cluster.Settings(g.id).Mode == g.mode {
		return
	}
	if g.view == nil {
		if view, upToDate := g.asLogged(env, topics); upToDate {
			g.view = view
			return
		}
	}
	g.bump(env)
}

// asLogged is the view of what is logged, if that is what should be. A group without
// members always is as it should be.
func (g *Group) asLogged(env *Env, topics []subscribedTopic) (*View, bool) {
	if len(g.members) == 0 {
		view, _ := g.plan(nil, keyfilter.Assignment{})
		return view, true
	}
	if g.assignment.epoch != g.epoch || hashOf(topics) != g.hash || env.Cluster.Settings(g.id).Mode != g.mode {
		return nil, false
	}
	view, targets := g.plan(topics, g.deal(env, ""))
	for i, m := range g.members {
		if !m.target.equal(&targets[i]) {
			return nil, false
		}
	}
	return view, true
}
