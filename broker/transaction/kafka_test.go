package transaction

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TestAnswersAsKafkaDoes brings transactional ids to every stage and sends there each
// request of each producer, twice, and compares the answers and what became of the id with
// those that Apache Kafka 4.4.0 gave. To record these anew, start a Kafka and run the test
// with LACUNA_RECORD_KAFKA=HOST:PORT; it takes some minutes, since epochs have to run out.
func TestAnswersAsKafkaDoes(t *testing.T) {
	const golden = "testdata/kafka_4_4.txt"
	if addr := os.Getenv("LACUNA_RECORD_KAFKA"); addr != "" {
		text := converse(t, newKafkaPeer(t, addr))
		require.NoError(t, os.WriteFile(golden, []byte(text), 0o644))
		return
	}
	recorded, err := os.ReadFile(golden)
	require.NoError(t, err)
	local := newStatePeer(t)
	got := converse(t, local)
	require.NoError(t, local.state.CheckInvariants())
	require.Equal(t, withDifferences(t, string(recorded)), got)
}

// withDifferences puts in what is answered otherwise here, and holds that all of that is
// used.
func withDifferences(t testing.TB, recorded string) string {
	text, err := os.ReadFile("testdata/differences.txt")
	require.NoError(t, err)
	ours := make(map[string]string) // by stage and line
	stage, line := "", ""
	for _, l := range strings.Split(string(text), "\n") {
		switch kind, rest, _ := strings.Cut(l, " "); kind {
		case "#", "":
		case "-":
			line = rest
		case "+":
			ours[stage+"\n"+line] = rest
		default:
			stage = l
		}
	}
	lines := strings.Split(recorded, "\n")
	for i, l := range lines {
		if i > 0 && lines[i-1] == "" {
			stage = l
		}
		if instead, ok := ours[stage+"\n"+l]; ok {
			lines[i] = instead
			delete(ours, stage+"\n"+l)
		}
	}
	require.Empty(t, ours, "Kafka never answered so")
	return strings.Join(lines, "\n")
}

// peer is a coordinator. Its describe waits until all markers are written.
type peer interface {
	initProducer(id string, expected Producer) (Producer, *kerr.Error)
	add(id string, p Producer, version int8, tps ...TopicPartition) *kerr.Error
	verify(id string, p Producer, tp TopicPartition) *kerr.Error
	end(id string, p Producer, version int8, commit bool) (Producer, *kerr.Error)
	describe(id string) Description
	// exhaust asks for producers until the epochs of the producer id have run out.
	exhaust(id string) Producer
}

// conversation is with one transactional id.
type conversation struct {
	testing.TB
	peer  peer
	id    string
	p     Producer // the one who talks
	names []int64  // producer ids, in the order in which they were given
}

// foreign is a producer id that the transactional id never had.
const foreign = 999_999_999

func (c *conversation) name(p Producer) string {
	switch {
	case p == None:
		return "nobody"
	case p.ID == foreign:
		return fmt.Sprintf("stranger/%d", p.Epoch)
	}
	for i, id := range c.names {
		if id == p.ID {
			return fmt.Sprintf("%c/%d", 'A'+i, p.Epoch)
		}
	}
	c.names = append(c.names, p.ID)
	return c.name(p)
}

// answer writes down what a request got, and what it left.
func (c *conversation) answer(p Producer, err *kerr.Error) string {
	text := c.name(p)
	if err != nil {
		text = err.Message
	}
	d := c.peer.describe(c.id)
	text += fmt.Sprintf(" [%s %s", d.Status, c.name(d.Producer))
	for _, tp := range d.Partitions {
		text += fmt.Sprintf(" %s-%d", tp.Topic, tp.Partition)
	}
	return text + "]"
}

// must takes the producer answered as the one who talks on.
func (c *conversation) must(p Producer, err *kerr.Error) {
	c.Helper()
	require.Nil(c, err)
	if p != None {
		c.p = p
	}
	c.name(c.p)
}

