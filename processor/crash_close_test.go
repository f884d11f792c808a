package processor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/processor"
)

// An App whose outputs nobody answers for, since the broker is gone, can be closed.
func TestCloseWithoutABroker(t *testing.T) {
	r := newRig(t, 1)
	r.produce(10, 10)
	net := &crashNet{links: make(map[*crashLink]struct{})}
	net.lead(r.b.Addr())
	gone := make(chan struct{})
	link := net.link(func(at crashPoint) {
		if at == "hear Produce" {
			net.down()
			close(gone)
		}
	})
	defer link.cut()
	c := new(counting)
	a := r.open(c.topology(), processor.StateDir(t.TempDir()), processor.KafkaOpts(kgo.Dialer(link.dial)))
	<-gone
	closed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		closed <- a.Close(ctx)
	}()
	select {
	case err := <-closed:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(20 * time.Second):
		t.Error("it does not close")
		net.lead(r.b.Addr()) // so that the test can end
	}
}
