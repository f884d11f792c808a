package broker

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// brokenPipe is a connection that cannot be written to.
type brokenPipe struct{ net.Conn }

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// TestAnAnswerThatCannotBeSentIsGivenUp tells the request whose answer it is, so that it can
// give back what it had for the client; requests behind it are not carried out.
func TestAnAnswerThatCannotBeSentIsGivenUp(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	b := &Broker{log: zap.NewNop()}
	b.limits.maxInFlight = 2
	c := newConn(t.Context(), b, brokenPipe{ours}, nil)
	var events []string
	for _, name := range []string{"first", "second"} {
		c.tasks <- &task{
			call: &call{unsent: func() { events = append(events, name+" unsent") }, release: func() { events = append(events, name+" released") }},
			wait: func(context.Context) kmsg.Response {
				events = append(events, name)
				return kmsg.NewPtrShareFetchResponse()
			},
		}
		c.outstanding.Add(1)
	}
	c.singles.Add(1) // so that the first does not wait for the second
	close(c.tasks)
	c.write()
	require.Equal(t, []string{"first", "first unsent", "first released", "second released"}, events)
}
