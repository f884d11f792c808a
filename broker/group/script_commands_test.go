package group

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
)

func (w *world) run(t *testing.T, d *datadriven.TestData) string {
	a := args{d}
	var lines []string
	switch d.Cmd {
	case "config":
		w.config.InitialRebalanceDelay = a.duration(t, "initial-delay", w.config.InitialRebalanceDelay)
		w.config.MaxSize = int(a.num(t, "max-size", int64(w.config.MaxSize)))
		w.config.OffsetMetadataMaxBytes = int(a.num(t, "metadata-max", int64(w.config.OffsetMetadataMaxBytes)))
		w.config.OffsetsRetention = a.duration(t, "retention", w.config.OffsetsRetention)
		w.state.config = w.config
	case "reload":
		w.reload()
	case "pass":
		lines = w.pass(t, a.duration(t, "time", 0))
	case "join":
		w.join(t, a)
	case "sync":
		w.sync(t, a)
	case "heartbeat":
		lines = append(lines, message(w.state.Heartbeat(w.now, &HeartbeatRequest{
			Group: a.str("group", "g"), MemberID: a.str("member", ""), InstanceID: a.str("instance", ""),
			Generation: int32(a.num(t, "generation", 0)),
		})))
	case "beats":
		lines = w.beats(t, a)
	case "leave":
		lines = w.leave(t, a)
	case "describe":
		lines = w.describe(a)
	case "list":
		for _, l := range w.state.List(Filter{States: a.list("states"), Kinds: a.list("kinds")}) {
			lines = append(lines, fmt.Sprintf("%s %s %s %q", l.ID, l.Kind, l.State, l.ProtocolType))
		}
	default:
		lines = w.runOffsets(t, a)
	}
	return strings.Join(append(w.settle(t), lines...), "\n")
}

func (w *world) runOffsets(t *testing.T, a args) (lines []string) {
	group := a.str("group", "g")
	switch a.d.Cmd {
	case "commit":
		lines = w.commit(t, a)
	case "put":
		o := w.offset(t, a)
		w.state.Put(w.now, group, []PutOffset{{CommitOffset: o, KeepMetadata: a.has("keep-metadata")}}, &w.out)
	case "fetch":
		tp := a.partition(t, a.str("partition", "t-0"))
		c, ok := w.state.Committed(group, tp, [16]byte{byte(a.num(t, "topic-id", 0))})
		if !ok {
			return []string{"none"}
		}
		lines = append(lines, describeOffset(&c))
	case "fetch-all":
		for _, o := range w.state.AllCommitted(group) {
			lines = append(lines, fmt.Sprintf("%s-%d: %d", o.Topic, o.Partition, o.Offset))
		}
	case "delete-offsets":
		var tps []TopicPartition
		for _, s := range a.list("partitions") {
			tps = append(tps, a.partition(t, s))
		}
		errs, err := w.state.DeleteOffsets(group, tps, &w.out)
		if err != nil {
			return []string{err.Message}
		}
		for i, tp := range tps {
			lines = append(lines, fmt.Sprintf("%s-%d: %s", tp.Topic, tp.Partition, message(errs[i])))
		}
	case "delete-group":
		lines = append(lines, message(w.state.DeleteGroup(group, &w.out)))
	case "delete-topic":
		w.state.DeleteTopic(a.str("topic", "t"), [16]byte{byte(a.num(t, "topic-id", 0))}, &w.out)
	case "clamp":
		lowered := w.state.Clamp(func(topic string, _ [16]byte, _ int32) (int64, bool) {
			return a.num(t, "end", 0), topic == a.str("topic", "t")
		}, &w.out)
		for _, o := range lowered[group] {
			lines = append(lines, fmt.Sprintf("%s-%d was %d", o.Topic, o.Partition, o.Offset))
		}
	case "sweep":
		gone := a.list("gone")
		w.state.Sweep(func(topic string, id [16]byte) bool {
			return len(gone) > 0 && fmt.Sprintf("%s/%d", topic, id[0]) == gone[0]
		}, &w.out)
	case "expire":
		var keep Keep
		if a.has("keep") {
			keep = func(group string, tp TopicPartition, since time.Time) bool {
				lines = append(lines, fmt.Sprintf("asked to keep %s %s-%d, unused since %d", group, tp.Topic, tp.Partition, since.UnixMilli()))
				return a.str("keep", "") == fmt.Sprintf("%s-%d", tp.Topic, tp.Partition)
			}
		}
		w.state.Expire(w.now, keep, &w.out)
	default:
		a.d.Fatalf(t, "unknown command %s", a.d.Cmd)
	}
	return lines
}

// pass lets time go by, stopping at each deadline on the way.
func (w *world) pass(t require.TestingT, by time.Duration) []string {
	start := w.now
	end := w.now.Add(by)
	var lines []string
	for {
		at, ok := w.state.NextDeadline()
		if !ok || at.After(end) {
			break
		}
		if at.After(w.now) {
			w.now = at
		}
		w.state.Tick(w.now, &w.out)
		for _, l := range w.settle(t) {
			lines = append(lines, fmt.Sprintf("+%v %s", w.now.Sub(start), l))
		}
	}
	w.now = end
	return lines
}

