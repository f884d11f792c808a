package transaction

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TestTimeout holds that a transaction whose time is up is aborted, counting from its
// first partition, also after a restart, and that its producer can go on.
func TestTimeout(t *testing.T) {
	r := newRig(t)
	p := r.mustInit(None)
	r.mustBegin(p, 2)
	r.now = r.now.Add(59 * time.Second)
	require.Nil(t, r.add(p, 2, b0))
	r.restart()
	r.tick()
	require.Empty(t, r.ended)
	at, ok := r.state.NextDeadline()
	require.True(t, ok)
	require.Equal(t, start.Add(time.Minute), at)
	r.now = at
	r.tick()
	require.Equal(t, []string{"t"}, r.ended)
	_, ok = r.state.NextDeadline()
	require.False(t, ok, "the markers have no deadline")
	r.complete()

	require.Equal(t, kerr.ProducerFenced, r.add(p, 2, a0))
	_, err := r.end(p, 2, true)
	require.Equal(t, kerr.InvalidTxnState, err)
	next, err := r.end(p, 2, false)
	require.Nil(t, err)
	require.Equal(t, Producer{100, 1}, next)
	r.mustBegin(next, 2)
}

// TestTimeoutInVersion1 holds that a producer of version 1 is fenced by a timeout until it
// asks for another epoch.
func TestTimeoutInVersion1(t *testing.T) {
	r := newRig(t)
	p := r.mustInit(None)
	r.mustBegin(p, 0)
	r.now = r.now.Add(time.Minute)
	r.tick()
	r.complete()
	_, err := r.end(p, 0, false)
	require.Equal(t, kerr.ProducerFenced, err)
	require.Equal(t, Producer{100, 1}, r.mustInit(p))
}

// TestExpiry holds that an id is forgotten when it has not been used for long, and not
// while it has a transaction.
func TestExpiry(t *testing.T) {
	r := newRig(t)
	p := r.mustInit(None)
	r.now = r.now.Add(time.Hour - time.Millisecond)
	r.tick()
	require.Equal(t, 1, r.state.Len())
	r.mustBegin(p, 2)
	_, err := r.end(p, 2, true)
	require.Nil(t, err)
	r.now = r.now.Add(24 * time.Hour)
	r.tick()
	require.Equal(t, PrepareCommit, r.describe().Status)
	r.complete()
	r.now = r.now.Add(time.Hour)
	r.tick()
	require.Zero(t, r.state.Len())
	require.Nil(t, r.log[len(r.log)-1].Value)
	r.restart()
	require.Zero(t, r.state.Len())
	_, ok := r.state.NextDeadline()
	require.False(t, ok)
	require.Equal(t, Producer{ID: 101}, r.mustInit(p), "a producer that comes back gets another id")
}

// TestSetConfig holds that another expiration counts for ids that are there, and does not
// for transactions.
func TestSetConfig(t *testing.T) {
	r := newRig(t)
	r.mustBegin(r.mustInit(None), 2) // for a minute
	r.do(func(out *Output) {
		_, err := r.state.InitProducerID(r.now, &InitRequest{TransactionalID: "idle", TimeoutMs: 1000, Expected: None, NewID: 7}, out)
		require.Nil(t, err)
	})
	for expiration, want := range map[time.Duration]time.Duration{
		time.Second: time.Second, 2 * time.Minute: time.Minute, 59 * time.Second: 59 * time.Second,
	} {
		r.state.SetConfig(Config{MaxTimeout: time.Second, IDExpiration: expiration})
		require.NoError(t, r.state.CheckInvariants())
		at, ok := r.state.NextDeadline()
		require.True(t, ok)
		require.Equal(t, start.Add(want), at)
	}
	_, err := r.init(None)
	require.Equal(t, kerr.InvalidTransactionTimeout, err)
}

// TestManyExpire holds that ids that are due at once are dealt with in portions.
func TestManyExpire(t *testing.T) {
	r := newRig(t)
	var out Output
	for i := range 2500 {
		_, err := r.state.InitProducerID(r.now, &InitRequest{
			TransactionalID: fmt.Sprintf("id-%04d", i), TimeoutMs: 1000, Expected: None, NewID: int64(i)}, &out)
		require.Nil(t, err)
	}
	r.now = r.now.Add(time.Hour)
	for _, left := range []int{1500, 500, 0} {
		at, ok := r.state.NextDeadline()
		require.True(t, ok)
		require.False(t, at.After(r.now))
		r.tick()
		require.Equal(t, left, r.state.Len())
	}
	first, _, err := decodeRecord(r.log[0].Key, r.log[0].Value)
	require.NoError(t, err)
	require.Equal(t, "id-0000", first, "in order")
}
