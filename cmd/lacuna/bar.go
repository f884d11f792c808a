package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
)

// bar shows the progress of long work on a terminal. A nil bar shows nothing.
type bar struct{ b *progressbar.ProgressBar }

// barPause keeps short work from flashing a bar.
const barPause = 200 * time.Millisecond

// newBar counts to total, in bytes or in records; a total of -1 is unknown. It is nil if
// nobody watches.
func (c *cli) newBar(what string, total int64, inBytes, quiet bool) *bar {
	if quiet || !c.errTerminal {
		return nil
	}
	return &bar{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(c.err),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(inBytes),
		progressbar.OptionShowCount(),
		progressbar.OptionThrottle(barPause),
		progressbar.OptionSetWidth(30),
		progressbar.OptionClearOnFinish(),
	)}
}

func (b *bar) add(n int) {
	if b != nil {
		// It only fails where the terminal is gone, and then nobody misses it.
		_ = b.b.Add(n)
	}
}

// set is add for who knows how far it is.
func (b *bar) set(n int64) {
	if b != nil {
		_ = b.b.Set64(max(n, 0))
	}
}

// finish takes the bar away.
func (b *bar) finish() {
	if b != nil {
		_ = b.b.Finish()
	}
}

// inputSize is how many bytes in will give, -1 if that is not known.
func inputSize(in io.Reader) int64 {
	f, ok := in.(*os.File)
	if !ok {
		return -1
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return -1
	}
	return info.Size()
}