func (c *conversation) init(expected Producer) {
	c.must(c.peer.initProducer(c.id, expected))
}
func (c *conversation) add(version int8) {
	require.Nil(c, c.peer.add(c.id, c.p, version, a0))
}
func (c *conversation) end(version int8, commit bool) {
	c.must(c.peer.end(c.id, c.p, version, commit))
	c.peer.describe(c.id)
}
func (c *conversation) fence() {
	_, err := c.peer.initProducer(c.id, None)
	require.Equal(c, kerr.ConcurrentTransactions, err)
	c.peer.describe(c.id)
}

// setups bring a transactional id to a stage.
var setups = []struct {
	name string
	do   func(c *conversation)
}{
	{"new", func(*conversation) {}},
	{"initialised again by the producer", func(c *conversation) { c.init(c.p) }},
	{"initialised again by another", func(c *conversation) { c.init(None) }},
	{"ongoing, version 2", func(c *conversation) { c.add(2) }},
	{"ongoing, version 1", func(c *conversation) { c.add(0) }},
	{"ongoing after being initialised by the producer", func(c *conversation) { c.init(c.p); c.add(2) }},
	{"committed, version 2", func(c *conversation) { c.add(2); c.end(2, true) }},
	{"aborted, version 2", func(c *conversation) { c.add(2); c.end(2, false) }},
	{"aborted empty", func(c *conversation) { c.end(2, false) }},
	{"committed, version 1", func(c *conversation) { c.add(0); c.end(0, true) }},
	{"aborted, version 1", func(c *conversation) { c.init(None); c.add(0); c.end(0, false) }},
	{"begun in version 1, committed in version 2", func(c *conversation) { c.add(0); c.end(2, true) }},
	{"initialised after a commit", func(c *conversation) { c.add(2); c.end(2, true); c.init(c.p) }},
	{"ongoing after a commit", func(c *conversation) { c.add(2); c.end(2, true); c.add(2) }},
	{"fenced, version 2", func(c *conversation) { c.add(2); c.fence() }},
	{"fenced, version 1", func(c *conversation) { c.init(None); c.add(0); c.fence() }},
	{"initialised after being fenced", func(c *conversation) { c.add(2); c.fence(); c.init(None) }},
}

// probe is a request to be tried.
type probe struct {
	name string
	send func(c *conversation, p Producer) (Producer, *kerr.Error)
}

func probes() []probe {
	list := []probe{
		{"init", func(c *conversation, p Producer) (Producer, *kerr.Error) { return c.peer.initProducer(c.id, p) }},
		{"verify", func(c *conversation, p Producer) (Producer, *kerr.Error) { return None, c.peer.verify(c.id, p, a0) }},
	}
	for _, version := range []int8{0, 2} {
		list = append(list, probe{
			fmt.Sprintf("add, version %d", version),
			func(c *conversation, p Producer) (Producer, *kerr.Error) {
				return None, c.peer.add(c.id, p, version, a1)
			}})
		for _, commit := range []bool{true, false} {
			list = append(list, probe{
				fmt.Sprintf("end, version %d, commit %v", version, commit),
				func(c *conversation, p Producer) (Producer, *kerr.Error) { return c.peer.end(c.id, p, version, commit) }})
		}
	}
	return list
}

// converse writes down all that is to be asked.
func converse(t testing.TB, p peer) string {
	var text strings.Builder
	n := 0
	begin := func() *conversation {
		n++
		c := &conversation{TB: t, peer: p, id: fmt.Sprintf("t-%d", n)}
		c.init(None)
		return c
	}
	for _, setup := range setups {
		fmt.Fprintf(&text, "\n%s\n", setup.name)
		for _, probe := range probes() {
			for _, who := range []func(p Producer) Producer{
				func(p Producer) Producer { return p },
				func(p Producer) Producer { return Producer{p.ID, p.Epoch - 1} },
				func(p Producer) Producer { return Producer{p.ID, p.Epoch - 2} },
				func(p Producer) Producer { return Producer{p.ID, p.Epoch + 1} },
				func(p Producer) Producer { return Producer{foreign, p.Epoch} },
				func(Producer) Producer { return None },
			} {
				c := begin()
				setup.do(c)
				from := who(p.describe(c.id).Producer)
				if from.Epoch < 0 && (from != None || probe.name != "init") {
					continue // not a producer
				}
				fmt.Fprintf(&text, "%s of %s:", probe.name, c.name(from))
				for range 2 {
					fmt.Fprintf(&text, " %s", c.answer(probe.send(c, from)))
				}
				text.WriteString("\n")
			}
		}
	}
	runOut(&text, p, begin)
	return text.String()
}

