package tests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/tests/wire"
)

// startBroker starts a broker in this process, on disk unless change says otherwise, and
// stops it when the test ends.
func startBroker(t *testing.T, change func(*broker.Config)) *broker.Broker {
	t.Helper()
	cfg := broker.Config{
		Listen: []string{"127.0.0.1:0"}, DataDir: t.TempDir(),
		Settings: map[string]string{"group.initial.rebalance.delay.ms": "0"},
	}
	if change != nil {
		change(&cfg)
	}
	b, err := broker.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wire.Patience)
		defer cancel()
		require.NoError(t, b.Stop(ctx))
	})
	return b
}

// makePrey makes the topics that attackers may do to what they like.
func makePrey(t *testing.T, addr string) *prey {
	t.Helper()
	c := dial(t, addr)
	p := &prey{groups: []string{"group-a", "group-b"}}
	for _, topic := range []string{"prey-a", "prey-b"} {
		id, err := c.MakeTopic(topic)
		require.NoError(t, err)
		p.topics, p.ids = append(p.topics, topic), append(p.ids, id)
	}
	return p
}

// heapLimit is what the broker and the test may take together while small requests fly.
const heapLimit = 256 << 20

// TestBadRequestsHarmNobodyElse sends requests of every API and version, most of them
// damaged, and looks that a client beside them notices nothing, that a good request gets
// a good answer, and that a bad one ends with its connection.
func TestBadRequestsHarmNobodyElse(t *testing.T) {
	b := startBroker(t, nil)
	p := makePrey(t, b.Addr())
	apis, err := dial(t, b.Addr()).Versions()
	require.NoError(t, err)
	require.NotEmpty(t, apis)
	quiet := startCalm(t, b.Addr(), "calm")

	type version struct{ key, version int16 }
	work := make(chan version)
	var attackers sync.WaitGroup
	for range 4 {
		attackers.Go(func() {
			for v := range work {
				for seed := range seeds(t, 1) {
					a := attacker{t: t, addr: b.Addr(), seed: uint64(seed), key: v.key, version: v.version}
					a.generator = generator{rng: rand.New(rand.NewPCG(a.seed, uint64(v.key)<<16|uint64(v.version))), prey: p}
					a.run(scaled(16, 150))
				}
			}
		})
	}
	for _, api := range apis {
		for v := api.MinVersion; v <= api.MaxVersion; v++ {
			work <- version{api.ApiKey, v}
		}
	}
	close(work)
	attackers.Wait()

	quiet.undisturbed(t)
	require.Less(t, quiet.heapPeak, uint64(heapLimit), "the heap while it was attacked")
	runtime.GC()
	t.Logf("heap: at most %d MiB, %d MiB in the end", quiet.heapPeak>>20, heapBytes()>>20)
}

// attacker sends requests of one API and version.
type attacker struct {
	generator
	t            *testing.T
	addr         string
	seed         uint64
	key, version int16
}

func (a *attacker) run(n int) {
	for i := range n {
		req := a.request(a.key, a.version)
		frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("attacker")).AppendRequest(nil, req, int32(i))
		var err error
		if i%4 == 0 {
			err = a.sendGood(req, frame)
		} else {
			frame = a.mutateFrame(frame)
			err = a.sendBad(frame)
		}
		assert.NoError(a.t, err, "%s version %d, seed %d, request %d: %x", kmsg.NameForKey(a.key), a.version, a.seed, i, frame)
	}
}

// sendGood sends a request whose form is right and expects an answer of the right form.
func (a *attacker) sendGood(req kmsg.Request, frame []byte) error {
	c, err := wire.Dial(context.Background(), a.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write(frame); err != nil {
		return err
	}
	if p, ok := req.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
		return nil // nothing is answered
	}
	answer, err := c.ReceiveFrame()
	if err != nil {
		return err
	}
	return wire.ReadBody(answer[4:], req.ResponseKind())
}

// sendBad sends bytes and expects the broker to be done with them once no more come.
func (a *attacker) sendBad(frame []byte) error {
	nc, err := net.Dial("tcp", a.addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	nc.Write(frame) // the broker may have hung up already
	nc.(*net.TCPConn).CloseWrite()
	if err := nc.SetReadDeadline(time.Now().Add(wire.Patience)); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, nc); errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the broker keeps a connection that its client has left: %w", err)
	}
	return nil
}
