package client

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// cluster is a cluster in memory that does what a test says: it loses answers, moves
// leaders, truncates logs. It knows just enough of Kafka for this package, and runs over
// pipes, so that tests may fake the time. What a real broker does is tested against one.
type cluster struct {
	t        *testing.T
	features []string

	mu     sync.Mutex
	topics map[string]*fakeTopic
	groups map[string]map[TopicPartition]*fakeLedger
	grew   chan struct{} // closed and replaced with every record
	share  *fakeShare    // nil: no share groups
	conns  map[net.Conn]struct{}
	down   bool
	nodes  int32
	wg     sync.WaitGroup

	// intercept sees every request first. It may answer itself, or ask that the answer
	// be lost on its way.
	intercept func(node int32, req kmsg.Request) (resp kmsg.Response, loseAnswer bool)
	requests  map[int16]int // by API key
}

type fakeTopic struct {
	id         topicID
	partitions []*fakePartition
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{
		t:        t,
		features: []string{protocol.FeatureIndividualCommit, protocol.FeatureKeyFilter},
		topics:   make(map[string]*fakeTopic),
		groups:   make(map[string]map[TopicPartition]*fakeLedger),
		grew:     make(chan struct{}),
		conns:    make(map[net.Conn]struct{}),
		nodes:    1,
		requests: make(map[int16]int),
	}
	t.Cleanup(c.close)
	return c
}

func (c *cluster) close() {
	c.setDown(true)
	c.wg.Wait()
}

// setDown cuts all connections and refuses new ones, or admits them again.
func (c *cluster) setDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
	for conn := range c.conns {
		conn.Close()
	}
	clear(c.conns)
	c.growLocked()
}

// create makes a topic of empty partitions, led by node 0. A topic of that name that was
// there before is gone.
func (c *cluster) create(name string, partitions int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &fakeTopic{id: topicID{0: byte(len(c.topics) + 1), 15: byte(c.requests[3] + 1)}}
	for range partitions {
		t.partitions = append(t.partitions, newFakePartition())
	}
	c.topics[name] = t
}

// produce writes records with keys of one producer.
func (c *cluster) produce(topic string, partition int32, keys ...string) {
	c.edit(topic, partition, func(p *fakePartition) {
		for _, key := range keys {
			p.write(fakeRecord{key: []byte(key)})
		}
	})
}

// edit changes a partition and wakes the fetches that wait.
func (c *cluster) edit(topic string, partition int32, change func(*fakePartition)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c.topics[topic].partitions[partition])
	c.growLocked()
}

func (c *cluster) growLocked() {
	close(c.grew)
	c.grew = make(chan struct{})
}

// ledger is a group's ledger, made if there is none.
func (c *cluster) ledger(group, topic string, partition int32, use func(*fakeLedger)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	use(c.ledgerLocked(group, TopicPartition{topic, partition}))
}

func (c *cluster) ledgerLocked(group string, tp TopicPartition) *fakeLedger {
	if c.groups[group] == nil {
		c.groups[group] = make(map[TopicPartition]*fakeLedger)
	}
	if c.groups[group][tp] == nil {
		c.groups[group][tp] = &fakeLedger{}
	}
	return c.groups[group][tp]
}

func (c *cluster) count(key kmsg.Key) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests[int16(key)]
}

// kafka are the options that connect to the cluster. Its nodes are called node-0 and on.
func (c *cluster) kafka(more ...kgo.Opt) Opt {
	return KafkaOpts(append([]kgo.Opt{
		kgo.SeedBrokers("node-0:9092"),
		kgo.Dialer(c.dial),
		kgo.RetryBackoffFn(defaultBackoff),
	}, more...)...)
}

func (c *cluster) dial(_ context.Context, _, host string) (net.Conn, error) {
	var node int32
	if _, err := fmt.Sscanf(host, "node-%d:", &node); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%s is down", host)}
	}
	near, far := net.Pipe()
	c.conns[far] = struct{}{}
	c.wg.Go(func() {
		defer far.Close()
		c.serve(node, far)
		if c.share != nil {
			c.share.disconnected(far)
		}
	})
	return near, nil
}

// serve answers the requests of one connection, one after the other.
func (c *cluster) serve(node int32, conn net.Conn) {
	for {
		frame, err := protocol.ReadFrame(conn, nil, 100<<20)
		if err != nil {
			return
		}
		req := kmsg.RequestForKey(int16(binary.BigEndian.Uint16(frame)))
		h, body, err := protocol.ParseRequestHeader(frame, protocol.FlexibleFrom(req))
		if err != nil {
			return
		}
		req.SetVersion(h.APIVersion)
		if err := req.ReadFrom(body); err != nil {
			return
		}
		resp, lose := c.answer(node, conn, req)
		if lose || resp == nil {
			return
		}
		resp.SetVersion(h.APIVersion)
		out := protocol.BeginResponse(nil, h.APIKey, resp.IsFlexible(), h.CorrelationID)
		out = resp.AppendTo(out)
		protocol.EndFrame(out, 0)
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

func (c *cluster) answer(node int32, conn net.Conn, req kmsg.Request) (resp kmsg.Response, lose bool) {
	c.mu.Lock()
	c.requests[req.Key()]++
	intercept := c.intercept
	c.mu.Unlock()
	if intercept != nil {
		if resp, lose = intercept(node, req); resp != nil {
			return resp, lose
		}
	}
	if c.share != nil {
		if resp := c.share.answer(conn, req); resp != nil {
			return resp, lose
		}
	}
	if fetch, ok := req.(*kmsg.FetchRequest); ok {
		return c.fetch(fetch), lose // it may wait
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch req := req.(type) {
	case *kmsg.ApiVersionsRequest:
		return c.apiVersions(req), lose
	case *kmsg.MetadataRequest:
		return c.metadata(req), lose
	case *kmsg.FindCoordinatorRequest:
		return c.findCoordinator(req), lose
	case *kmsg.ListOffsetsRequest:
		return c.listOffsets(req), lose
	case *kmsg.OffsetForLeaderEpochRequest:
		return c.offsetForLeaderEpoch(req), lose
	case *kmsg.OffsetCommitRequest:
		return c.offsetCommit(req), lose
	case *kmsg.OffsetFetchRequest:
		return c.offsetFetch(req), lose
	}
	c.t.Errorf("the test cluster got a request that it does not know: %T", req)
	return nil, lose
}

// open opens a Reader and closes it when the test ends.
func (c *cluster) open(opts ...ReaderOpt) *Reader {
	c.t.Helper()
	r, err := OpenReader(c.t.Context(), append([]ReaderOpt{c.kafka()}, opts...)...)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { r.Close(context.Background()) })
	return r
}
