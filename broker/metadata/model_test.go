package metadata

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// checkInvariants checks that the parts of an image agree.
func (i *Image) checkInvariants(t require.TestingT) {
	require.Len(t, i.ids, len(i.sorted))
	require.Len(t, i.collisions, len(i.sorted))
	for at, topic := range i.sorted {
		require.True(t, at == 0 || i.sorted[at-1].Name < topic.Name)
		require.Same(t, topic, i.ids[topic.ID])
		require.Equal(t, topic.Name, i.collisions[collisionKey(topic.Name)])
	}
	for _, config := range i.configs {
		require.NotEmpty(t, config)
	}
}

// rebuild makes an image of records.
func rebuild(t require.TestingT, records []Record) *Image {
	d := NewDraft(NewImage())
	for _, r := range records {
		require.NoError(t, d.Apply(r.Key, r.Value))
	}
	return d.Image()
}

// compact keeps the last record of each key, like the cleaner of the log.
func compact(records []Record) []Record {
	last := map[string]int{}
	for i, r := range records {
		last[string(r.Key)] = i
	}
	var kept []Record
	for i, r := range records {
		if last[string(r.Key)] == i {
			kept = append(kept, r)
		}
	}
	return kept
}

// Whatever operations were done: the log, the compacted log, a snapshot with the rest of
// the log, and the live image are one and the same; older images never change.
func TestAnyHistoryReplays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		image, nextID := NewImage(), byte(0)
		var log []Record
		images, snapshots := []*Image{image}, [][]Record{image.Snapshot()}
		name := rapid.SampledFrom([]string{"a", "b", "a.b", "a_b", "c", "..", ""})
		config := rapid.MapOfN(rapid.SampledFrom([]string{"x", "y"}), rapid.SampledFrom([]string{"1", "2"}), 0, 2)
		topicID := rapid.Custom(func(t *rapid.T) TopicID { return id(rapid.ByteRange(0, nextID+1).Draw(t, "id")) })
		resource := rapid.Custom(func(t *rapid.T) Resource {
			return Resource{rapid.SampledFrom([]Kind{Broker, Group, ClientMetrics}).Draw(t, "kind"), rapid.SampledFrom([]string{"", "1"}).Draw(t, "name")}
		})
		operations := []func() ([]Record, error){
			func() ([]Record, error) {
				nextID++
				return image.CreateTopic(&Topic{Name: name.Draw(t, "topic"), ID: id(nextID), Partitions: rapid.Int32Range(0, 5).Draw(t, "n"),
					Internal: rapid.Bool().Draw(t, "internal"), Config: config.Draw(t, "config")})
			},
			func() ([]Record, error) { return image.DeleteTopic(topicID.Draw(t, "topic")) },
			func() ([]Record, error) {
				return image.AddPartitions(topicID.Draw(t, "topic"), rapid.Int32Range(0, 9).Draw(t, "n"))
			},
			func() ([]Record, error) {
				return image.SetTopicConfig(topicID.Draw(t, "topic"), config.Draw(t, "config"))
			},
			func() ([]Record, error) {
				return image.SetConfig(resource.Draw(t, "resource"), config.Draw(t, "config")), nil
			},
			func() ([]Record, error) {
				return must2(image.ReserveProducerIDs(rapid.Int64Range(1, 5).Draw(t, "n"))), nil
			},
			func() ([]Record, error) { return image.SetFeature("f", rapid.Int16Range(0, 3).Draw(t, "level")), nil },
		}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			records, err := rapid.SampledFrom(operations).Draw(t, "operation")()
			if err != nil {
				require.Empty(t, records)
				continue
			}
			log = append(log, records...)
			image = with(t, image, records, nil)
			image.checkInvariants(t)
			images, snapshots = append(images, image), append(snapshots, image.Snapshot())
		}
		require.Equal(t, image.Snapshot(), rebuild(t, log).Snapshot(), "replay")
		require.Equal(t, image.Snapshot(), rebuild(t, image.Snapshot()).Snapshot(), "snapshot")
		cleaned := rapid.IntRange(0, len(log)).Draw(t, "cleaned")
		require.Equal(t, image.Snapshot(), rebuild(t, append(compact(log[:cleaned]), log[cleaned:]...)).Snapshot(), "cleaned")
		for i := range images {
			require.Equal(t, snapshots[i], images[i].Snapshot(), "image %d changed", i)
		}
	})
}

func FuzzApply(f *testing.F) {
	image := create(f, NewImage(), Topic{Name: "t", ID: id(1), Partitions: 1, Config: map[string]string{"a": "1"}})
	for _, r := range with(f, image, image.SetConfig(Resource{Broker, "1"}, map[string]string{"a": "1"}), nil).Snapshot() {
		f.Add(r.Key, r.Value)
	}
	f.Add([]byte("producer-ids"), []byte(`{"v":1,"next":5}`))
	f.Add([]byte("feature/f"), []byte(`{"v":1,"level":5}`))
	f.Add([]byte("feature/f"), []byte(`{"v":2}`))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		d := NewDraft(image)
		err := d.Apply(key, value)
		got := d.Image()
		got.checkInvariants(t)
		if err != nil {
			require.ErrorIs(t, err, ErrBadRecord)
			require.Equal(t, image.Snapshot(), got.Snapshot())
		}
		require.Equal(t, got.Snapshot(), rebuild(t, got.Snapshot()).Snapshot())
	})
}

func BenchmarkLookup(b *testing.B) {
	d := NewDraft(NewImage())
	for i := range 10_000 {
		topic := &Topic{Name: fmt.Sprintf("topic-%05d", i), ID: TopicID{0: byte(i), 1: byte(i >> 8)}, Partitions: 1}
		r := putTopic(topic)
		require.NoError(b, d.Apply(r.Key, r.Value))
	}
	image := d.Image()
	b.Run("by=name", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			image.TopicByName("topic-07777")
		}
	})
	b.Run("by=id", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			image.TopicByID(TopicID{0: 7})
		}
	})
}
