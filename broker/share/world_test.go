package share

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// world is a group with its log, and a cluster around it.
type world struct {
	group    *Group
	log      []Change // as decoded from their bytes
	fresh    int      // where in the log the last operation began
	now      time.Time
	topics   map[string]Topic
	nextID   byte
	settings Settings
}

func newWorld() *world {
	w := &world{group: New("g"), now: time.UnixMilli(1000), topics: make(map[string]Topic), settings: Settings{
		SessionTimeout: 45 * time.Second, HeartbeatInterval: 5 * time.Second, MaxSize: 200, KeyRangeInitial: 16,
	}}
	w.group.Refresh(w.env(nil))
	return w
}

// Topic is part of Cluster.
func (w *world) Topic(name string) (Topic, bool) {
	t, ok := w.topics[name]
	return t, ok
}

// Settings is part of Cluster.
func (w *world) Settings(string) Settings { return w.settings }

// setTopic makes a topic, gives it so many partitions, or with none deletes it.
func (w *world) setTopic(name string, partitions int32) {
	t, ok := w.topics[name]
	switch {
	case partitions == 0:
		delete(w.topics, name)
		return
	case !ok:
		w.nextID++
		t.ID[0] = w.nextID
	}
	t.Partitions = partitions
	w.topics[name] = t
}

// env logs what is emitted as its bytes say, so that every test is one of the codec too.
func (w *world) env(t require.TestingT) *Env {
	w.fresh = len(w.log)
	return &Env{Now: w.now, Cluster: w, Emit: func(c Change) {
		decoded, err := Decode(c.Key, c.Value)
		if t != nil {
			require.NoError(t, err)
			require.NotNil(t, decoded)
			require.Equal(t, c.what, decoded.what, "%s", describeChange(&c))
			require.Equal(t, "g", decoded.Group)
		}
		w.log = append(w.log, *decoded)
		w.group.Apply(&c)
	}}
}

// recovered is the group as the log has it, after a crash that lost what came after the
// first n records.
func (w *world) recovered(n int) *Group {
	g := New("g")
	for i := range w.log[:n] {
		g.Apply(&w.log[i])
	}
	return g
}

// requireRecoverable holds that the log leads to the same group, whose view is the same,
// without that anything is logged for it.
func (w *world) requireRecoverable(t require.TestingT) {
	g := w.recovered(len(w.log))
	g.Refresh(&Env{Now: w.now, Cluster: w, Emit: func(c Change) {
		require.Fail(t, "recovery changes something", describeChange(&c))
	}})
	require.Equal(t, w.group.Describe(), g.Describe())
	require.Equal(t, w.group.view, g.view)
}

func describeChange(c *Change) string {
	switch v := c.what.(type) {
	case *groupValue:
		if v == nil {
			return "group: none"
		}
		text := fmt.Sprintf("group: epoch %d", v.epoch)
		if v.mode != RoundRobin {
			text += " mode " + v.mode.String()
		}
		if v.initial != 0 {
			text += fmt.Sprintf(" initial %d", v.initial)
		}
		for _, l := range v.lines {
			text += fmt.Sprintf(" %s:%d", l.name, l.partitions)
		}
		return text
	case *assignmentValue:
		if v == nil {
			return "assignment: none"
		}
		return fmt.Sprintf("assignment: epoch %d", v.epoch)
	case *memberChange:
		if v.value == nil {
			return v.id + ": gone"
		}
		return fmt.Sprintf("%s: subscribes to %s", v.id, strings.Join(v.value.topics, " "))
	case *targetChange:
		if v.value == nil {
			return v.id + ": target none"
		}
		text := v.id + ": target " + describePartitions(v.value.partitions)
		if len(v.value.buckets) > 0 {
			text += fmt.Sprintf(" buckets %v", v.value.buckets)
		}
		return text
	case *currentChange:
		if v.value == nil {
			return v.id + ": current none"
		}
		return fmt.Sprintf("%s: epoch %d after %d, has %s", v.id, v.value.epoch, v.value.previousEpoch, describePartitions(v.value.partitions))
	}
	return "?"
}

func describePartitions(list []TopicPartitions) string {
	var parts []string
	for _, t := range list {
		parts = append(parts, fmt.Sprintf("t%d%v", t.Topic[0], t.Partitions))
	}
	return cmp.Or(strings.Join(parts, " "), "nothing")
}

// describeView says who is dealt what of each partition.
func describeView(v *View) string {
	var b strings.Builder
	fmt.Fprintf(&b, "epoch %d %s members %v\n", v.Epoch(), v.Mode(), v.Members())
	for _, t := range v.Topics() {
		for p := range t.Partitions {
			fmt.Fprintf(&b, "%s-%d:", t.Name, p)
			for _, m := range v.Members() {
				if v.MayFetch(m, t.Topic, p) {
					fmt.Fprintf(&b, " %s", m)
				}
			}
			for i, s := range v.Slices(t.Topic, p) {
				sep := ";"
				if i == 0 {
					sep = ":"
				}
				fmt.Fprintf(&b, "%s [%d,%d) %s", sep, s.Start, s.End, s.Member)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
