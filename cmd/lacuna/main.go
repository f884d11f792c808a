package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes, besides 0.
const (
	exitFailed = 1 // it was tried and did not work
	exitUsage  = 2 // the command line or the configuration is wrong
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal kills at once: whoever repeats it does not want to wait.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], standardStreams()))
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, s streams) int {
	root := rootCommand(s)
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if !errors.As(err, new(silentError)) {
		fmt.Fprintf(s.err, "lacuna: %v\n", err)
	}
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailed
}

// streams are the standard streams, and what is known of the terminal behind them.
type streams struct {
	in       io.Reader
	out, err io.Writer
	// outWidth is the width of the terminal in columns, 0 if out is none; errTerminal
	// tells whether a person watches err.
	outWidth    int
	inTerminal  bool
	errTerminal bool
}

// usageError is a mistake in the command line or the configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// silentError ends the command with an error that was already said.
type silentError struct{ error }
