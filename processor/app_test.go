package processor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/processor"
)

func TestCountOnce(t *testing.T) {
	for name, opts := range map[string][]processor.Option{"at least once": nil, "exactly once": {processor.ExactlyOnce()}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2)
			r.produce(1000, 50)
			c := new(counting)
			opts := append(opts, processor.StateDir(t.TempDir()), processor.Name("w1"))
			a := r.open(c.topology(), opts...)
			r.requireCounts(r.output(1000))
			require.Eventually(t, func() bool { return reached(a) == 1000 }, 10*time.Second, 10*time.Millisecond)
			require.NoError(t, a.Close(context.Background()))

			r.produce(500, 50)
			r.open(c.topology(), opts...)
			r.requireCounts(r.output(1500))
			c.check(t)
		})
	}
}

// reached is how many offsets the stores of an App have taken in.
func reached(a *processor.App) (n int64) {
	for _, s := range a.Status() {
		for _, at := range s.Reached {
			n += max(0, at.Next)
		}
	}
	return n
}

func TestGrow(t *testing.T) {
	r := newRig(t, 1)
	r.produce(2000, 100)
	c := new(counting)
	open := func(name string) *processor.App {
		return r.open(c.topology(), processor.StateDir(t.TempDir()), processor.Name(name), processor.ExactlyOnce())
	}
	open("w1")
	r.output(2000)
	for _, name := range []string{"w2", "w3"} {
		r.active(open(name))
		r.produce(1000, 100)
	}
	r.requireCounts(r.output(4000))
	c.check(t)
}

// A state that cannot be built up any more is an error that says what is missing.
func TestTheLogBeginsAboveTheState(t *testing.T) {
	r := newRig(t, 1)
	r.produce(100, 10)
	c := new(counting)
	a := r.open(c.topology(), processor.StateDir(t.TempDir()))
	r.output(100)
	require.NoError(t, a.Close(context.Background()))
	r.forget(50)

	a = r.open(c.topology(), processor.StateDir(t.TempDir()))
	<-a.Failed()
	require.ErrorContains(t, a.Err(), "the state is at offset 0 of in[0], and the log begins at 50")
	c.check(t)
}

// A member that comes back under another id is given what it has the state of, and reads on
// from there.
func TestAStateOnDiskIsReadOnFrom(t *testing.T) {
	r := newRig(t, 1)
	r.produce(1000, 10)
	c := new(counting)
	dir := processor.StateDir(t.TempDir())
	a := r.open(c.topology(), dir)
	r.output(1000)
	require.NoError(t, a.Close(context.Background()))
	r.produce(10, 10)
	r.open(c.topology(), dir)
	r.requireCounts(r.output(1010))
	c.check(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Zero(t, c.silently, "records applied again")
}

// TestGrowAndShrinkUnderLoad lets members come and go while records come in. Every key is
// processed in order, each record once.
func TestGrowAndShrinkUnderLoad(t *testing.T) {
	r := newRig(t, 2)
	c := new(counting)
	open := func(name string) *processor.App {
		return r.open(c.topology(), processor.StateDir(t.TempDir()), processor.Name(name), processor.ExactlyOnce(), processor.HandOverThreshold(10))
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
				r.produce(20, 50)
			}
		}
	}()
	apps := []*processor.App{open("w0")}
	active := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool {
			for _, a := range apps[:n] {
				busy := false
				for _, s := range a.Status() {
					busy = busy || len(s.Active) > 0 && len(s.Rebuild) == 0
				}
				if !busy {
					return false
				}
			}
			return true
		}, 30*time.Second, 10*time.Millisecond)
	}
	active(1)
	apps = append(apps, open("w1"))
	active(2)
	apps = append(apps, open("w2"))
	active(3)
	apps = append(apps, open("w3"), open("w4"))
	active(5)
	for len(apps) > 2 {
		last := apps[len(apps)-1]
		apps = apps[:len(apps)-1]
		require.NoError(t, last.Close(context.Background()))
		active(len(apps))
	}
	close(stop)
	<-stopped
	n := 0
	for _, v := range r.values {
		n += v
	}
	r.requireCounts(r.output(n))
	c.check(t)
}
