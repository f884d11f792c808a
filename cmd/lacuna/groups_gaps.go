package main

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/client"
	"github.com/spf13/cobra"
)

// defaultWidth is how wide to draw where there is no terminal.
const defaultWidth = 80

func groupsGapsCommand(c *cli) *cobra.Command {
	var (
		flags ledgerFlags
		limit int
		ascii bool
		width int
	)
	cmd := &cobra.Command{
		Use:   "gaps GROUP",
		Short: "Draw what a group has committed and what it has left open",
		Long: `Draw each of a group's ledgers: the offsets from the stable to the max commit offset as a
bar, darker where more is committed, and list the first gaps. What open transactions hold is
marked and listed with the transaction. With --admin, of a share group the bar reaches up to
the last acquired record, and those are marked and listed too.`,
		Example: `  lacuna groups gaps billing
  lacuna groups gaps billing --admin 127.0.0.1:9093
  lacuna groups gaps billing -t orders -p 0 --limit 0 -o json`,
		Args: exactlyOne("group"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.ledgerAdmin()
			if err != nil {
				return err
			}
			defer a.Close()
			ledgers, err := c.describe(cmd, a, args[0], &flags)
			if err != nil {
				return err
			}
			style := blockShades
			if ascii {
				style = asciiShades
			}
			var status *broker.ShareGroupStatus
			if c.admin != "" {
				if status, err = c.shareStatus(cmd.Context(), args[0], &flags, 0); err != nil && !errors.Is(err, errNoShareGroup) {
					return err
				}
			}
			unstable, err := c.unstable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			for i := range ledgers {
				d := drawing{ledger: &ledgers[i], limit: limit, shades: style, width: c.drawWidth(width), unstable: unstable[ledgers[i].TopicPartition]}
				if status != nil {
					d.dealt = partitionStatus(status, ledgers[i].Topic, ledgers[i].Partition)
				}
				if err := d.read(cmd, c, a); err != nil {
					return err
				}
				if c.output == "json" {
					err = writeJSON(c.out, d.json())
				} else {
					_, err = fmt.Fprint(c.out, separator(i), d.text())
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	flags.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", 10, "list at most that many gaps, and acquired and pending runs, of each ledger (0: all)")
	cmd.Flags().BoolVar(&ascii, "ascii", false, "draw without block characters")
	cmd.Flags().IntVar(&width, "width", 0, "width of the bar (0: that of the terminal)")
	return cmd
}

func (c *cli) drawWidth(asked int) int {
	switch {
	case asked > 0:
		return asked
	case c.outWidth > 0:
		return c.outWidth
	}
	return defaultWidth
}

func separator(i int) string {
	if i == 0 {
		return ""
	}
	return "\n"
}

// drawing is one ledger as a picture and a list.
type drawing struct {
	ledger  *client.Ledger
	limit   int // gaps to list, 0: all
	shades  shades
	width   int
	dealt   *broker.SharePartitionStatus // nil: it is not known what is acquired
	pending pendingOf
	// unstable tells that an open transaction commits something, which pending may not
	// tell: it knows of ledgers only.
	unstable bool

	bar  *gapBar
	gaps []client.Run // the first ones
}

// read reads what is pending, and the gaps, of which only the first ones are kept.
func (d *drawing) read(cmd *cobra.Command, c *cli, a *client.Admin) (err error) {
	l := d.ledger
	if d.pending, err = c.pendingIn(cmd.Context(), a, l); err != nil && !errors.Is(err, client.ErrNoEcho) {
		return err
	}
	d.bar = newGapBar(max(l.Stable, 0), d.end(), d.width)
	if l.Err == nil {
		d.bar.addOpen(client.Run{Start: max(l.MaxCommit, 0), End: d.end()})
	}
	for _, h := range d.held() {
		d.bar.mark(client.Run{Start: h.First, End: h.Last + 1}, d.shades.acquired)
	}
	for _, r := range d.pending.runs {
		d.bar.mark(client.Run{Start: r.First, End: r.Last + 1}, d.shades.pending)
	}
	if l.Err != nil || l.Gaps == 0 {
		return nil
	}
	for gap, err := range a.Gaps(cmd.Context(), l.Group, l.Topic, l.Partition, l.Stable) {
		if err != nil {
			return err
		}
		d.bar.addOpen(gap)
		if d.limit == 0 || len(d.gaps) < d.limit {
			d.gaps = append(d.gaps, gap)
		}
	}
	return nil
}

// held are the acquired records, as far as they are known.
func (d *drawing) held() []broker.AcquiredRange {
	if d.dealt == nil {
		return nil
	}
	return d.dealt.Held
}

// end is where the window ends that is drawn.
func (d *drawing) end() int64 {
	end := max(d.ledger.MaxCommit, 0)
	if held := d.held(); len(held) > 0 {
		end = max(end, held[len(held)-1].Last+1)
	}
	for _, r := range d.pending.runs {
		end = max(end, r.Last+1)
	}
	return end
}

// text is the drawing for people.
func (d *drawing) text() string {
	l := d.ledger
	var b strings.Builder
	fmt.Fprintf(&b, "group %s, %v\n", l.Group, l.TopicPartition)
	switch {
	case l.Err != nil:
		fmt.Fprintf(&b, "  %v\n", l.Err)
		return b.String()
	case l.Stable < 0:
		fmt.Fprintf(&b, "  nothing is committed; %s in the log\n", plural(l.LogEnd-l.LogStart, "offset is", "offsets are"))
		return b.String()
	}
	if row := d.bar.draw(d.shades); row != "" {
		fmt.Fprintf(&b, "\n%s\n%s\n", d.scale(row), row)
		if marks := d.bar.drawMarks(d.shades); marks != "" {
			fmt.Fprintln(&b, marks)
		}
		fmt.Fprintln(&b, d.legend())
	}
	fmt.Fprintf(&b, "\n  stable offset      %15s   all below is committed\n", humanize.Comma(l.Stable))
	fmt.Fprintf(&b, "  max commit offset  %15s   nothing from here on is\n", humanize.Comma(l.MaxCommit))
	fmt.Fprintf(&b, "  log                %15s   to %s\n", humanize.Comma(l.LogStart), humanize.Comma(l.LogEnd))
	window := l.MaxCommit - l.Stable
	fmt.Fprintf(&b, "  committed          %15s   in the window\n", humanize.Comma(window-l.Open))
	fmt.Fprintf(&b, "  open               %15s   in %s\n", humanize.Comma(l.Open), d.gapsInWords())
	fmt.Fprintf(&b, "  lag                %15s   open, and what lies beyond the window\n", humanize.Comma(l.Lag()))
	if d.dealt != nil {
		fmt.Fprintf(&b, "  acquired           %15s   and %s delayed, %s pending, %s waiting for dead letters\n", humanize.Comma(int64(d.dealt.Acquired)),
			humanize.Comma(int64(d.dealt.Delayed)), humanize.Comma(int64(d.dealt.Pending)), humanize.Comma(int64(d.dealt.DeadLetters)))
	}
	d.pendingInWords(&b)
	d.list(&b)
	d.pending.list(&b, d.limit)
	d.listHeld(&b)
	return b.String()
}

// pendingInWords says how much is pending, if anything.
func (d *drawing) pendingInWords(b *strings.Builder) {
	if d.unstable && d.pending.empty() {
		fmt.Fprintf(b, "  pending            %15s   an open transaction commits an offset; see lacuna transactions list\n", "")
	}
	d.pending.summary(b)
}

func (d *drawing) gapsInWords() string {
	l := d.ledger
	words := plural(l.Gaps, "gap", "gaps")
	longest := l.LongestGap.End - l.LongestGap.Start
	switch {
	case l.Gaps > 1 && longest > 1:
		words += fmt.Sprintf("; the longest is %s, %s", formatRun(l.LongestGap), plural(longest, "offset", "offsets"))
	case l.Gaps > 1:
		words += " of 1 offset each"
	}
	return words
}

// scale labels the ends of the bar.
func (d *drawing) scale(row string) string {
	from, to := humanize.Comma(d.ledger.Stable), humanize.Comma(d.bar.end-1)
	pad := utf8.RuneCountInString(row) - len(from) - len(to)
	if pad < 1 { // too narrow for both
		return from
	}
	return from + strings.Repeat(" ", pad) + to
}

func (d *drawing) legend() string {
	s := d.shades
	perCell := (d.bar.end - d.bar.start) / int64(len(d.bar.open))
	signs := ""
	if len(d.held()) > 0 {
		signs = fmt.Sprintf("  %c acquired", s.acquired)
	}
	if len(d.pending.runs) > 0 {
		signs += fmt.Sprintf("  %c pending", s.pending)
	}
	return fmt.Sprintf("%c committed  %c%c%c partly  %c open%s; a cell is %s", s.all, s.most, s.half, s.some, s.none, signs,
		plural(perCell, "offset", "offsets"))
}

// listHeld lists the first acquired records.
func (d *drawing) listHeld(b *strings.Builder) {
	held := d.held()
	if len(held) == 0 {
		return
	}
	left := 0
	if d.limit > 0 && len(held) > d.limit {
		held, left = held[:d.limit], len(held)-d.limit
	}
	fmt.Fprintln(b)
	t := newTable(">FIRST", ">LAST", ">DELIVERY", ">AGE", ">ENDS IN", "ACQUIRED BY")
	for _, h := range held {
		t.add(h.First, h.Last, h.Delivery, age(h.AgeMs), age(h.ExpiresInMs), h.Member)
	}
	if err := t.write(b); err != nil {
		panic(err) // a strings.Builder takes everything
	}
	if left > 0 {
		fmt.Fprintf(b, "and %s; --limit 0 lists all\n", plural(int64(left), "more run", "more runs"))
	}
}

// list lists the first gaps.
func (d *drawing) list(b *strings.Builder) {
	if len(d.gaps) == 0 {
		return
	}
	fmt.Fprintln(b)
	t := newTable(">FIRST", ">LAST", ">OFFSETS")
	for _, gap := range d.gaps {
		t.add(gap.Start, gap.End-1, gap.End-gap.Start)
	}
	if err := t.write(b); err != nil {
		panic(err) // a strings.Builder takes everything
	}
	if left := d.ledger.Gaps - int64(len(d.gaps)); left > 0 {
		fmt.Fprintf(b, "and %s; --limit 0 lists all\n", plural(left, "more gap", "more gaps"))
	}
}

// drawnLedger is what --output json says of a ledger and its gaps.
type drawnLedger struct {
	describedLedger
	Window []gapJSON `json:"window"`
	// Unstable: an open transaction commits an offset or holds records.
	Unstable bool                         `json:"unstable,omitempty"`
	Pending  *pendingJSON                 `json:"pending,omitempty"`
	Dealt    *broker.SharePartitionStatus `json:"dealt,omitempty"`
}

type gapJSON struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

func (d *drawing) json() drawnLedger {
	out := drawnLedger{describedLedger: describeLedger(d.ledger), Window: []gapJSON{}, Dealt: d.dealt, Unstable: d.unstable, Pending: d.pending.json(d.limit)}
	for _, gap := range d.gaps {
		out.Window = append(out.Window, gapJSON{First: gap.Start, Last: gap.End - 1})
	}
	return out
}
