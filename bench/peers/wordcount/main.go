// Wordcount measures stream processors on one job beside one another: a count for each word
// in a persistent store, and each new count to a topic. The broker is Lacuna for all.
//
//	wordcount run   [-jobs lacuna,streams,...] [-n WORDS] [-parts P] [-turns T] [-out FILE]
//	wordcount table FILE...                  the medians of what several runs have appended to -out
//	wordcount job   -b ADDR -dir DIR [-eo]   Lacuna's processor; WordCount.java is Kafka Streams'
//
// In a turn of a job the broker starts on an empty directory and the input is written: words
// of the Go toolchain's own sources, keyed by themselves, so that no job has to divide them.
// The job runs to the end of it and closes. Then its state is deleted, some more words
// come, and the job starts again: what it says of these shows that its state is complete.
// All counts are compared with those that were made while the input was written.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	commands := map[string]func(ctx context.Context, args []string) error{"run": runCommand, "table": tableCommand, "job": jobCommand}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "wordcount run|table|job ...")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := commands[os.Args[1]](ctx, os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "wordcount %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}
