package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// measurement is how jobs are measured.
type measurement struct {
	broker  string // Lacuna's binary
	dir     string // for what broker and job store, emptied for each turn
	fsync   string
	parts   int32
	threads int
	limit   time.Duration // of a turn
	// java is how the JVM is called, without the class.
	java    []string
	profile string
}

// job is one of the programs that do the job.
type job struct {
	name    string
	command func(m *measurement, broker string) []string
	// each: the job tells of each count once and in order, since nothing fails.
	each bool
}

// jobs are all there are.
func jobs() []job {
	return []job{
		{"lacuna", lacuna(), true},
		{"lacuna-eo", lacuna("-eo"), true},
		{"lacuna-log", lacuna("-changelog", "wordcount-changelog"), true},
		{"lacuna-log-eo", lacuna("-changelog", "wordcount-changelog", "-eo"), true},
		{"streams", streams("at_least_once", 0, 0), true},
		{"streams-100ms", streams("at_least_once", 100, 0), true},
		{"streams-eo", streams("exactly_once_v2", 0, 0), true},
		{"streams-cache", streams("at_least_once", 0, 10<<20), false},
	}
}

// lacuna is this program's own job.
func lacuna(args ...string) func(*measurement, string) []string {
	return func(m *measurement, broker string) []string {
		command := append([]string{os.Args[0], "job", "-b", broker, "-dir", m.stateDir(), "-threads", strconv.Itoa(m.threads)}, args...)
		if m.profile != "" {
			command = append(command, "-cpuprofile", m.profile+"-"+time.Now().Format("150405.000")+".prof")
		}
		return command
	}
}

// streams is Kafka Streams; a commit interval of 0 ms is its default, 30 s, and 100 ms with
// exactly once.
func streams(guarantee string, commitMs, cacheBytes int) func(*measurement, string) []string {
	return func(m *measurement, broker string) []string {
		return append(slices.Clone(m.java), "WordCount", broker, m.stateDir(), strconv.Itoa(m.threads),
			guarantee, strconv.Itoa(commitMs), strconv.Itoa(cacheBytes))
	}
}

// runCommand measures jobs, which take turns.
func runCommand(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("run", flag.ExitOnError)
	var m measurement
	fs.StringVar(&m.broker, "lacuna", "bin/lacuna", "Lacuna's binary, the broker")
	fs.StringVar(&m.dir, "data", "data/wordcount", "directory that is emptied for each turn")
	fs.StringVar(&m.fsync, "fsync", "on", "the broker's --fsync")
	fs.IntVar(&m.threads, "threads", 1, "tasks of Lacuna's processor, threads of Kafka Streams")
	fs.DurationVar(&m.limit, "limit", 5*time.Minute, "longest time of a turn")
	fs.StringVar(&m.profile, "cpuprofile", "", "write CPU profiles of Lacuna's processor to files that begin like this")
	parts := fs.Int("parts", 1, "partitions of the topics")
	n := fs.Int("n", 1_000_000, "words")
	source := fs.String("src", "", "directory with Go files to take the words from; the toolchain's by default")
	names := fs.String("jobs", "lacuna,lacuna-eo", "which: lacuna, lacuna-eo, lacuna-log, lacuna-log-eo, streams, streams-100ms, streams-eo, streams-cache")
	turns := fs.Int("turns", 3, "turns of each job")
	java := fs.String("java", "java", "the JVM")
	classpath := fs.String("cp", "wordcount:data/kafka/libs/*", "classes of WordCount.java and Kafka Streams")
	out := fs.String("out", "", "append the results as JSON lines to this file")
	if err := fs.Parse(args); err != nil {
		return err
	}
	m.parts, m.java = int32(*parts), []string{*java, "-cp", *classpath}
	chosen, err := choose(*names)
	if err != nil {
		return err
	}
	if m.dir, err = filepath.Abs(m.dir); err != nil {
		return err
	}
	if *source == "" {
		if *source, err = toolchainSources(); err != nil {
			return err
		}
	}
	words, err := readWords(*source, *n)
	if err != nil {
		return err
	}
	var all []result
	for turn := range *turns {
		for _, j := range chosen {
			r, err := m.turn(ctx, j, words)
			if err != nil {
				return fmt.Errorf("turn %d of %s: %w", turn+1, j.name, err)
			}
			all = append(all, r)
			if err := keep(*out, r); err != nil {
				return err
			}
		}
	}
	printTable(os.Stdout, all)
	return nil
}

// choose finds jobs by their names.
func choose(names string) (chosen []job, err error) {
	all := jobs()
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(j job) bool { return j.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no job %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// keep prints a result as a line of JSON, and appends it to a file if one is named.
func keep(file string, r result) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return firstOf(err, f.Close())
}
