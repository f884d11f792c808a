package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
)

// table writes rows in columns. Columns whose head begins with '>' are numbers and stand
// to the right.
type table struct {
	heads []string
	rows  [][]string
}

func newTable(heads ...string) *table { return &table{heads: heads} }

// add adds a row, one value for each head.
func (t *table) add(values ...any) {
	row := make([]string, len(values))
	for i, v := range values {
		if n, ok := v.(int64); ok {
			row[i] = humanize.Comma(n)
			continue
		}
		row[i] = fmt.Sprint(v)
	}
	t.rows = append(t.rows, row)
}

// write writes the heads and the rows.
func (t *table) write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	numbers := make([]int, len(t.heads)) // widths of the columns of numbers
	heads := make([]string, len(t.heads))
	for i, head := range t.heads {
		name, number := strings.CutPrefix(head, ">")
		heads[i] = name
		if number {
			numbers[i] = len(name)
			for _, row := range t.rows {
				numbers[i] = max(numbers[i], len(row[i]))
			}
		}
	}
	line := func(cells []string) {
		padded := make([]string, len(cells))
		for i, cell := range cells {
			padded[i] = fmt.Sprintf("%*s", numbers[i], cell)
		}
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(padded, "\t"), " \t"))
	}
	line(heads)
	for _, row := range t.rows {
		line(row)
	}
	return tw.Flush()
}

// writeJSON writes one value as one line.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// plural is "1 gap" or "3 gaps".
func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return humanize.Comma(n) + " " + many
}
