package tests

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// look looks at the broker while nobody works, once all transactions have ended, be it by
// their time-out. Whatever is acknowledged has its output, and the other way round, nothing
// is pending, and what the Transactors have told is so.
func (r *eosRun) look() *eosSeen {
	r.t.Helper()
	conn := dial(r.t, r.broker.addr)
	defer conn.Close()
	r.awaitEnds(conn)
	seen := newEOSSeen(r.ordered())
	for partition := range int32(eosOutPartitions) {
		values, stable, err := conn.Committed(eosOut, partition)
		require.NoError(r.t, err)
		end, err := conn.EndOffset(eosOut, partition)
		require.NoError(r.t, err)
		require.Equal(r.t, end, stable, "a transaction hangs in partition %d", partition)
		for _, value := range values {
			seen.see(partition, value)
		}
	}
	r.account.compare(seen)
	require.NoError(r.t, r.pending(conn), "offsets are pending, and no transaction is open")
	ledger, err := conn.Ledger(eosGroup, eosIn, 0)
	require.NoError(r.t, err)
	var wrong []string
	acked := 0
	for input := range int64(r.inputs) {
		_, made := seen.by[input]
		committed := ledger.Committed(input)
		if committed {
			acked++
		}
		if made != committed && !eosDropped(input) {
			wrong = append(wrong, fmt.Sprintf("input %d: acknowledged: %v, its output is seen: %v", input, committed, made))
		}
	}
	require.Empty(r.t, wrong)
	r.t.Logf("%d of %d inputs are acknowledged", acked, r.inputs)
	r.acked = acked
	return seen
}

// awaitEnds waits until no transaction is open.
func (r *eosRun) awaitEnds(conn *wire.Conn) {
	r.t.Helper()
	began := time.Now()
	for {
		open, err := openTransactions(conn)
		require.NoError(r.t, err)
		took := time.Since(began)
		if len(open) == 0 {
			r.t.Logf("the last transaction ended after %v", took.Round(time.Millisecond))
			return
		}
		require.Less(r.t, took, wire.Patience, "transactions hang: %v", open)
		<-time.After(20 * time.Millisecond)
	}
}

// openTransactions are the transactional ids whose transactions have not ended.
func openTransactions(conn *wire.Conn) (open []string, err error) {
	resp, err := conn.Do(kmsg.NewPtrListTransactionsRequest())
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, txn := range resp.(*kmsg.ListTransactionsResponse).TransactionStates {
		ids = append(ids, strings.Clone(txn.TransactionalID))
	}
	for _, id := range ids {
		state, err := conn.TransactionStatus(id)
		if err != nil {
			return nil, fmt.Errorf("transactional id %s: %w", id, err)
		}
		if !slices.Contains([]string{"Empty", "CompleteCommit", "CompleteAbort"}, state) {
			open = append(open, id+": "+strings.Clone(state))
		}
	}
	return open, nil
}

// pending asks for the committed offset as one that waits for pending ones to end.
func (r *eosRun) pending(conn *wire.Conn) error {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.SetVersion(8)
	req.RequireStable = true
	asked := kmsg.NewOffsetFetchRequestGroup()
	asked.Group = eosGroup
	asked.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: eosIn, Partitions: []int32{0}}}
	asked.UnknownTags.Set(protocol.ExtensionTag, (&protocol.GapsRequest{}).AppendTo(nil)) // a share group is asked in no other way
	req.Groups = []kmsg.OffsetFetchRequestGroup{asked}
	resp, err := conn.Do(req)
	if err != nil {
		return err
	}
	group := &resp.(*kmsg.OffsetFetchResponse).Groups[0]
	if err := kerr.ErrorForCode(group.ErrorCode); err != nil {
		return err
	}
	return kerr.ErrorForCode(group.Topics[0].Partitions[0].ErrorCode)
}
