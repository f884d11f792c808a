package group

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TestScripts runs the transcripts in testdata/scripts. Each command is a request, or time that
// passes; below it stands what it decided: the records to log, then the replies.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		w := newWorld(DefaultConfig())
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			got := w.run(t, d)
			require.NoError(t, w.state.CheckInvariants(), d.Pos)
			w.requireRecoverable(t)
			return got
		})
	})
}

// world is a State with its log, and clients with names.
type world struct {
	config Config
	state  *State
	now    time.Time
	log    []Record // as decoded from their bytes
	out    Output
	// labels name the requests under way; numbers count the ids given to clients.
	labels  map[Ticket]string
	tickets Ticket
	numbers map[string]int
}

func newWorld(config Config) *world {
	w := &world{config: config, now: time.UnixMilli(0), labels: make(map[Ticket]string), numbers: make(map[string]int)}
	w.reload()
	return w
}

// reload builds the state anew from the log, as after a crash.
func (w *world) reload() {
	w.state = NewState(w.config)
	for i := range w.log {
		w.state.Apply(&w.log[i])
	}
	w.labels = make(map[Ticket]string)
	w.state.Loaded(w.now, &w.out)
}

func (w *world) ticket(label string) Ticket {
	w.tickets++
	w.labels[w.tickets] = label
	return w.tickets
}

// newID is the id that a client's next new member gets: client-1, client-2.
func (w *world) newID(client string) string {
	w.numbers[client]++
	return fmt.Sprintf("%s-%d", client, w.numbers[client])
}

// requireRecoverable holds that the log leads to the same committed offsets, and to the
// same groups where these are between rebalances.
func (w *world) requireRecoverable(t require.TestingT) {
	again := NewState(w.config)
	for i := range w.log {
		again.Apply(&w.log[i])
	}
	for _, id := range w.state.ids() {
		require.Equal(t, w.state.AllCommitted(id), again.AllCommitted(id), id)
		now, _ := w.state.Describe(id)
		then, ok := again.Describe(id)
		if c := w.state.groups[id].classic; c.simple() && !ok {
			continue // all its offsets were deleted; nothing remembers it
		}
		require.True(t, ok, "group %s is not in the log", id)
		if now.State == Stable || now.State == Empty {
			require.Equal(t, now, then)
		}
	}
	require.NoError(t, again.CheckInvariants())
}

// settle moves the output to the log, and describes it.
func (w *world) settle(t require.TestingT) []string {
	var lines []string
	for _, r := range w.out.Records {
		decoded, err := DecodeRecord(r.Key, r.Value)
		require.NoError(t, err)
		require.True(t, decoded.Known())
		w.log = append(w.log, decoded)
		lines = append(lines, "log "+describeRecord(&decoded))
	}
	for _, r := range w.out.Replies {
		label, ok := w.labels[r.Ticket]
		require.True(t, ok, "a reply to nobody: ticket %d", r.Ticket)
		delete(w.labels, r.Ticket)
		lines = append(lines, label+": "+describeReply(&r))
	}
	w.out.Reset()
	return lines
}

func describeRecord(r *Record) string {
	if o := r.offset; o != nil {
		if o.value == nil {
			return fmt.Sprintf("offset of %s on %s-%d: none", o.group, o.tp.Topic, o.tp.Partition)
		}
		return fmt.Sprintf("offset of %s on %s-%d: %s", o.group, o.tp.Topic, o.tp.Partition, describeOffset(o.value))
	}
	if r.group.value == nil {
		return fmt.Sprintf("group %s: none", r.group.group)
	}
	v := r.group.value
	members := make([]string, 0, len(v.members))
	for _, m := range v.members {
		members = append(members, fmt.Sprintf("%s:%s", m.id, m.assignment))
	}
	return fmt.Sprintf("group %s: generation=%d protocol=%s/%s leader=%s members=%v",
		r.group.group, v.generation, v.protocolType, v.protocol, v.leader, members)
}

func describeOffset(c *Committed) string {
	s := fmt.Sprintf("%d epoch=%d metadata=%q at=%d", c.Offset, c.LeaderEpoch, c.Metadata, c.CommitMs)
	if c.ExpireMs != -1 {
		s += fmt.Sprintf(" expires=%d", c.ExpireMs)
	}
	if c.TopicID != [16]byte{} {
		s += fmt.Sprintf(" topic=%d", c.TopicID[0])
	}
	return s
}

func describeReply(r *Reply) string {
	if a := r.Sync; a != nil {
		if a.Err != nil {
			return "sync " + a.Err.Message
		}
		return fmt.Sprintf("sync %s/%s assignment=%s", a.ProtocolType, a.Protocol, a.Assignment)
	}
	a := r.Join
	if a.Err != nil {
		return fmt.Sprintf("join %s member=%s", a.Err.Message, a.MemberID)
	}
	s := fmt.Sprintf("join generation=%d %s/%s member=%s leader=%s", a.Generation, a.ProtocolType, a.Protocol, a.MemberID, a.Leader)
	if a.SkipAssignment {
		s += " skip-assignment"
	}
	if len(a.Members) > 0 {
		members := make([]string, 0, len(a.Members))
		for _, m := range a.Members {
			name := m.ID
			if m.InstanceID != "" {
				name += "(" + m.InstanceID + ")"
			}
			members = append(members, fmt.Sprintf("%s:%s", name, describeMetadata(m.Metadata)))
		}
		s += fmt.Sprintf(" members=%v", members)
	}
	return s
}

// describeMetadata shows a consumer's subscription by its topics.
func describeMetadata(metadata []byte) string {
	topics := make(map[string]struct{})
	if !subscription(metadata, topics) {
		return string(metadata)
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(topics)))
}

func message(err *kerr.Error) string {
	if err == nil {
		return "ok"
	}
	return err.Message
}

// args reads a command's arguments: name=value, name alone for true, name=(a,b).
type args struct{ d *datadriven.TestData }

func (a args) str(name, otherwise string) string {
	if vals := a.list(name); len(vals) > 0 {
		return vals[0]
	}
	return otherwise
}

func (a args) list(name string) []string {
	arg, _ := a.d.Arg(name)
	return arg.Vals
}

func (a args) num(t *testing.T, name string, otherwise int64) int64 {
	n, err := strconv.ParseInt(a.str(name, strconv.FormatInt(otherwise, 10)), 10, 64)
	require.NoError(t, err, a.d.Pos)
	return n
}

func (a args) duration(t *testing.T, name string, otherwise time.Duration) time.Duration {
	v, err := time.ParseDuration(a.str(name, otherwise.String()))
	require.NoError(t, err, a.d.Pos)
	return v
}

func (a args) has(name string) bool { return a.d.HasArg(name) }

// partition reads "topic-3".
func (a args) partition(t *testing.T, s string) TopicPartition {
	i := strings.LastIndexByte(s, '-')
	p, err := strconv.ParseInt(s[i+1:], 10, 32)
	require.NoError(t, err, a.d.Pos)
	return TopicPartition{Topic: s[:i], Partition: int32(p)}
}
