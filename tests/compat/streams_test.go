package compat

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestStreams runs Kafka Streams' own smoke test: two instances of an application count,
// sum, join and group what a driver writes, and the driver verifies the results.
func TestStreams(t *testing.T) {
	if os.Getenv("LACUNA_COMPAT") != "all" {
		t.Skip("slow, and TestStreamsOutliveKills shows more: runs with LACUNA_COMPAT=all")
	}
	for _, guarantee := range []string{"exactly_once_v2", "at_least_once"} {
		t.Run("guarantee="+guarantee, func(t *testing.T) {
			s := newStreamsRun(t, guarantee)
			s.drive(5, 200, 10*time.Second)
			s.work("first")
			s.work("second")
			s.awaitVerified()
			s.stop()
		})
	}
}

// TestStreamsOutliveKills kills the instances of an application that has to do everything
// exactly once, and the broker under it, again and again while it works. The driver
// verifies its results, and each input is in the output once.
func TestStreamsOutliveKills(t *testing.T) {
	t.Parallel() // beside other people's suites: it waits most of the time
	s := newStreamsRun(t, "exactly_once_v2")
	if s.b.crash == nil {
		t.Skip("the broker is somebody else's")
	}
	const keys, records = 10, 800
	s.drive(keys, records, 20*time.Second)
	s.work("first")
	s.work("second")
	for i, kill := range []struct {
		name string
		do   func()
	}{
		{"an instance", func() { s.kill("first"); s.work("first") }},
		{"the broker", s.crashBroker},
		{"an instance and the broker", func() { s.kill("second"); s.crashBroker(); s.work("second") }},
		{"both instances", func() { s.kill("first"); s.kill("second"); s.work("first"); s.work("second") }},
	} {
		s.awaitWorking((i + 1) * 1000)
		t.Logf("killing %s", kill.name)
		kill.do()
	}
	s.awaitVerified()
	s.stop()
	s.requireEachOnce("echo", keys, records)
	s.requireNothingOpen()
}

// A streamsRun is a run of the smoke test.
type streamsRun struct {
	t         *testing.T
	b         broker
	guarantee string
	folder    string        // of the instances' state and of what all of them print
	changed   chan struct{} // of capacity 1: one of the processes has told something
	verified  chan error    // the driver's end

	workers map[string]streamsWorker
	mu      struct {
		sync.Mutex
		produced int             // records that the driver has written
		working  map[string]bool // the instances that have their share of the work
		wrong    []string        // what they say of their failures
	}
}

type streamsWorker struct {
	cancel context.CancelCauseFunc
	done   chan error
}

// newStreamsRun starts a broker for a run of the smoke test.
func newStreamsRun(t *testing.T, guarantee string) *streamsRun {
	requireTool(t, filepath.Join(smokeDir(), "Smoke.class"))
	s := &streamsRun{t: t, b: freshBroker(t, options{}), guarantee: guarantee, changed: make(chan struct{}, 1), workers: map[string]streamsWorker{}}
	s.mu.working = map[string]bool{}
	var err error
	s.folder, err = os.MkdirTemp("", "lacuna-streams-")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what the processes said is in %s", s.folder)
			return
		}
		os.RemoveAll(s.folder)
	})
	return s
}

// smokeDir is where setup.sh puts java/Smoke.java, compiled, and its jars.
func smokeDir() string { return filepath.Join(cacheDir, "streams") }