// beats lets time go by while a member sends heartbeats, and says what came of it.
func (w *world) beats(t *testing.T, a args) []string {
	start := w.now
	var lines []string
	last := ""
	for range a.num(t, "times", 1) {
		at := w.now
		for _, l := range w.pass(t, a.duration(t, "every", 9*time.Second)) {
			lines = append(lines, fmt.Sprintf("+%v and %s", at.Sub(start), l))
		}
		heard := message(w.state.Heartbeat(w.now, &HeartbeatRequest{
			Group: a.str("group", "g"), MemberID: a.str("member", ""), Generation: int32(a.num(t, "generation", 0)),
		}))
		if heard != last {
			lines = append(lines, fmt.Sprintf("+%v %s", w.now.Sub(start), heard))
		}
		last = heard
	}
	return lines
}

func (w *world) join(t *testing.T, a args) {
	client := a.str("client", "a")
	req := &JoinRequest{
		Group: a.str("group", "g"), MemberID: a.str("member", ""), InstanceID: a.str("instance", ""),
		ClientID: client, ClientHost: "/127.0.0.1",
		SessionTimeout:   a.duration(t, "session", 10*time.Second),
		RebalanceTimeout: a.duration(t, "rebalance", time.Minute),
		ProtocolType:     a.str("type", ConsumerProtocolType),
		RequireMemberID:  a.has("twice"), CanSkipAssignment: a.has("v9"), Reason: a.str("reason", ""),
	}
	protocols := a.list("protocols")
	if protocols == nil {
		protocols = []string{"range:" + client}
	}
	for _, p := range protocols {
		name, metadata, _ := strings.Cut(p, ":")
		req.Protocols = append(req.Protocols, Protocol{Name: name, Metadata: []byte(metadata)})
	}
	if topics := a.list("topics"); topics != nil {
		req.Protocols = []Protocol{{Name: "range", Metadata: subscriptionTo(topics...)}}
	}
	if req.MemberID == "" {
		req.NewMemberID = w.newID(client)
	}
	w.state.Join(w.now, w.ticket(client), req, &w.out)
}

func (w *world) sync(t *testing.T, a args) {
	member := a.str("member", "")
	req := &SyncRequest{
		Group: a.str("group", "g"), MemberID: member, InstanceID: a.str("instance", ""),
		Generation: int32(a.num(t, "generation", 1)), ProtocolType: a.str("type", ""), Protocol: a.str("protocol", ""),
	}
	for _, s := range a.list("assign") {
		id, data, _ := strings.Cut(s, ":")
		req.Assignments = append(req.Assignments, Assignment{MemberID: id, Data: []byte(data)})
	}
	w.state.Sync(w.now, w.ticket(member), req, &w.out)
}

func (w *world) leave(t *testing.T, a args) []string {
	var req = &LeaveRequest{Group: a.str("group", "g")}
	for _, id := range a.list("members") {
		id, instance, _ := strings.Cut(id, "/")
		req.Members = append(req.Members, LeavingMember{MemberID: id, InstanceID: instance})
	}
	errs, err := w.state.Leave(w.now, req, &w.out)
	require.Nil(t, err)
	lines := make([]string, 0, len(errs))
	for i, id := range a.list("members") {
		lines = append(lines, fmt.Sprintf("%s %s", id, message(errs[i])))
	}
	return lines
}

func (w *world) describe(a args) []string {
	d, ok := w.state.Describe(a.str("group", "g"))
	lines := []string{fmt.Sprintf("%s found=%v generation=%d %s/%s", d.State, ok, d.Generation, d.ProtocolType, d.Protocol)}
	for _, m := range d.Members {
		lines = append(lines, fmt.Sprintf("  %s instance=%s client=%s metadata=%s assignment=%s",
			m.ID, m.InstanceID, m.ClientID, describeMetadata(m.Metadata), m.Assignment))
	}
	return lines
}

func (w *world) offset(t *testing.T, a args) CommitOffset {
	return CommitOffset{
		TopicPartition: a.partition(t, a.str("partition", "t-0")),
		TopicID:        [16]byte{byte(a.num(t, "topic-id", 0))},
		Offset:         a.num(t, "offset", 0), LeaderEpoch: int32(a.num(t, "epoch", -1)), Metadata: a.str("metadata", ""),
	}
}

func (w *world) commit(t *testing.T, a args) []string {
	errs, err := w.state.Commit(w.now, &CommitRequest{
		Identity: Identity{
			Group: a.str("group", "g"), MemberID: a.str("member", ""), InstanceID: a.str("instance", ""),
			Generation: int32(a.num(t, "generation", -1)),
		},
		RetentionMs: a.num(t, "retention-ms", -1),
		Offsets:     []CommitOffset{w.offset(t, a)},
	}, &w.out)
	if err == nil && errs != nil {
		err = errs[0]
	}
	return []string{message(err)}
}

// subscriptionTo is a consumer's metadata, version 0.
func subscriptionTo(topics ...string) []byte {
	b := []byte{0, 0, 0, 0, 0, byte(len(topics))}
	for _, t := range topics {
		b = append(b, 0, byte(len(t)))
		b = append(b, t...)
	}
	return append(b, 0xff, 0xff, 0xff, 0xff)
}
