package transaction

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	require.NoError(t, err)
	return b
}

// TestKafkaRecords holds that records are byte for byte those that the classes of Apache
// Kafka 4.4.0 make for __transaction_state.
func TestKafkaRecords(t *testing.T) {
	const ms = 0x18bcfe56800
	key := unhex(t, "0000 0008 7061796d656e7473")
	for name, test := range map[string]struct {
		value value
		want  string
	}{
		"empty": {
			value{producer: Producer{100, 0}, previousID: 100, nextID: -1, initEpoch: -1, timeoutMs: 60000, startMs: -1, updateMs: ms},
			"0001 0000000000000064 0000 0000ea60 00 00 0000018bcfe56800 ffffffffffffffff 01 00 08 0000000000000064",
		},
		"ongoing": {
			value{
				producer: Producer{100, 0}, previousID: 100, nextID: -1, initEpoch: -1, timeoutMs: 60000, startMs: ms + 1,
				updateMs: ms + 2, status: Ongoing, version: 2, partitions: []TopicPartition{a0, a1},
			}, `0001 0000000000000064 0000 0000ea60 01 02 02 61 03 00000000 00000001 00 0000018bcfe56802 0000018bcfe56801
			02 00 08 0000000000000064 02 02 0002`,
		},
		"committed, with the epochs run out": {
			value{
				producer: Producer{100, math.MaxInt16}, previousID: 100, nextID: 101, initEpoch: -1, timeoutMs: 60000,
				startMs: ms + 1, updateMs: ms + 3, status: PrepareCommit, version: 2, partitions: []TopicPartition{a0},
			}, `0001 0000000000000064 7fff 0000ea60 02 02 02 61 02 00000000 00 0000018bcfe56803 0000018bcfe56801
			03 00 08 0000000000000064 01 08 0000000000000065 02 02 0002`,
		},
		"complete": {
			value{
				producer: Producer{101, 0}, previousID: 100, nextID: -1, initEpoch: -1, timeoutMs: 60000,
				startMs: ms + 1, updateMs: ms + 4, status: CompleteCommit, version: 2,
			}, `0001 0000000000000065 0000 0000ea60 04 01 0000018bcfe56804 0000018bcfe56801
			02 00 08 0000000000000064 02 02 0002`,
		},
		"aborted in version 1": {
			value{
				producer: Producer{100, 3}, previousID: 100, nextID: -1, initEpoch: -1, timeoutMs: 60000,
				startMs: ms + 1, updateMs: ms + 3, status: PrepareAbort,
			}, `0001 0000000000000064 0003 0000ea60 03 01 0000018bcfe56803 0000018bcfe56801 01 00 08 0000000000000064`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := encodeRecord("payments", &test.value)
			require.Equal(t, key, r.Key)
			require.Equal(t, unhex(t, test.want), r.Value)
			id, back, err := decodeRecord(r.Key, r.Value)
			require.NoError(t, err)
			require.Equal(t, "payments", id)
			require.Equal(t, test.value, *back)
		})
	}
	require.Equal(t, Record{Key: key}, encodeRecord("payments", nil))
}

// TestInitEpoch holds that the epoch before InitProducerId is one more tagged field.
func TestInitEpoch(t *testing.T) {
	v := value{producer: Producer{100, 8}, previousID: 100, nextID: -1, initEpoch: 7, startMs: -1}
	require.Equal(t, unhex(t, `0001 0000000000000064 0008 00000000 00 00 0000000000000000 ffffffffffffffff
		02 00 08 0000000000000064 904e 02 0007`), encodeRecord("t", &v).Value)
}

// TestOlderRecords reads what brokers before version 1 wrote, which had no tagged fields.
func TestOlderRecords(t *testing.T) {
	_, v, err := decodeRecord(unhex(t, "0000 0001 74"), unhex(t,
		"0000 0000000000000064 0003 0000ea60 01 00000001 0001 61 00000002 00000001 00000000 0000018bcfe56803 0000018bcfe56801"))
	require.NoError(t, err)
	require.Equal(t, value{
		producer: Producer{100, 3}, previousID: -1, nextID: -1, initEpoch: -1, timeoutMs: 60000, status: Ongoing,
		startMs: 0x18bcfe56801, updateMs: 0x18bcfe56803, partitions: []TopicPartition{a0, a1},
	}, *v)
	_, v, err = decodeRecord(unhex(t, "0000 0001 74"), unhex(t,
		"0000 0000000000000064 0003 0000ea60 00 ffffffff 0000018bcfe56803 ffffffffffffffff"))
	require.NoError(t, err)
	require.Equal(t, Empty, v.status)
}

