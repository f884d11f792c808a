package share

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKafkasRecords holds the bytes that Apache Kafka's schemas prescribe, and with our own
// fields behind them.
func TestKafkasRecords(t *testing.T) {
	rack := "r"
	topic := [16]byte{0: 0xaa, 15: 0xbb}
	partitions := []TopicPartitions{{topic, []int32{0, 2}}}
	const id = "aa0000000000000000000000000000bb"
	for _, c := range []struct {
		name       string
		change     Change
		key, value string
	}{
		{"member", memberRecord("g", "m", &memberValue{rackID: &rack, clientID: "c", clientHost: "/h", topics: []string{"t"}}),
			"000a" + "000167" + "00016d", "0000" + "0272" + "0263" + "032f68" + "02" + "0274" + "00"},
		{"member without a rack", memberRecord("g", "m", &memberValue{}),
			"000a" + "000167" + "00016d", "0000" + "00" + "01" + "01" + "01" + "00"},
		{"group", groupRecord("g", &groupValue{epoch: 3, hash: -1}),
			"000b" + "000167", "0000" + "00000003" + "ffffffffffffffff" + "00"},
		{"group with ranges", groupRecord("g", &groupValue{epoch: 3, keyRangeValue: keyRangeValue{
			mode: KeyRange, initial: 16, lines: []line{{topic, "t", 4}},
		}}), "000b" + "000167", "0000" + "00000003" + "0000000000000000" + "01" + "904e" + "1e" +
			"02" + "00000010" + "02" + id + "0274" + "00000004" + "00" + "00"},
		{"assignment", assignmentRecord("g", &assignmentValue{epoch: 3, madeMs: 5}),
			"000c" + "000167", "0000" + "00000003" + "01" + "00" + "08" + "0000000000000005"},
		{"target", targetRecord("g", "m", &targetValue{partitions: partitions}),
			"000d" + "000167" + "00016d", "0000" + "02" + id + "03" + "00000000" + "00000002" + "00" + "00"},
		{"target with buckets", targetRecord("g", "m", &targetValue{buckets: []int32{1}, idle: 2}),
			"000d" + "000167" + "00016d", "0000" + "01" + "01" + "904e" + "0a" + "02" + "00000001" + "00000002" + "00"},
		{"current", currentRecord("g", "m", &currentValue{epoch: 3, previousEpoch: 2, partitions: partitions}),
			"000e" + "000167" + "00016d", "0000" + "00000003" + "00000002" + "00" + "02" + id + "03" + "00000000" + "00000002" + "00" + "00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.key, hex.EncodeToString(c.change.Key))
			require.Equal(t, c.value, hex.EncodeToString(c.change.Value))
			decoded, err := Decode(c.change.Key, c.change.Value)
			require.NoError(t, err)
			require.Equal(t, &c.change, decoded)
			for n := 2; n < len(c.change.Value); n++ {
				_, err := Decode(c.change.Key, c.change.Value[:n])
				require.ErrorIs(t, err, ErrBadRecord, "cut to %d bytes", n)
			}
			gone, err := Decode(c.change.Key, nil)
			require.NoError(t, err)
			require.True(t, gone.Removes())
			require.Equal(t, c.change.Key[1] == keyGroup, gone.EndsGroup())
		})
	}
}

func TestRecordsOfOthers(t *testing.T) {
	for _, key := range []string{"", "00", "0001", "0009", "000f", "ffff"} {
		b, err := hex.DecodeString(key)
		require.NoError(t, err)
		c, err := Decode(b, []byte("anything"))
		require.NoError(t, err)
		require.Nil(t, c, key)
	}
	_, err := Decode([]byte{0, 10, 0, 1, 'g', 0, 1, 'm'}, []byte{0, 1})
	require.ErrorIs(t, err, ErrBadRecord, "a version that is not known")
	_, err = Decode([]byte{0, 10, 0, 1, 'g', 0, 9, 'm'}, nil)
	require.ErrorIs(t, err, ErrBadRecord, "a key that is cut")
	// Tags that Kafka may come to have are skipped.
	c, err := Decode([]byte{0, 11, 0, 1, 'g'}, []byte{0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 5, 2, 1, 2})
	require.NoError(t, err)
	require.Equal(t, int32(7), c.what.(*groupValue).epoch)
}

// FuzzDecode holds that whatever a client writes to __consumer_offsets is read or refused,
// and that a group can go on from what was read.
func FuzzDecode(f *testing.F) {
	for _, c := range []Change{
		memberRecord("g", "m", &memberValue{clientID: "c", topics: []string{"t", "u"}}),
		groupRecord("g", &groupValue{epoch: 3, keyRangeValue: keyRangeValue{mode: KeyRange, initial: 16, lines: []line{{[16]byte{1}, "t", 4}}}}),
		assignmentRecord("g", &assignmentValue{epoch: 3, madeMs: 5}),
		targetRecord("g", "m", &targetValue{buckets: []int32{1}, idle: 2, partitions: []TopicPartitions{{[16]byte{1}, []int32{0, 2}}}}),
		currentRecord("g", "m", &currentValue{epoch: 3, previousEpoch: 2}),
	} {
		f.Add(c.Key, c.Value)
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		c, err := Decode(key, value)
		if c == nil || err != nil {
			return
		}
		w := newWorld()
		w.settings.Mode = KeyRange
		w.setTopic("t", 2)
		w.group = New("g")
		first := groupRecord("g", &groupValue{epoch: 1})
		w.group.Apply(&first)
		w.group.Apply(c)
		w.group.Refresh(&Env{Now: w.now, Cluster: w, Emit: func(c Change) { w.group.Apply(&c) }})
		if again, err := Decode(bytes.Clone(key), bytes.Clone(value)); err != nil || again.Group != c.Group {
			t.Fatal("the same bytes are read in another way")
		}
	})
}
