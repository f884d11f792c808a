package compat

import (
	"bytes"
	"errors"
	"fmt"
	"go/build"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// lineCount is how many lines each client writes and reads.
const lineCount = 200_000

var errEnough = errors.New("enough lines")

// sourceLines returns the first lines of the Go toolchain's own sources. Left out are
// lines that a line-oriented client cannot carry as they are: such with a carriage
// return, a NUL, or bytes that are not UTF-8, which Java's console producer replaces.
func sourceLines(t *testing.T) [][]byte {
	t.Helper()
	lines := make([][]byte, 0, lineCount)
	root := filepath.Join(build.Default.GOROOT, "src")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range bytes.SplitSeq(text, []byte("\n")) {
			if bytes.ContainsAny(line, "\r\x00") || !utf8.Valid(line) {
				continue
			}
			if lines = append(lines, line); len(lines) == lineCount {
				return errEnough
			}
		}
		return nil
	})
	require.ErrorIs(t, err, errEnough, "the sources in %s have too few lines", root)
	return lines
}

// A text is what one producer writes to one topic with one codec: the lines, each under a
// key that names the topic and the line's number.
type text struct {
	topic string
	codec string
	lines [][]byte
}

// keyed is the text as console clients take it: key, tab, line.
func (x text) keyed() []byte {
	var b []byte
	for i, line := range x.lines {
		b = append(x.appendKey(b, i), '\t')
		b = append(append(b, line...), '\n')
	}
	return b
}

func (x text) appendKey(b []byte, number int) []byte {
	b = append(append(b, x.topic...), ':')
	return strconv.AppendInt(b, int64(number), 10)
}

// An item is one record as a client read it. Its slices are the reader's.
type item struct {
	partition  int32
	offset     int64
	key, value []byte
}

// A reading checks what one client reads back of one text: the same bytes, in the order
// of writing within each partition, each line once.
type reading struct {
	text
	seen  []bool
	count int
	last  map[int32]position
}

// A position is the last record seen of a partition.
type position struct {
	offset int64
	number int
}

func newReading(x text) *reading {
	return &reading{text: x, seen: make([]bool, len(x.lines)), last: map[int32]position{}}
}

func (r *reading) add(it item) error {
	topic, digits, _ := bytes.Cut(it.key, []byte(":"))
	number, err := strconv.Atoi(string(digits))
	if string(topic) != r.topic || err != nil || number < 0 || number >= len(r.lines) {
		return fmt.Errorf("partition %d offset %d of %s has the key %q", it.partition, it.offset, r.topic, it.key)
	}
	if r.seen[number] {
		return fmt.Errorf("line %d of %s came twice, again at partition %d offset %d", number, r.topic, it.partition, it.offset)
	}
	if !bytes.Equal(it.value, r.lines[number]) {
		return fmt.Errorf("line %d of %s reads %q, was written as %q", number, r.topic, it.value, r.lines[number])
	}
	if last, ok := r.last[it.partition]; ok && (number <= last.number || it.offset <= last.offset) {
		return fmt.Errorf("partition %d of %s: line %d at offset %d after line %d at offset %d",
			it.partition, r.topic, number, it.offset, last.number, last.offset)
	}
	r.last[it.partition] = position{offset: it.offset, number: number}
	r.seen[number] = true
	r.count++
	return nil
}

// complete says whether each line came, and by as many partitions as the topic has.
func (r *reading) complete(partitions int) error {
	if r.count != len(r.lines) {
		return fmt.Errorf("%d of %d lines of %s came back", r.count, len(r.lines), r.topic)
	}
	if len(r.last) != partitions {
		return fmt.Errorf("the lines of %s lie in %d partitions, not in %d", r.topic, len(r.last), partitions)
	}
	return nil
}
