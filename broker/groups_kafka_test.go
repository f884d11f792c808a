package broker_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/broker"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestGroupsAnswerAsKafkaDoes sends requests of the group and offset APIs, at both ends of
// their version ranges and where they changed, and compares the answers field by field
// with those that Apache Kafka 4.4.0 gave. To record these anew, start a Kafka with
// group.initial.rebalance.delay.ms=0 and group.min.session.timeout.ms=100 and run the test
// with LACUNA_RECORD_KAFKA=HOST:PORT.
func TestGroupsAnswerAsKafkaDoes(t *testing.T) {
	quick := func(c *broker.Config) {
		quickGroups(c)
		c.Settings["auto.create.topics.enable"] = "false"
	}
	requireKafkasAnswers(t, "testdata/groups_kafka_4_4.txt", quick, func(addr string) string {
		s := newGroupScript(t, addr)
		s.run()
		return s.out.String()
	})
}

// groupScript is a conversation with a broker, written down without what differs from
// run to run.
type groupScript struct {
	t     *testing.T
	addr  string
	out   strings.Builder
	names map[string]string // of ids that the broker made up
}

func newGroupScript(t *testing.T, addr string) *groupScript {
	return &groupScript{t: t, addr: addr, names: make(map[string]string)}
}

// wireConn is a connection that speaks exactly the versions it is asked to.
type wireConn struct {
	t  *testing.T
	nc net.Conn
	id int32
}

func (s *groupScript) dial() *wireConn {
	nc, err := net.Dial("tcp", s.addr)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { nc.Close() })
	require.NoError(s.t, nc.SetDeadline(time.Now().Add(time.Minute)))
	return &wireConn{t: s.t, nc: nc}
}

func (c *wireConn) send(req kmsg.Request, version int16) {
	req.SetVersion(version)
	c.id++
	_, err := c.nc.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("script")).AppendRequest(nil, req, c.id))
	require.NoError(c.t, err)
}

func (c *wireConn) receive(req kmsg.Request) kmsg.Response {
	var size [4]byte
	_, err := io.ReadFull(c.nc, size[:])
	require.NoError(c.t, err)
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err = io.ReadFull(c.nc, frame)
	require.NoError(c.t, err)
	require.EqualValues(c.t, c.id, binary.BigEndian.Uint32(frame))
	resp := req.ResponseKind()
	frame = frame[4:]
	if resp.IsFlexible() {
		frame = frame[1:] // no tags
	}
	require.NoError(c.t, resp.ReadFrom(frame))
	return resp
}

// say sends a request of its own connection and writes down the answer.
func (s *groupScript) say(title string, req kmsg.Request, version int16) kmsg.Response {
	return s.begin(req, version).end(title)
}

// begin sends a request whose answer is asked for later.
func (s *groupScript) begin(req kmsg.Request, version int16) *exchange {
	c := s.dial()
	c.send(req, version)
	return &exchange{s: s, c: c, req: req}
}

type exchange struct {
	s   *groupScript
	c   *wireConn
	req kmsg.Request
}

func (e *exchange) end(title string) kmsg.Response {
	resp := e.c.receive(e.req)
	e.c.nc.Close()
	text, err := json.Marshal(resp)
	require.NoError(e.s.t, err)
	name := kmsg.NameForKey(resp.Key())
	fmt.Fprintf(&e.s.out, "%s v%d: %s\n  %s\n", name, resp.GetVersion(), title, e.s.tidy(string(text)))
	return resp
}

var (
	madeUp   = regexp.MustCompile(`[a-z0-9]*-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	topicIDs = regexp.MustCompile(`"TopicID":\[[0-9,]+\]`)
	ports    = regexp.MustCompile(`"Port":[0-9]+`)
)

// tidy names what is made up and leaves out what may differ.
func (s *groupScript) tidy(text string) string {
	text = ports.ReplaceAllString(text, `"Port":9092`)
	text = madeUp.ReplaceAllStringFunc(text, func(id string) string {
		if s.names[id] == "" {
			s.names[id] = fmt.Sprintf("member-%d", len(s.names)+1)
		}
		return s.names[id]
	})
	text = topicIDs.ReplaceAllStringFunc(text, func(id string) string {
		if strings.Trim(id, `"TopicID:[0,]`) == "" {
			return `"TopicID":0`
		}
		if s.names[id] == "" {
			s.names[id] = fmt.Sprintf(`"TopicID":"id of topic %d"`, len(s.names)+1)
		}
		return s.names[id]
	})
	var answer any
	require.NoError(s.t, json.Unmarshal([]byte(text), &answer))
	tidied, err := json.Marshal(inOrder(answer))
	require.NoError(s.t, err)
	return string(tidied)
}

// inOrder drops the texts of errors and orders lists, whose order means nothing.
func inOrder(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, field := range []string{"Version", "ThrottleMillis", "UnknownTags", "ErrorMessage", "AcknowledgeErrorMessage"} {
			delete(v, field)
		}
		for field, of := range v {
			v[field] = inOrder(of)
		}
	case []any:
		for i := range v {
			v[i] = inOrder(v[i])
		}
		slices.SortFunc(v, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	return v
}
