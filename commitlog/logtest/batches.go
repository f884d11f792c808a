package logtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
)

// Batch builds a batch of n records with keys key-0, key-1, ... at the time ms.
func Batch(t testing.TB, o protocol.BatchOptions, n int, ms int64) []byte {
	t.Helper()
	var b protocol.BatchBuilder
	b.Reset(o)
	for i := range n {
		b.Append(fmt.Appendf(nil, "key-%d", i), fmt.Appendf(nil, "value %d at %d", i, ms), nil, ms)
	}
	batch, err := b.Build(nil)
	require.NoError(t, err)
	return batch
}

// Plain is the options of a batch without a producer id.
func Plain() protocol.BatchOptions { return protocol.PlainBatch(0) }

// Produced is the options of an idempotent producer's batch.
func Produced(id int64, epoch int16, sequence int32) protocol.BatchOptions {
	return protocol.BatchOptions{ProducerID: id, ProducerEpoch: epoch, BaseSequence: sequence}
}

// LeaveOpen appends a transactional batch to the log in a directory, which nobody has
// open: a transaction that no coordinator knows, as bugs of producers and brokers have
// left behind. No request makes one.
func LeaveOpen(t testing.TB, fs vfs.FS, dir string, o protocol.BatchOptions, ms int64) commitlog.Appended {
	t.Helper()
	l, err := commitlog.Open(commitlog.Options{FS: fs, Dir: dir, Name: dir, Fsync: true, Config: commitlog.DefaultConfig(), Now: time.Now})
	require.NoError(t, err)
	done, err := l.Append(Batch(t, o, 1, ms), commitlog.AppendOptions{Internal: true})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return done
}

// InTxn is the options of a transactional producer's batch.
func InTxn(id int64, epoch int16, sequence int32) protocol.BatchOptions {
	o := Produced(id, epoch, sequence)
	o.Transactional = true
	return o
}

// Marker builds the control batch that ends a transaction.
func Marker(t testing.TB, id int64, epoch int16, commit bool, coordinator int32, ms int64) []byte {
	t.Helper()
	var b protocol.BatchBuilder
	batch, err := b.AppendEndTxnMarker(nil, protocol.EndTxnMarker{
		ProducerID: id, ProducerEpoch: epoch, Commit: commit, CoordinatorEpoch: coordinator,
	}, ms)
	require.NoError(t, err)
	return batch
}

// Append appends and waits until the batch is durable.
func Append(t testing.TB, l Log, batch []byte, o commitlog.AppendOptions) commitlog.Appended {
	t.Helper()
	a, err := l.Append(batch, o)
	require.NoError(t, err)
	Wait(t, a)
	return a
}

// Wait waits until what was appended is durable.
func Wait(t testing.TB, a commitlog.Appended) {
	t.Helper()
	if a.Flush != nil {
		<-a.Flush.Done()
		require.NoError(t, a.Flush.Err())
	}
}
