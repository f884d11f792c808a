package metadata

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// id makes an id that is easy to tell.
func id(n byte) TopicID { return TopicID{15: n} }

// with applies the records of one operation.
func with(t require.TestingT, image *Image, records []Record, err error) *Image {
	require.NoError(t, err)
	d := NewDraft(image)
	for _, r := range records {
		require.NoError(t, d.Apply(r.Key, r.Value))
	}
	return d.Image()
}

func create(t require.TestingT, image *Image, topic Topic) *Image {
	records, err := image.CreateTopic(&topic)
	return with(t, image, records, err)
}

func requireRefused(t *testing.T, kind error, message string, err error) {
	t.Helper()
	require.ErrorIs(t, err, kind)
	require.EqualError(t, err, message)
}

func TestTopicNames(t *testing.T) {
	for _, name := range []string{"a", "A.b_c-9", "...", "__consumer_offsets", strings.Repeat("x", 249)} {
		require.NoError(t, ValidateTopicName(name), name)
	}
	const others = "Topic name is invalid: '%' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
	for name, message := range map[string]string{
		"":                       "Topic name is invalid: the empty string is not allowed",
		".":                      "Topic name is invalid: '.' is not allowed",
		"..":                     "Topic name is invalid: '..' is not allowed",
		"a b":                    strings.Replace(others, "%", "a b", 1),
		"a/b":                    strings.Replace(others, "%", "a/b", 1),
		"ä":                      strings.Replace(others, "%", "ä", 1),
		"a\x00":                  strings.Replace(others, "%", "a\x00", 1),
		strings.Repeat("x", 250): "Topic name is invalid: the length of '" + strings.Repeat("x", 250) + "' is longer than the max allowed length 249",
	} {
		requireRefused(t, kerr.InvalidTopicException, message, ValidateTopicName(name))
	}
}

