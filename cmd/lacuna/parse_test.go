package main

import (
	"testing"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestParseRuns(t *testing.T) {
	runs, err := parseRuns("--offsets", "7, 10-12,0")
	require.NoError(t, err)
	require.Equal(t, []client.Run{{Start: 7, End: 8}, {Start: 10, End: 13}, {Start: 0, End: 1}}, runs)
	for _, bad := range []string{"", "x", "3-1", "-1", "1-", "9223372036854775807"} {
		_, err := parseRuns("--offsets", bad)
		require.ErrorAs(t, err, new(usageError), bad)
	}
	require.Equal(t, "7", formatRun(runs[0]))
	require.Equal(t, "10-12", formatRun(runs[1]))
}

func TestParseSlots(t *testing.T) {
	slots, err := parseSlots("0-16383")
	require.NoError(t, err)
	require.Equal(t, client.SlotRange{Lo: 0, Hi: 16383}, slots)
	slots, err = parseSlots("7")
	require.NoError(t, err)
	require.Equal(t, client.SlotRange{Lo: 7, Hi: 7}, slots)
	for _, bad := range []string{"", "9-1", "0-65536", "a-b"} {
		_, err := parseSlots(bad)
		require.ErrorContains(t, err, "between 0 and 65535", bad)
	}
}

func TestParsePosition(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]client.Position{
		"earliest": client.Earliest(), "latest": client.Latest(), "42": client.At(42),
		"2026-01-31T10:00:00Z": client.Since(now.Add(-2 * time.Hour)), "-90m": client.Since(now.Add(-90 * time.Minute)),
	} {
		got, err := parsePosition("--from", text, now)
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	}
	for _, bad := range []string{"", "now", "-5", "1h", "2026-01-31"} {
		_, err := parsePosition("--from", bad, now)
		require.ErrorAs(t, err, new(usageError), bad)
	}
}

func TestRecordFormats(t *testing.T) {
	r := &kgo.Record{Topic: "t", Partition: 1, Offset: 7, Key: []byte("k"), Value: []byte("v\xff"), Timestamp: time.UnixMilli(5),
		Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("x")}}}
	for name, tc := range map[string]struct{ output, layout, delimiter, want string }{
		"value":       {want: "v\xff\n"},
		"key":         {delimiter: ":", want: "k:v\xff\n"},
		"layout":      {layout: `%t/%p/%o\t%k "%v"\n`, want: "t/1/7\tk \"v\xff\"\n"},
		"json base64": {output: "json", want: `{"topic":"t","partition":1,"offset":7,"timestamp_ms":5,"key":"k","value_base64":"dv8=","headers":[{"key":"h","value":"x"}]}` + "\n"},
	} {
		format, err := newRecordFormat(tc.output, tc.layout, tc.delimiter)
		require.NoError(t, err)
		got, err := format(nil, r)
		require.NoError(t, err)
		require.Equal(t, tc.want, string(got), name)
	}
	for _, bad := range []string{`%Q`, `\q`} {
		_, err := newRecordFormat("", bad, "")
		require.ErrorAs(t, err, new(usageError), bad)
	}
}

func TestProduceLines(t *testing.T) {
	o := produceOptions{keyDelimiter: ":", partition: 3}
	r := o.record([]byte("k:v:w"), nil)
	require.Equal(t, "k", string(r.Key))
	require.Equal(t, "v:w", string(r.Value))
	require.EqualValues(t, 3, r.Partition)
	r = o.record([]byte("no delimiter"), nil)
	require.Nil(t, r.Key)
	require.Equal(t, "no delimiter", string(r.Value))
	require.NotNil(t, o.record([]byte("k:"), nil).Value, "empty, not null")
	o.tombstones = true
	require.Nil(t, o.record([]byte("k:"), nil).Value)
}

func TestProduceOptions(t *testing.T) {
	for want, o := range map[string]produceOptions{
		"--topic": {codec: "none", acks: "all"},
		"--codec": {topic: "t", codec: "rar", acks: "all"},
		"--acks":  {topic: "t", codec: "none", acks: "2"},
	} {
		_, err := o.options()
		require.ErrorContains(t, err, want)
	}
}

func TestConsumeOptions(t *testing.T) {
	for want, o := range map[string]consumeOptions{
		"--topic":       {},
		"one topic":     {topics: []string{"a", "b"}, partitions: []int32{1}},
		"--individual":  {topics: []string{"a"}, individual: true},
		"do not choose": {topics: []string{"a"}, group: "g", partitions: []int32{1}},
		"--leave-every": {topics: []string{"a"}, group: "g", leaveEvery: 10},
	} {
		require.ErrorContains(t, o.validate(), want)
	}
	ok := consumeOptions{topics: []string{"a"}, group: "g", individual: true, leaveEvery: 10, partitions: []int32{0}}
	require.NoError(t, ok.validate())
}