// TestLeftovers: what a stage has no use for is not taken over.
func TestLeftovers(t *testing.T) {
	_, v, err := decodeRecord(unhex(t, "0000 0001 74"), unhex(t, `0001 0000000000000064 0003 0000ea60 04 02 02 61 02 00000000 00
		0000018bcfe56803 0000018bcfe56801 01 01 08 0000000000000065`))
	require.NoError(t, err)
	require.Equal(t, value{
		producer: Producer{100, 3}, previousID: -1, nextID: -1, initEpoch: -1, timeoutMs: 60000, status: CompleteCommit,
		startMs: 0x18bcfe56801, updateMs: 0x18bcfe56803,
	}, *v)
}

// TestBadRecords holds that what is not a record changes nothing.
func TestBadRecords(t *testing.T) {
	const key, rest = "0000 0001 74", "01 0000018bcfe56803 0000018bcfe56801 00"
	for name, test := range map[string]struct{ key, value string }{
		"key without version":    {"00", ""},
		"key version":            {"0001 0001 74", ""},
		"key cut":                {"0000 0002 74", ""},
		"no transactional id":    {"0000 0000", ""},
		"value version":          {key, "0002 0000000000000064 0003 0000ea60 01" + rest},
		"negative value version": {key, "ffff 0000000000000064 0003 0000ea60 01" + rest},
		"value cut":              {key, "0001 0000000000000064 0003 0000ea60 01"},
		"producer id":            {key, "0001 ffffffffffffffff 0003 0000ea60 01" + rest},
		"epoch":                  {key, "0001 0000000000000064 ffff 0000ea60 01" + rest},
		"timeout":                {key, "0001 0000000000000064 0003 ffffffff 01" + rest},
		"state Dead":             {key, "0001 0000000000000064 0003 0000ea60 06" + rest},
		"negative state":         {key, "0001 0000000000000064 0003 0000ea60 ff" + rest},
		"start":                  {key, "0001 0000000000000064 0003 0000ea60 01 01 0000018bcfe56803 7fffffffffffffff 00"},
		"partition":              {key, "0001 0000000000000064 0003 0000ea60 01 02 02 61 02 80000000 00 0000000000000001 0000000000000001 00"},
		"next producer id":       {key, "0001 0000000000000064 0003 0000ea60 02 01 0000000000000001 0000000000000001 01 01 08 fffffffffffffffe"},
		"transaction version":    {key, "0001 0000000000000064 0003 0000ea60 02 01 0000000000000001 0000000000000001 01 02 02 0080"},
		"epoch before":           {key, "0001 0000000000000064 0003 0000ea60 00 00 0000000000000001 0000000000000001 01 904e 02 ffff"},
		"epoch before, too long": {key, "0001 0000000000000064 0003 0000ea60 00 00 0000000000000001 0000000000000001 01 904e 03 000001"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			p := r.mustInit(None)
			var value []byte
			if test.value != "" {
				value = unhex(t, test.value)
			}
			require.ErrorIs(t, r.state.Apply(unhex(t, test.key), value), ErrBadRecord)
			require.Equal(t, p, r.describe().Producer)
			require.Equal(t, 1, r.state.Len())
		})
	}
}

func FuzzApply(f *testing.F) {
	r := newRig(f)
	p := r.mustInit(None)
	r.mustBegin(p, 2)
	p, err := r.end(p, 2, true)
	require.Nil(f, err)
	r.complete()
	r.mustInit(p)
	for _, rec := range r.log {
		f.Add(rec.Key, rec.Value, false)
	}
	f.Add(r.log[0].Key, []byte{}, true)
	f.Fuzz(func(t *testing.T, key, val []byte, tombstone bool) {
		if tombstone {
			val = nil
		}
		r := newRig(t)
		p := r.mustInit(None)
		if err := r.state.Apply(key, val); err != nil {
			require.ErrorIs(t, err, ErrBadRecord)
			require.Equal(t, p, r.describe().Producer)
			return
		}
		require.NoError(t, r.state.CheckInvariants())
		for _, id := range r.state.Ending() {
			c, _ := r.state.Completion(id)
			r.do(func(out *Output) { r.state.Complete(r.now, id, c.Producer, out) })
		}
		r.tick()
		_, _ = r.init(None)
	})
}
