package processor_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestCutIsWhatTheSystemSays: what a crashNet says of a connection that is cut, and of one that
// nobody takes, counts for kgo as what the operating system says.
func TestCutIsWhatTheSystemSays(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	conn, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	taken, err := ln.Accept()
	require.NoError(t, err)
	require.NoError(t, taken.(*net.TCPConn).SetLinger(0)) // Close resets the connection
	require.NoError(t, taken.Close())
	require.NoError(t, ln.Close())
	_, reset := conn.Read(make([]byte, 1))
	_, refused := net.Dial("tcp", ln.Addr().String())
	for _, c := range []struct{ real, ours error }{{reset, errCut}, {refused, errRefused}} {
		var is, said *net.OpError
		require.ErrorAs(t, c.real, &is)
		require.ErrorAs(t, c.ours, &said)
		require.Equal(t, is.Err, said.Err)
		require.Equal(t, kgo.IsRetryableBrokerErr(c.real), kgo.IsRetryableBrokerErr(c.ours), "%v", c.ours)
	}
}

// TestCutsLoseNoInput: a record that waits to be produced is produced although the connection
// is cut on which its topic is looked up meanwhile, as often as kgo tries that in a row.
func TestCutsLoseNoInput(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	n := &crashNet{links: make(map[*crashLink]struct{})}
	n.lead(r.b.Addr())
	var link *crashLink
	var left atomic.Int32 // cuts to come; below 0: none
	left.Store(-1)
	over := make(chan struct{})
	link = n.link(func(at crashPoint) {
		if at != "ask Metadata" || left.Load() < 0 {
			return
		}
		if left.Add(-1) < 0 {
			close(over)
			return
		}
		link.reset()
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"), kgo.Dialer(link.dial), kgo.ManualFlushing(), kgo.MetadataMinAge(10*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return time.Millisecond }))
	require.NoError(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	produced := make(chan error, 2)
	produce := func() {
		cl.Produce(ctx, &kgo.Record{Topic: "in", Value: []byte("1")}, func(_ *kgo.Record, err error) { produced <- err })
	}
	produce()
	require.NoError(t, cl.Flush(ctx))
	require.NoError(t, <-produced) // the topic is known from now on
	produce()
	left.Store(10)
	cl.ForceMetadataRefresh()
	<-over
	require.NoError(t, cl.Flush(ctx))
	require.NoError(t, <-produced)
}