// runOut is what happens when epochs have run out. These conversations go on in one
// line, for it takes long to come there.
func runOut(text *strings.Builder, p peer, begin func() *conversation) {
	text.WriteString("\nepochs have run out\n")
	for _, requests := range []string{
		"init init", "other init init", "add commit commit abort init init", "commit abort abort init",
		"add fence abort abort commit init", "add fence init init abort", "add fence other init", "add1 fence abort1 init init",
		"add1 commit1 commit1 init init", "other add abort abort",
	} {
		c := begin()
		c.p = p.exhaust(c.id)
		require.Equal(c, int16(math.MaxInt16-1), c.p.Epoch)
		var line strings.Builder
		for _, name := range strings.Fields(requests) {
			var answer Producer
			var err *kerr.Error
			version := int8(2)
			if strings.HasSuffix(name, "1") {
				version = 0
			}
			switch strings.TrimSuffix(name, "1") {
			case "init":
				answer, err = p.initProducer(c.id, c.p)
			case "other", "fence":
				answer, err = p.initProducer(c.id, None)
			case "add":
				answer, err = None, p.add(c.id, c.p, version, a0)
			case "commit", "abort":
				answer, err = p.end(c.id, c.p, version, strings.HasPrefix(name, "commit"))
			}
			fmt.Fprintf(&line, "%s: %s; ", name, c.answer(answer, err))
		}
		fmt.Fprintln(text, strings.TrimSuffix(line.String(), " "))
	}
}

// statePeer is a State.
type statePeer struct{ *rig }

func newStatePeer(t testing.TB) statePeer { return statePeer{newRig(t)} }

func (s statePeer) initProducer(id string, expected Producer) (Producer, *kerr.Error) {
	var out Output
	p, err := s.state.InitProducerID(s.now, &InitRequest{TransactionalID: id, TimeoutMs: 60_000, Expected: expected, NewID: s.newID()}, &out)
	s.finish(&out)
	return p, err
}

func (s statePeer) add(id string, p Producer, version int8, tps ...TopicPartition) *kerr.Error {
	return s.state.AddPartitions(s.now, &AddRequest{TransactionalID: id, Producer: p, Version: version, Partitions: tps}, new(Output))
}

func (s statePeer) verify(id string, p Producer, tp TopicPartition) *kerr.Error {
	errs, err := s.state.Verify(id, p, []TopicPartition{tp})
	if err == nil {
		err = errs[0]
	}
	return err
}

func (s statePeer) end(id string, p Producer, version int8, commit bool) (Producer, *kerr.Error) {
	var out Output
	next, err := s.state.End(s.now, &EndRequest{TransactionalID: id, Producer: p, Version: version, Commit: commit, NewID: s.newID()}, &out)
	s.finish(&out)
	return next, err
}

// finish writes the markers.
func (s statePeer) finish(out *Output) {
	for _, id := range out.Ended {
		c, _ := s.state.Completion(id)
		s.state.Complete(s.now, id, c.Producer, out)
	}
}

func (s statePeer) describe(id string) Description {
	d, ok := s.state.Describe(id)
	require.True(s, ok)
	return d
}

func (s statePeer) exhaust(id string) Producer {
	v := s.state.ids[id].value
	v.producer.Epoch = math.MaxInt16 - 1
	s.state.emit(id, &v, new(Output))
	return v.producer
}
