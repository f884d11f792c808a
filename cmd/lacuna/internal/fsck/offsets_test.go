package fsck

import (
	"testing"

	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestOffsetsInTransactions holds that offsets count which are committed, and no others:
// what is pending or aborted would be held against ledgers and logs for nothing.
func TestOffsetsInTransactions(t *testing.T) {
	key := kmsg.OffsetCommitKey{Version: 1, Group: "g", Topic: "t"}
	none := []int64{}
	for name, test := range map[string]struct {
		do   func(put func(producer, offset int64), end func(producer int64, commit bool))
		want []int64
	}{
		"pending": {func(put func(int64, int64), _ func(int64, bool)) { put(1, 5) }, none},
		"committed": {func(put func(int64, int64), end func(int64, bool)) {
			put(1, 5)
			end(1, true)
		}, []int64{5}},
		"aborted": {func(put func(int64, int64), end func(int64, bool)) {
			put(0, 3)
			put(1, 5)
			end(1, false)
		}, []int64{3}},
		"overtaken": {func(put func(int64, int64), end func(int64, bool)) {
			put(1, 5)
			put(0, 3)
			end(1, true)
		}, []int64{3}},
		"the last of two": {func(put func(int64, int64), end func(int64, bool)) {
			put(1, 5)
			put(2, 6)
			end(2, true)
			end(1, true)
		}, []int64{6}},
		"deleted": {func(put func(int64, int64), end func(int64, bool)) {
			put(1, 5)
			put(0, -1)
			end(1, true)
		}, none},
	} {
		t.Run(name, func(t *testing.T) {
			o := offsetsReading{
				c: &check{}, committed: make(map[committedKey]committedOffset),
				pending: make(map[openTransaction]map[committedKey]committedOffset),
			}
			test.do(func(producer, offset int64) {
				r := journal.Record{Key: key.AppendTo(nil)}
				if offset >= 0 {
					value := kmsg.OffsetCommitValue{Version: 3, Offset: offset}
					r.Value = value.AppendTo(nil)
				}
				if producer != 0 {
					r.Transaction = &journal.Transaction{ProducerID: producer}
				}
				o.record("__consumer_offsets[0]", 0, 1, r)
			}, func(producer int64, commit bool) { o.end(0, producer, commit) })
			require.Empty(t, o.c.report.Findings)
			got := []int64{}
			for _, c := range o.committed {
				got = append(got, c.offset)
			}
			require.Equal(t, test.want, got)
		})
	}
}
