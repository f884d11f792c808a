package main

import (
	"os"

	"golang.org/x/term"
)

// standardStreams are the process's own.
func standardStreams() streams {
	s := streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	s.inTerminal = term.IsTerminal(int(os.Stdin.Fd()))
	s.errTerminal = term.IsTerminal(int(os.Stderr.Fd()))
	if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
		s.outWidth = w
	}
	return s
}