func TestTopicIDText(t *testing.T) {
	id := NewTopicID([16]byte{0xf8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
	text := id.String()
	require.Len(t, text, 22)
	require.NotEqual(t, byte('-'), text[0])
	parsed, err := ParseTopicID(text)
	require.NoError(t, err)
	require.Equal(t, id, parsed)
	for _, bad := range []string{"", text[:21], text + "A", strings.Replace(text, text[:1], "!", 1), text[:21] + "9"} {
		_, err := ParseTopicID(bad)
		require.Error(t, err, bad)
	}
}

func TestCreateTopic(t *testing.T) {
	empty := NewImage()
	image := create(t, empty, Topic{Name: "a.b", ID: id(1), Partitions: 3, Config: map[string]string{"retention.ms": "5"}})
	topic := image.TopicByName("a.b")
	require.Equal(t, &Topic{Name: "a.b", ID: id(1), Partitions: 3, Config: map[string]string{"retention.ms": "5"}}, topic)
	require.Same(t, topic, image.TopicByID(id(1)))
	require.Nil(t, empty.TopicByName("a.b"), "an image never changes")

	for _, c := range []struct {
		topic   Topic
		kind    error
		message string
	}{
		{Topic{Name: "a.b", ID: id(2), Partitions: 1}, kerr.TopicAlreadyExists, "Topic 'a.b' already exists."},
		{Topic{Name: "a_b", ID: id(2), Partitions: 1}, kerr.InvalidTopicException, "Topic 'a_b' collides with existing topic: a.b"},
		{Topic{Name: "x", ID: id(2)}, kerr.InvalidPartitions, "Number of partitions was set to an invalid non-positive value."},
		{Topic{Name: "x", ID: id(2), Partitions: MaxPartitions + 1}, kerr.InvalidPartitions,
			"Topic 'x' cannot have 100001 partitions, at most 100000 are allowed."},
		{Topic{Name: "__cluster_metadata", ID: id(2), Partitions: 1}, kerr.InvalidRequest,
			"Creation of internal topic __cluster_metadata is prohibited."},
		{Topic{Name: "..", ID: id(2), Partitions: 1}, kerr.InvalidTopicException, "Topic name is invalid: '..' is not allowed"},
	} {
		_, err := image.CreateTopic(&c.topic)
		requireRefused(t, c.kind, c.message, err)
	}
	_, err := image.CreateTopic(&Topic{Name: "x", ID: id(1), Partitions: 1})
	require.Error(t, err, "an id belongs to one topic")
	_, err = image.CreateTopic(&Topic{Name: "x", Partitions: 1})
	require.Error(t, err, "the zero id is none")
}

func TestTopicMadeAnewSharesNothing(t *testing.T) {
	image := create(t, NewImage(), Topic{Name: "t", ID: id(1), Partitions: 3, Config: map[string]string{"a": "1"}})
	records, err := image.DeleteTopic(id(1))
	image = with(t, image, records, err)
	require.Nil(t, image.TopicByName("t"))
	require.Nil(t, image.TopicByID(id(1)))
	image = create(t, image, Topic{Name: "t", ID: id(2), Partitions: 1})
	require.Equal(t, &Topic{Name: "t", ID: id(2), Partitions: 1}, image.TopicByName("t"))
	_, err = image.DeleteTopic(id(1))
	requireRefused(t, kerr.UnknownTopicID, "This server does not host topic ID AAAAAAAAAAAAAAAAAAAAAQ.", err)
	create(t, with(t, image, must(image.DeleteTopic(id(2))), nil), Topic{Name: "t", ID: id(3), Partitions: 1})
}

func must(records []Record, err error) []Record {
	if err != nil {
		panic(err)
	}
	return records
}

func TestAddPartitions(t *testing.T) {
	config := map[string]string{"a": "1"}
	image := create(t, NewImage(), Topic{Name: "t", ID: id(1), Partitions: 3, Config: config})
	grown := with(t, image, must(image.AddPartitions(id(1), 5)), nil)
	require.Equal(t, &Topic{Name: "t", ID: id(1), Partitions: 5, Config: config}, grown.TopicByName("t"))
	require.EqualValues(t, 3, image.TopicByName("t").Partitions)
	_, err := grown.AddPartitions(id(1), 5)
	requireRefused(t, kerr.InvalidPartitions, "Topic already has 5 partition(s).", err)
	_, err = grown.AddPartitions(id(1), 4)
	requireRefused(t, kerr.InvalidPartitions, "The topic t currently has 5 partition(s); 4 would not be an increase.", err)
	_, err = grown.AddPartitions(id(1), MaxPartitions+1)
	require.ErrorIs(t, err, kerr.InvalidPartitions)
	_, err = grown.AddPartitions(id(9), 8)
	require.ErrorIs(t, err, kerr.UnknownTopicID)
}

func TestInternalTopicsStayAsTheyAre(t *testing.T) {
	image := create(t, NewImage(), Topic{Name: "__consumer_offsets", ID: id(1), Partitions: 50, Internal: true})
	_, err := image.DeleteTopic(id(1))
	require.ErrorIs(t, err, kerr.InvalidRequest)
	_, err = image.AddPartitions(id(1), 60)
	require.ErrorIs(t, err, kerr.InvalidRequest)
	with(t, image, must(image.SetTopicConfig(id(1), map[string]string{"segment.bytes": "1"})), nil)
}

func TestSettings(t *testing.T) {
	image := create(t, NewImage(), Topic{Name: "t", ID: id(1), Partitions: 1})
	config := map[string]string{"retention.ms": "1"}
	image = with(t, image, must(image.SetTopicConfig(id(1), config)), nil)
	require.Equal(t, config, image.TopicByName("t").Config)
	require.Empty(t, must(image.SetTopicConfig(id(1), config)), "nothing to log")

	for _, r := range []Resource{{Broker, ""}, {Broker, "1"}, {Group, "g/with/slashes"}, {Group, ""}, {ClientMetrics, "m"}} {
		set := with(t, image, image.SetConfig(r, config), nil)
		require.Equal(t, config, set.Config(r))
		require.Equal(t, []string{r.Name}, set.Configured(r.Kind))
		require.Empty(t, set.SetConfig(r, config), "nothing to log")
		require.Empty(t, image.Config(r))
		unset := with(t, set, set.SetConfig(r, nil), nil)
		require.Empty(t, unset.Config(r))
		require.Empty(t, unset.Configured(r.Kind))
	}
}

func TestProducerIDsAndFeatures(t *testing.T) {
	image := NewImage()
	first, records := image.ReserveProducerIDs(1000)
	require.Zero(t, first)
	image = with(t, image, records, nil)
	first, _ = image.ReserveProducerIDs(1000)
	require.EqualValues(t, 1000, first)

	image = with(t, image, image.SetFeature("group.version", 1), nil)
	require.Equal(t, map[string]int16{"group.version": 1}, image.Features())
	require.Empty(t, image.SetFeature("group.version", 1))
	image = with(t, image, image.SetFeature("group.version", 0), nil)
	require.Empty(t, image.Features())
}

func TestTopicsAreSorted(t *testing.T) {
	image := NewImage()
	for i, name := range []string{"m", "b", "z", "a"} {
		image = create(t, image, Topic{Name: name, ID: id(byte(i + 1)), Partitions: 1})
	}
	names := func(from string) (names []string) {
		for topic := range image.TopicsFrom(from) {
			names = append(names, topic.Name)
		}
		return names
	}
	require.Equal(t, []string{"a", "b", "m", "z"}, names(""))
	require.Equal(t, []string{"m", "z"}, names("c"))
	require.Equal(t, []string{"m", "z"}, names("m"))
	require.Empty(t, names("zz"))
	require.Equal(t, 4, image.TopicCount())
}

func TestBadRecordsAreRefused(t *testing.T) {
	image := create(t, NewImage(), Topic{Name: "t", ID: id(1), Partitions: 1})
	image = with(t, image, must2(image.ReserveProducerIDs(10)), nil)
	key := "topic/" + id(2).String()
	topic := func(name, idText, partitions string) string {
		return `{"v":1,"owner_epoch":0,"name":"` + name + `","id":"` + idText + `","partitions":` + partitions + `}`
	}
	for _, r := range [][2]string{
		{"topic/short", topic("x", id(2).String(), "1")},
		{key, `{`}, {key, `{"v":1}`}, {key, `{"name":"x"}`}, {key, `[]`}, {key, ``},
		{key, topic("x", id(3).String(), "1")},
		{key, topic("..", id(2).String(), "1")},
		{key, topic("x", id(2).String(), "0")},
		{key, topic("x", id(2).String(), "99999999999")},
		{key, topic("t", id(2).String(), "1")},
		{"producer-ids", `{"v":1,"next":9}`}, {"producer-ids", "null"},
		{"broker/1", `{"v":1,"config":[]}`}, {"feature/f", `{"v":0,"level":1}`},
	} {
		d := NewDraft(image)
		require.ErrorIs(t, d.Apply([]byte(r[0]), []byte(r[1])), ErrBadRecord, "%s %s", r[0], r[1])
		require.Equal(t, image.Snapshot(), d.Image().Snapshot(), "the draft is as it was")
	}
	require.ErrorIs(t, NewDraft(image).Apply([]byte("producer-ids"), nil), ErrBadRecord)
}

func must2(_ int64, records []Record) []Record { return records }

func TestLaterRecordsAreKept(t *testing.T) {
	image := create(t, NewImage(), Topic{Name: "t", ID: id(1), Partitions: 1})
	d := NewDraft(image)
	later := []Record{
		{[]byte("acl/1"), []byte("anything")},
		{[]byte("broker/1"), []byte(`{"v":2,"shape":"new"}`)},
	}
	for _, r := range later {
		require.NoError(t, d.Apply(r.Key, r.Value))
	}
	image = d.Image()
	require.Subset(t, image.Snapshot(), later)
	d = NewDraft(image)
	require.NoError(t, d.Apply([]byte("acl/1"), nil))
	require.NoError(t, d.Apply([]byte("broker/1"), []byte(`{"v":1,"config":{"a":"b"}}`)))
	image = d.Image()
	require.Len(t, image.Snapshot(), 2)
	require.Equal(t, map[string]string{"a": "b"}, image.Config(Resource{Broker, "1"}))
}

// The format is what a person reads in the log, and what a later version must read.
func TestRecordFormat(t *testing.T) {
	image := create(t, NewImage(), Topic{Name: "orders", ID: id(1), Partitions: 3, Config: map[string]string{"retention.ms": "5"}})
	image = with(t, image, image.SetConfig(Resource{Group, "g"}, map[string]string{"share.auto.offset.reset": "earliest"}), nil)
	image = with(t, image, image.SetFeature("group.version", 1), nil)
	image = with(t, image, must2(image.ReserveProducerIDs(1000)), nil)
	var lines []string
	for _, r := range image.Snapshot() {
		lines = append(lines, string(r.Key)+" "+string(r.Value))
	}
	require.Equal(t, []string{
		`feature/group.version {"v":1,"owner_epoch":0,"level":1}`,
		`group/g {"v":1,"owner_epoch":0,"config":{"share.auto.offset.reset":"earliest"}}`,
		`producer-ids {"v":1,"owner_epoch":0,"next":1000}`,
		`topic/AAAAAAAAAAAAAAAAAAAAAQ {"v":1,"owner_epoch":0,"name":"orders","id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":3,"config":{"retention.ms":"5"}}`,
	}, lines)
}
