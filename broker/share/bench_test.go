package share

import (
	"fmt"
	"testing"
	"time"
)

// benchGroup is a group of members that all subscribe to the same topics.
func benchGroup(b *testing.B, mode Mode, members, topics int, partitions int32) (*Group, *Env, []string) {
	b.Helper()
	w := newWorld()
	w.settings.Mode, w.settings.MaxSize = mode, members+1
	var names []string
	for i := range topics {
		names = append(names, fmt.Sprintf("topic-%04d", i))
		w.setTopic(names[i], partitions)
	}
	g := New("g")
	env := &Env{Now: w.now, Cluster: w, Emit: func(c Change) { g.Apply(&c) }}
	g.Refresh(env)
	for i := range members {
		if _, err := g.Heartbeat(env, &Heartbeat{Group: "g", MemberID: fmt.Sprintf("member-%04d", i), Topics: names}); err != nil {
			b.Fatal(err)
		}
	}
	return g, env, names
}

// BenchmarkJoinAndLeave is what a member costs that comes and goes again.
func BenchmarkJoinAndLeave(b *testing.B) {
	for _, mode := range []Mode{RoundRobin, KeyRange} {
		for _, members := range []int{10, 200} {
			b.Run(fmt.Sprintf("mode=%s/members=%d", mode, members), func(b *testing.B) {
				g, env, names := benchGroup(b, mode, members, 10, 100)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := g.Heartbeat(env, &Heartbeat{Group: "g", MemberID: "new", Topics: names}); err != nil {
						b.Fatal(err)
					}
					g.Remove(env, "new")
				}
			})
		}
	}
}

// BenchmarkHeartbeat is a heartbeat with nothing new.
func BenchmarkHeartbeat(b *testing.B) {
	g, env, _ := benchGroup(b, RoundRobin, 200, 10, 100)
	h := &Heartbeat{Group: "g", MemberID: "member-0199", Epoch: g.epoch, ClientID: ""}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Heartbeat(env, h); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRefresh is what a change of other topics costs a group.
func BenchmarkRefresh(b *testing.B) {
	g, env, _ := benchGroup(b, KeyRange, 200, 100, 10)
	env.Now = env.Now.Add(time.Second)
	b.ReportAllocs()
	for b.Loop() {
		g.Refresh(env)
	}
}

// BenchmarkViewSlices is what a fetch asks.
func BenchmarkViewSlices(b *testing.B) {
	g, _, _ := benchGroup(b, KeyRange, 200, 10, 100)
	v := g.View()
	topic := v.Topics()[5].Topic
	b.ReportAllocs()
	for b.Loop() {
		if !v.MayFetch("member-0100", topic, 50) || v.Holder(topic, 50, 40000) == "" {
			b.Fatal("nobody is dealt a slot")
		}
	}
}
