package journal

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
)

// events is a State that lists what it is told.
type events struct {
	keep
	told []string
}

func (e *events) Reset() {
	e.keep.Reset()
	e.told = nil
}

func (e *events) Apply(offset int64, r Record) error {
	of := ""
	if r.Transaction != nil {
		of = fmt.Sprintf(" in %d/%d", r.Transaction.ProducerID, r.Transaction.ProducerEpoch)
	}
	e.told = append(e.told, fmt.Sprintf("%d %s%s", offset, r.Key, of))
	return e.keep.Apply(offset, r)
}

// transactional is told of markers too.
type transactional struct{ events }

func (e *transactional) End(offset int64, t Transaction, commit bool) error {
	e.told = append(e.told, fmt.Sprintf("%d ends %d/%d: %t", offset, t.ProducerID, t.ProducerEpoch, commit))
	return nil
}

// inTransactions is a log in which producers 7 and 8 had transactions.
func inTransactions(t *testing.T, log Log) *Journal {
	j := Open(log, "j")
	for _, step := range []func() (Receipt, error){
		func() (Receipt, error) { return j.Append(put("plain", "1")) },
		func() (Receipt, error) { return j.AppendInTransaction(Transaction{7, 1}, put("a", "1", "b", "2")) },
		func() (Receipt, error) { return j.AppendInTransaction(Transaction{8, 0}, put("c", "3")) },
		func() (Receipt, error) {
			return j.AppendMarker(protocol.EndTxnMarker{ProducerID: 7, ProducerEpoch: 2, Commit: true}, 2, 1)
		},
		func() (Receipt, error) {
			return j.AppendMarker(protocol.EndTxnMarker{ProducerID: 8, ProducerEpoch: 0}, 0, 1)
		},
	} {
		receipt, err := step()
		require.NoError(t, err)
		require.NoError(t, receipt.Wait(ctx))
	}
	return j
}

func TestTransactions(t *testing.T) {
	log := openLog(t, vfs.NewMem(), commitlog.Options{Fsync: true})
	inTransactions(t, log)
	require.Equal(t, commitlog.Bounds{HighWatermark: 6, LSO: 6, End: 6}, log.Bounds())

	all := []string{"0 plain", "1 a in 7/1", "2 b in 7/1", "3 c in 8/0", "4 ends 7/2: true", "5 ends 8/0: false"}
	state := &transactional{}
	view := openStore(t, vfs.NewMem()).View("v")
	_, err := Recover(ctx, view, source, log, state)
	require.NoError(t, err)
	require.Equal(t, all, state.told)

	// From a view on, also one that ends within the transactions.
	for from := range int64(len(all) + 1) {
		batch := view.NewBatch()
		batch.SetApplied(source, from)
		require.NoError(t, batch.Commit(ctx))
		_, err = Recover(ctx, view, source, log, state)
		require.NoError(t, err)
		require.Equal(t, all[from:], append([]string{}, state.told...), "from %d", from)
	}

	plain := &events{}
	_, err = Recover(ctx, openStore(t, vfs.NewMem()).View("v"), source, log, plain)
	require.NoError(t, err)
	require.Equal(t, all[:4], plain.told, "a state that knows nothing of markers is told of none")
}

// What the log refuses of a transaction is an answer, and harms nothing else.
func TestRefusedInTransaction(t *testing.T) {
	log := openLog(t, vfs.NewMem(), commitlog.Options{Fsync: true})
	j := inTransactions(t, log)
	end := log.Bounds().End
	_, err := j.AppendInTransaction(Transaction{7, 1}, put("a", "late"))
	require.ErrorIs(t, err, commitlog.ErrInvalidProducerEpoch)
	_, err = j.AppendMarker(protocol.EndTxnMarker{ProducerID: 7, ProducerEpoch: 1}, 2, 1)
	require.ErrorIs(t, err, commitlog.ErrInvalidProducerEpoch)
	_, err = j.AppendMarker(protocol.EndTxnMarker{ProducerID: 7, ProducerEpoch: 2, CoordinatorEpoch: -2}, 2, 1)
	require.ErrorIs(t, err, commitlog.ErrCoordinatorFenced)
	require.Equal(t, end, log.Bounds().End)
	appendTo(t, log, put("a", "5"))

	again, err := j.AppendMarker(protocol.EndTxnMarker{ProducerID: 7, ProducerEpoch: 2, Commit: true}, 2, 1)
	require.NoError(t, err, "the same marker once more")
	require.NoError(t, again.Wait(ctx))
	require.Equal(t, []string{"6 a=5"}, replayed(t, log, end))
}

// A marker that cannot be read is lost like a record.
func TestDamagedMarker(t *testing.T) {
	log := &memLog{}
	inTransactions(t, log)
	marker := log.batches[3]
	h, err := protocol.ParseBatchHeader(marker)
	require.NoError(t, err)
	marker[len(marker)-1] ^= 1
	_, err = Recover(ctx, openStore(t, vfs.NewMem()).View("v"), source, log, &transactional{})
	var corrupt *CorruptError
	require.ErrorAs(t, err, &corrupt)
	require.Equal(t, [2]int64{h.BaseOffset, h.NextOffset()}, [2]int64{corrupt.Offset, corrupt.Next})
}
