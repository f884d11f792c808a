package keyfilter

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestBucketsExamples are two worked by hand: one partition divided into slot ranges,
// and four partitions of which only the first had to be divided.
func TestBucketsExamples(t *testing.T) {
	half := int32(Slots / 2)
	for name, c := range map[string]struct {
		partitions, initial int32
		want                [][]PartitionSlots // by bucket
	}{
		"1 partition, from 1 to 3 buckets": {1, 1, [][]PartitionSlots{
			{{0, 0, Slots / 4}}, {{0, half, Slots}}, {{0, Slots / 4, half}},
		}},
		"4 partitions, from 2 to 5 buckets": {4, 2, [][]PartitionSlots{
			{{0, 0, half}}, {{2, 0, Slots}}, {{1, 0, Slots}}, {{3, 0, Slots}}, {{0, half, Slots}},
		}},
		"3 partitions, 2 buckets: one and a half each": {3, 2, [][]PartitionSlots{
			{{0, 0, Slots}, {1, 0, half}}, {{1, half, Slots}, {2, 0, Slots}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := mustLine(t, c.partitions)
			b := mustBuckets(t, c.initial, int32(len(c.want)))
			for bucket, want := range c.want {
				got := l.AppendSlots(nil, b.Interval(int32(bucket), l), c.partitions)
				require.Equal(t, want, got, "bucket %d", bucket)
			}
		})
	}
}

func TestNewBucketsRefuses(t *testing.T) {
	for _, c := range [][2]int32{{0, 0}, {0, 1}, {-1, 5}, {4, 3}} {
		_, err := NewBuckets(c[0], c[1])
		require.Error(t, err, "%v", c)
	}
}

// modelBuckets grows buckets one split at a time and remembers where each stands, as
// the definition says it.
type modelBuckets struct {
	initial int64
	level   int
	next    int64 // the bucket to split
	stands  []struct {
		level int
		q     int64
	}
}

func newModelBuckets(initial int64) *modelBuckets {
	m := &modelBuckets{initial: initial}
	for q := range initial {
		m.stands = append(m.stands, struct {
			level int
			q     int64
		}{0, q})
	}
	return m
}

func (m *modelBuckets) add() (split int64) {
	split = m.next
	s := &m.stands[split]
	s.level, s.q = s.level+1, 2*s.q
	m.stands = append(m.stands, struct {
		level int
		q     int64
	}{s.level, s.q + 1})
	if m.next++; m.next == m.initial<<m.level {
		m.level, m.next = m.level+1, 0
	}
	return split
}

func (m *modelBuckets) interval(bucket int, l Line) Interval {
	s := m.stands[bucket]
	n := m.initial << s.level
	return Interval{s.q * l.Len() / n, (s.q + 1) * l.Len() / n}
}

// TestBucketsAgainstDefinition grows buckets step by step. At each count they stand
// where the definition puts them, partition the line exactly, and only the bucket that
// was split is not as before.
func TestBucketsAgainstDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := mustLine(t, rapid.Int32Range(1, 40).Draw(t, "partitions"))
		initial := rapid.Int32Range(1, 20).Draw(t, "initial")
		b, m := mustBuckets(t, initial, initial), newModelBuckets(int64(initial))
		before := intervals(t, b, l)
		for range rapid.IntRange(0, 60).Draw(t, "splits") {
			parent, added := b.Parent(b.Count()), b.Count()
			require.Equal(t, m.add(), int64(parent))
			b = b.Add()
			require.Equal(t, added+1, b.Count())
			require.Equal(t, parent, b.Parent(added))
			now := intervals(t, b, l)
			for bucket, i := range now {
				require.Equal(t, m.interval(bucket, l), i, "bucket %d of %d", bucket, b.Count())
				switch int32(bucket) {
				case parent:
					require.Equal(t, before[bucket].Start, i.Start)
				case added:
					require.Equal(t, Interval{now[parent].End, before[parent].End}, i)
				default:
					require.Equal(t, before[bucket], i, "bucket %d has nothing to do with the split", bucket)
				}
			}
			require.Equal(t, added, b.Remove().Count())
			before = now
		}
		require.Equal(t, initial, mustBuckets(t, initial, initial).Remove().Count())
	})
}

// intervals are those of all buckets, checked to cover the line exactly once, and to be
// found by At.
func intervals(t *rapid.T, b Buckets, l Line) []Interval {
	all := make([]Interval, b.Count())
	var covered int64
	for bucket := range all {
		i := b.Interval(int32(bucket), l)
		require.Positive(t, i.Len(), "bucket %d", bucket)
		covered += i.Len()
		for _, point := range []int64{i.Start, i.Start + i.Len()/2, i.End - 1} {
			require.Equal(t, int32(bucket), b.At(point, l), "point %d", point)
		}
		all[bucket] = i
	}
	// At found each at its first, middle and last point, so they do not overlap; with
	// the right total length they leave nothing out.
	require.Equal(t, l.Len(), covered)
	return all
}

// TestBucketsDownToASlot divides a line until buckets are single slots, and holds that
// this is where MaxBuckets stops.
func TestBucketsDownToASlot(t *testing.T) {
	for _, c := range []struct{ partitions, initial, limit int32 }{
		{1, 1, Slots}, {1, 3, 3 << 14}, {2, 3, 3 << 15}, {1, Slots, Slots}, {1, 40000, 40000},
	} {
		l := mustLine(t, c.partitions)
		require.Equal(t, c.limit, MaxBuckets(c.initial, l))
		b := mustBuckets(t, c.initial, c.limit)
		var covered int64
		for bucket := range b.Count() {
			i := b.Interval(bucket, l)
			if i.Len() < 1 || b.At(i.Start, l) != bucket {
				t.Fatalf("bucket %d of %v covers %v, whose start is of bucket %d", bucket, c, i, b.At(i.Start, l))
			}
			covered += i.Len()
		}
		require.Equal(t, l.Len(), covered)
		require.Zero(t, b.Add().Interval(0, l).Len(), "one more would leave bucket 0 empty")
	}
	require.Zero(t, MaxBuckets(Slots+1, mustLine(t, 1)))
	require.Equal(t, int32(1<<30), MaxBuckets(1, mustLine(t, 1<<31-1)), "bounded by the bucket number")
}

func BenchmarkBucketsAt(b *testing.B) {
	l, buckets := mustLine(b, 12), mustBuckets(b, 16, 100)
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		sink += uint64(buckets.At(i*7919%l.Len(), l))
	}
}