// run runs a part of the smoke test, hands its lines on and keeps them in a file.
func (s *streamsRun) run(ctx context.Context, name string, line func(string), args ...string) error {
	log, err := os.OpenFile(filepath.Join(s.folder, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	jvm := []string{"-Xmx400m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", smokeDir() + ":" + filepath.Join(smokeDir(), "libs", "*"), "Smoke"}
	return run(ctx, nil, func(text []byte) error {
		line(string(text))
		_, err := fmt.Fprintf(log, "%s\n", text)
		return err
	}, "java", append(jvm, args...)...)
}

// change changes what is known, and wakes who waits for it.
func (s *streamsRun) change(do func()) {
	s.mu.Lock()
	do()
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

var recordsProduced = regexp.MustCompile(`(\d+) records produced$`)

// drive begins to write as many records of as many keys over about that time, and returns
// when the topics are there.
func (s *streamsRun) drive(keys, records int, over time.Duration) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	s.t.Cleanup(cancel)
	s.verified = make(chan error, 1)
	created := make(chan struct{})
	go func() {
		s.verified <- s.run(ctx, "driver", func(line string) {
			if line == "topics created" {
				close(created)
			}
			if m := recordsProduced.FindStringSubmatch(line); m != nil {
				s.change(func() { s.mu.produced, _ = strconv.Atoi(m[1]) })
			}
		}, "drive", s.b.addr, s.guarantee, strconv.Itoa(keys), strconv.Itoa(records), strconv.Itoa(int(over.Seconds())))
	}()
	select {
	case <-created:
	case err := <-s.verified:
		require.NoError(s.t, err, "the driver ended before it had begun")
	}
}

// work starts an instance of the application, on the state that one of its name has left.
func (s *streamsRun) work(name string) {
	ctx, cancel := context.WithCancelCause(context.Background())
	w := streamsWorker{cancel: cancel, done: make(chan error, 1)}
	s.workers[name] = w
	s.t.Cleanup(func() { cancel(errKilled) })
	go func() {
		w.done <- s.run(ctx, name, func(line string) {
			switch {
			case strings.HasSuffix(line, ": SMOKE-TEST-CLIENT-STARTED"):
				s.change(func() { s.mu.working[name] = true })
			case strings.Contains(line, "SMOKE-TEST-CLIENT-EXCEPTION"):
				s.change(func() { s.mu.wrong = append(s.mu.wrong, line) })
			}
		}, "work", s.b.addr, s.guarantee, name, filepath.Join(s.folder, name))
	}()
}

// kill kills an instance.
func (s *streamsRun) kill(name string) {
	w := s.workers[name]
	w.cancel(errKilled)
	<-w.done
	s.change(func() { delete(s.mu.working, name) })
}

func (s *streamsRun) crashBroker() {
	s.t.Helper()
	require.NoError(s.t, s.b.crash())
}

// awaitWorking waits until the driver has written so many records and both instances work.
func (s *streamsRun) awaitWorking(produced int) {
	s.t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		s.mu.Lock()
		reached := s.mu.produced >= produced && len(s.mu.working) == 2
		state := fmt.Sprintf("%d records produced, at work: %v", s.mu.produced, s.mu.working)
		wrong := s.mu.wrong
		s.mu.Unlock()
		require.Empty(s.t, wrong)
		if reached {
			return
		}
		select {
		case <-s.changed:
		case <-deadline:
			require.Fail(s.t, "they do not get on", state)
		}
	}
}

// awaitVerified waits until the driver has seen that all results are right.
func (s *streamsRun) awaitVerified() {
	s.t.Helper()
	require.NoError(s.t, <-s.verified, "the driver did not verify the results")
}

// stop lets the instances close, and holds that none has failed.
func (s *streamsRun) stop() {
	s.t.Helper()
	for _, w := range s.workers {
		w.cancel(nil)
	}
	for _, w := range s.workers {
		<-w.done
	}
	require.Empty(s.t, s.mu.wrong)
}

// requireEachOnce holds that a topic has each input of the smoke test once: for each key
// "i-j" the values from i to j.
func (s *streamsRun) requireEachOnce(topic string, keys, records int) {
	s.t.Helper()
	times := map[string]int{}
	for _, r := range s.b.committed(s.t, topic) {
		times[fmt.Sprintf("%s: %d", r.Key, binary.BigEndian.Uint32(r.Value))]++
	}
	for i := range keys {
		for value := i; value < i+records; value++ {
			times[fmt.Sprintf("%d-%d: %d", i, i+records-1, value)]--
		}
	}
	maps.DeleteFunc(times, func(_ string, n int) bool { return n == 0 })
	require.Empty(s.t, times, "how often too often or, if below 0, too seldom")
}

// requireNothingOpen holds that no transaction is left: neither the coordinator nor a
// partition waits for an end.
func (s *streamsRun) requireNothingOpen() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	admin := s.b.admin(s.t)
	listed, err := admin.ListTransactions(ctx, nil, nil)
	require.NoError(s.t, err)
	require.NotEmpty(s.t, listed)
	for _, transaction := range listed {
		assert.Contains(s.t, []string{"CompleteCommit", "CompleteAbort", "Empty"}, transaction.State, "transaction %s", transaction.TxnID)
	}
	stable, err := admin.ListCommittedOffsets(ctx)
	require.NoError(s.t, err)
	ends, err := admin.ListEndOffsets(ctx)
	require.NoError(s.t, err)
	ends.Each(func(end kadm.ListedOffset) {
		lso, ok := stable.Lookup(end.Topic, end.Partition)
		assert.True(s.t, ok)
		assert.Equal(s.t, end.Offset, lso.Offset, "%s-%d: the last stable offset is behind the end", end.Topic, end.Partition)
	})
}

// committed reads all of a topic as a reader of what is committed sees it.
func (b broker) committed(t *testing.T, topic string) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ends, err := b.admin(t).ListCommittedOffsets(ctx, topic)
	require.NoError(t, err)
	left := 0
	ends.Each(func(end kadm.ListedOffset) { left += int(end.Offset) })
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	require.NoError(t, err)
	defer client.Close()
	var records []*kgo.Record
	next := map[int32]int64{} // the end is a record or a marker, so that it is met
	for left > 0 {
		fetches := client.PollFetches(ctx)
		require.NoError(t, fetches.Err(), "%d offsets of %s are not read", left, topic)
		fetches.EachRecord(func(r *kgo.Record) {
			left -= int(r.Offset + 1 - next[r.Partition])
			next[r.Partition] = r.Offset + 1
			if !r.Attrs.IsControl() {
				records = append(records, r)
			}
		})
	}
	return records
}
