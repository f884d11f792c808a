package compat

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// runAgain runs those of the expected tests once more that failed by a fault of their own client,
// if the suite tells which those are, and takes in what became of them.
func (s suite) runAgain(t *testing.T, logs string, expected []string, results map[string]result) {
	t.Helper()
	if s.clientsFault == nil {
		return
	}
	said, err := os.ReadFile(filepath.Join(logs, s.name+".log"))
	require.NoError(t, err)
	var again []string
	for _, name := range expected {
		if results[name].outcome == "fail" && s.clientsFault(string(said), name) {
			t.Logf("%s failed by a fault of its client, once more: %s", name, results[name].detail)
			again = append(again, name)
		}
	}
	if len(again) == 0 {
		return
	}
	list := filepath.Join(t.TempDir(), "again.txt")
	require.NoError(t, os.WriteFile(list, []byte(strings.Join(again, "\n")+"\n"), 0o600))
	more, _ := s.run(t, list)
	for _, name := range again {
		results[name] = more[name]
	}
}

var (
	pythonThread  = regexp.MustCompile(` (\d+:\S*) +kafka\.(\S+) +(.*)`)
	asksForTopics = "MetadataRequest(topics=[MetadataRequestTopic("
	asksForNone   = "MetadataRequest(topics=[],"
)

// neverAskedForTopic tells whether a test of kafka-python failed since its consumer never
// asked for the topic that it subscribed to. If the subscription comes while the client's first
// metadata request is under way, the answer to that clears the mark that another one is wanted
// (kafka/cluster.py, _need_update).
func neverAskedForTopic(log, test string) bool {
	_, test, _ = strings.Cut(test, "::")
	_, section, found := strings.Cut(log, "_ "+test+" _")
	if !found {
		return false
	}
	if end := strings.Index(section, "\n____"); end >= 0 {
		section = section[:end]
	}
	consumers, asked, asleep := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	for line := range strings.Lines(section) {
		m := pythonThread.FindStringSubmatch(line)
		switch {
		case m == nil:
		case strings.HasPrefix(m[2], "consumer."):
			consumers[m[1]] = true
		case strings.Contains(m[3], asksForTopics):
			asked[m[1]] = true
		case strings.Contains(m[3], asksForNone):
			asleep[m[1]] = true
		}
	}
	for thread := range consumers {
		if asleep[thread] && !asked[thread] {
			return true
		}
	}
	return false
}

func TestNeverAskedForTopic(t *testing.T) {
	const consumer, producer = "14:13:00.870 DEBUG    1399:kafka-io-test_x ", "14:13:00.870 DEBUG    1400:kafka-io-p "
	none := "kafka.cluster           Sending metadata request " + asksForNone + " allow)\n"
	topic := "kafka.cluster           Sending metadata request " + asksForTopics + "name='x')])\n"
	assigned := "kafka.consumer.subscription_state Updated partition assignment: []\n"
	for log, want := range map[string]bool{
		"":                                 false,
		consumer + none + consumer + topic: false,
		consumer + none + consumer + assigned + producer + none + producer + topic: true,
		consumer + none + consumer + assigned + consumer + topic:                   false,
		producer + none + consumer + none + consumer + topic + consumer + assigned: false,
	} {
		require.Equal(t, want, neverAskedForTopic("____ test_x ____\n"+log+"\n____ test_y ____\n"+consumer+none+consumer+assigned, "f.py::test_x"), log)
	}
}
