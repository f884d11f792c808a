package compat

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A suite is somebody else's tests: suites/NAME.sh runs them, expected/NAME.txt lists
// those that pass.
type suite struct {
	name string
	// broker is how the suite wants its broker.
	broker options
	// env is what the script is told of the broker.
	env []string
	// slow suites run only with LACUNA_COMPAT=all.
	slow bool
	// clientsFault tells, by the suite's log, whether a test failed by a fault of its own client
	// that comes and goes. nil: nobody knows of one.
	clientsFault func(log, test string) bool
}

var suites = []suite{
	{name: "sarama", broker: options{advertise: "127.0.0.1:29091"}},
	{name: "cli", env: []string{"ACLS=" + acls(), "NODE_ID=1"}},
	{name: "kgo"},
	{name: "kafka-python", broker: options{settings: map[string]string{"node.id": "0"}}, clientsFault: neverAskedForTopic},
	{name: "confluent-python"},
	{name: "librdkafka", broker: options{acceptReplication: true}, slow: true},
}

// acls says to the command-line tools whether the broker has an authorizer.
func acls() string {
	if os.Getenv("PEER") == "kafka" {
		return "true"
	}
	return "false"
}

// TestSuites runs other people's tests, as many suites at a time as there are processors:
// they wait more than they work. Each test that is expected to pass is a subtest. With
// LACUNA_COMPAT=all the others run too, and one that passes is told of.
func TestSuites(t *testing.T) {
	t.Parallel()
	all := os.Getenv("LACUNA_COMPAT") == "all"
	for _, s := range suites {
		t.Run("suite="+s.name, func(t *testing.T) {
			if s.slow && !all {
				t.Skip("slow: runs with LACUNA_COMPAT=all")
			}
			t.Parallel()
			list, err := filepath.Abs(filepath.Join("expected", s.name+".txt"))
			require.NoError(t, err)
			expected := readNames(t, list)
			if all {
				list = ""
			}
			results, logs := s.run(t, list)
			s.runAgain(t, logs, expected, results)
			for _, name := range expected {
				t.Run(name, func(t *testing.T) {
					if r := results[name]; r.outcome != "pass" {
						t.Errorf("%s did not pass: %q %s", name, r.outcome, r.detail)
					}
				})
			}
			for name, r := range results {
				if r.outcome == "pass" && !slices.Contains(expected, name) {
					t.Logf("%s passes and is not expected to: add it to expected/%s.txt", name, s.name)
				}
			}
		})
	}
}

// readNames reads a list of tests: one a line, # begins a comment.
func readNames(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var names []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			names = append(names, line)
		}
	}
	return names
}

// A result is what became of one test of a suite.
type result struct {
	outcome string // pass, fail or skip
	detail  string
}

// run runs the suite's script against a fresh broker; list is a file with the tests to
// run, all without it. Its logs stay when something failed.
func (s suite) run(t *testing.T, list string) (results map[string]result, logs string) {
	t.Helper()
	logs, err := os.MkdirTemp("", "lacuna-suite-"+s.name+"-")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the logs of %s are in %s", s.name, logs)
			return
		}
		os.RemoveAll(logs)
	})
	b := freshBroker(t, s.broker)
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	results = map[string]result{}
	command := exec.CommandContext(ctx, "suites/"+s.name+".sh", logs, list)
	command.Env = append(os.Environ(), append(s.env, "BROKER="+b.addr, "LACUNA_CACHE="+cacheDir)...)
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.Output()
	require.NoError(t, err, "%s", tail(said.Bytes()))
	for line := range strings.Lines(string(out)) {
		outcome, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, detail, _ := strings.Cut(rest, " ")
		results[name] = result{outcome: outcome, detail: detail}
	}
	require.NotEmpty(t, results, "the suite ran no test: %s", tail(said.Bytes()))
	return results, logs
}
