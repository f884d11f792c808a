package bench

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/tests/wire"
)

// target is the broker that is measured.
type target struct {
	tb     testing.TB
	addr   string
	config broker.Config
	broker *broker.Broker // nil: not ours
}

// anyTarget is the broker of the flag, or an embedded one on the disk of TMPDIR.
func anyTarget(tb testing.TB, fsync bool) *target {
	if *brokerAddr == "" {
		return embedded(tb, func(c *broker.Config) { c.NoFsync = !fsync })
	}
	if !fsync {
		tb.Skip("how a broker of the flag syncs is its own affair")
	}
	return &target{tb: tb, addr: *brokerAddr}
}

// embedded is a Lacuna in this process, with what change asks for, since what is measured
// is more than any Kafka broker can do.
func embedded(tb testing.TB, change func(*broker.Config)) *target {
	tb.Helper()
	if *brokerAddr != "" {
		tb.Skip("this is about an embedded broker")
	}
	t := &target{tb: tb, config: broker.Config{
		Listen: []string{"127.0.0.1:0"}, Admin: "127.0.0.1:0", DataDir: tb.TempDir(),
		Settings: map[string]string{"offsets.topic.num.partitions": "2"},
	}}
	if change != nil {
		change(&t.config)
	}
	t.start()
	tb.Cleanup(t.stop)
	return t
}

// inMemory keeps all in memory, for what is not about the disk.
func inMemory(c *broker.Config) { c.FS = vfs.NewMem() }

func (t *target) start() {
	t.tb.Helper()
	b, err := broker.Start(context.Background(), t.config)
	require.NoError(t.tb, err)
	t.broker, t.addr = b, b.Addr()
}

func (t *target) stop() {
	t.tb.Helper()
	require.NoError(t.tb, t.broker.Stop(context.Background()))
}

// dial opens a connection that lasts as long as tb.
func (t *target) dial(tb testing.TB) *wire.Conn {
	tb.Helper()
	c, err := wire.Dial(context.Background(), t.addr)
	require.NoError(tb, err)
	tb.Cleanup(func() { c.Close() })
	return c
}

var topics atomic.Int64

// topic makes a topic that lasts as long as tb, and waits until it can be written to.
func (t *target) topic(tb testing.TB, partitions int32) string {
	tb.Helper()
	name := fmt.Sprintf("bench-%d-%d", os.Getpid(), topics.Add(1))
	c := t.dial(tb)
	require.NoError(tb, c.CreateTopic(name, partitions, nil))
	tb.Cleanup(func() { t.deleteTopic(tb, name) })
	for p := range partitions {
		fetch := wire.FetchRequest(name, p, 0, 1, 0)
		for deadline := time.Now().Add(wire.Patience); ; {
			resp, err := c.Do(fetch)
			require.NoError(tb, err)
			if _, err = wire.Fetched(resp); err == nil {
				break
			}
			require.True(tb, kerr.IsRetriable(err) && time.Now().Before(deadline), "%v", err)
		}
	}
	return name
}

func (t *target) deleteTopic(tb testing.TB, name string) {
	c, err := wire.Dial(context.Background(), t.addr)
	require.NoError(tb, err)
	defer c.Close()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.SetVersion(4)
	req.TimeoutMillis, req.TopicNames = int32(wire.Patience.Milliseconds()), []string{name}
	resp, err := c.Do(req)
	require.NoError(tb, err)
	require.NoError(tb, kerr.ErrorForCode(resp.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode))
}

var metricsClient = http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// batchesDecoded is how many batches filtered fetches have decoded since the broker
// started, by its metrics.
func (t *target) batchesDecoded() int {
	t.tb.Helper()
	const name = "lacuna_filter_batches_decoded_total "
	resp, err := metricsClient.Get("http://" + t.broker.AdminAddr() + "/metrics")
	require.NoError(t.tb, err)
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name); ok {
			n, err := strconv.ParseFloat(value, 64)
			require.NoError(t.tb, err)
			return int(n)
		}
	}
	require.Fail(t.tb, "no such metric", name)
	return 0
}
