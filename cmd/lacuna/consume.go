package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// consumeOptions are the flags of consume.
type consumeOptions struct {
	topics        []string
	partitions    []int32
	group         string
	from          string
	slots         []string
	keys          []string
	individual    bool
	leaveEvery    int
	noCommit      bool
	readCommitted bool
	max           int64
	exit          bool
	format        string
	keyDelimiter  string
	quiet         bool
}

func consumeCommand(c *cli) *cobra.Command {
	var o consumeOptions
	cmd := &cobra.Command{
		Use:   "consume",
		Short: "Write records to standard output",
		Long: `Write the records of topics to standard output, as they come, until interrupted.

Without a group it begins at the beginning, or where --from says, and commits nothing.
With a group it is a member of it like any Kafka consumer. With --individual, --slots or
--keys it reads through Lacuna's extension instead: a group then needs no members, several
readers share a partition by slots or keys, and every record is committed on its own once
it was written out.`,
		Example: `  lacuna consume -t orders --exit
  lacuna consume -t orders -g billing --individual
  lacuna consume -t orders -g billing --slots 0-32767 & lacuna consume -t orders -g billing --slots 32768-65535
  lacuna consume -t orders --key order-1 --format '%o %k: %v\n'
  lacuna consume -t orders -o json | jq .value`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.consume(cmd.Context(), o) },
	}
	c.connectFlags(cmd)
	c.outputFlag(cmd)
	f := cmd.Flags()
	f.StringSliceVarP(&o.topics, "topic", "t", nil, "topic to read; may repeat")
	f.Int32SliceVarP(&o.partitions, "partition", "p", nil, "partition to read, of one topic; may repeat (default: all)")
	f.StringVarP(&o.group, "group", "g", "", "group to read and commit for")
	f.StringVar(&o.from, "from", "earliest", "where to begin if the group has committed nothing: earliest, latest, an offset, a time, or how long ago (-1h)")
	f.StringArrayVar(&o.slots, "slots", nil, "key slots to read, LO-HI of 0-65535; may repeat")
	f.StringArrayVar(&o.keys, "key", nil, "key to read; may repeat")
	f.BoolVar(&o.individual, "individual", false, "commit each record on its own")
	f.IntVar(&o.leaveEvery, "leave-every", 0, "leave every Nth record uncommitted, to see what gaps do")
	f.BoolVar(&o.noCommit, "no-commit", false, "commit nothing")
	f.BoolVar(&o.readCommitted, "read-committed", false, "leave out records of open and aborted transactions")
	f.Int64VarP(&o.max, "max", "n", 0, "stop after that many records (0: do not)")
	f.BoolVarP(&o.exit, "exit", "e", false, "stop at what is the end when it starts")
	f.StringVarP(&o.format, "format", "f", "", `form of a record, such as '%t %p %o %k %v\n' (kgo's format language)`)
	f.StringVarP(&o.keyDelimiter, "key-delimiter", "K", "", "write the key before the value, and this between them")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no progress on a terminal")
	return cmd
}

// extended tells that Lacuna's extension is needed.
func (o *consumeOptions) extended() bool {
	return o.individual || len(o.slots)+len(o.keys) > 0
}

func (o *consumeOptions) validate() error {
	switch {
	case len(o.topics) == 0:
		return usagef("consume needs a topic: say --topic NAME")
	case len(o.partitions) > 0 && len(o.topics) > 1:
		return usagef("--partition goes with one topic")
	case len(o.partitions) > 0 && o.group != "" && !o.extended():
		return usagef("members of a group do not choose their partitions: leave out --partition or --group, or add --individual")
	case o.individual && o.group == "":
		return usagef("--individual commits for a group: say --group NAME")
	case o.leaveEvery < 0 || o.leaveEvery > 0 && !(o.extended() && o.group != ""):
		return usagef("--leave-every goes with --group and --individual, --slots or --key")
	}
	return nil
}

// recordSource is where consume gets its records from.
type recordSource interface {
	// poll returns the next records, and how far in each partition it is.
	poll(ctx context.Context) ([]*kgo.Record, error)
	// left is how many offsets lie between what was returned and the ends: 0 once every
	// record below them was returned, or need not be; -1 while that is not known.
	left(ends map[client.TopicPartition]int64) int64
	// trouble is what keeps it from getting on, nil if nothing does as far as it knows.
	trouble() error
	// commit commits records that were written out. It need not wait.
	commit(ctx context.Context, records []*kgo.Record) error
	// close waits until the commits are answered.
	close(ctx context.Context) error
}

func (c *cli) consume(ctx context.Context, o consumeOptions) error {
	if err := o.validate(); err != nil {
		return err
	}
	format, err := newRecordFormat(c.output, o.format, o.keyDelimiter)
	if err != nil {
		return err
	}
	from, err := parsePosition("--from", o.from, time.Now())
	if err != nil {
		return err
	}
	var ends map[client.TopicPartition]int64
	if o.exit {
		if ends, err = c.currentEnds(ctx, &o); err != nil {
			return err
		}
	}
	src, err := c.openSource(ctx, &o, from)
	if err != nil {
		return c.reach(err)
	}
	con := &consumption{c: c, o: &o, src: src, format: format, ends: ends, out: bufio.NewWriterSize(c.out, 1<<16)}
	err = con.run(ctx)
	con.bar.finish()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	return errors.Join(err, src.close(closing))
}

func (c *cli) openSource(ctx context.Context, o *consumeOptions, from client.Position) (recordSource, error) {
	if o.group != "" && !o.extended() {
		return c.openGroupSource(ctx, o, from)
	}
	return c.openReaderSource(ctx, o, from)
}

// currentEnds are the ends of what is read.
func (c *cli) currentEnds(ctx context.Context, o *consumeOptions) (map[client.TopicPartition]int64, error) {
	adm, err := c.kafkaAdmin()
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	list := adm.ListEndOffsets
	if o.readCommitted {
		list = adm.ListCommittedOffsets
	}
	listed, err := list(ctx, o.topics...)
	if err != nil {
		return nil, c.reach(err)
	}
	wanted := make(map[int32]bool)
	for _, n := range o.partitions {
		wanted[n] = true
	}
	ends := make(map[client.TopicPartition]int64)
	var errs []error
	listed.Each(func(l kadm.ListedOffset) {
		switch {
		case l.Err != nil:
			errs = append(errs, topicError(l.Topic, l.Err))
		case len(wanted) == 0 || wanted[l.Partition]:
			ends[client.TopicPartition{Topic: l.Topic, Partition: l.Partition}] = l.Offset
		}
	})
	return ends, errors.Join(errs...)
}

// consumption is one run of consume.
type consumption struct {
	c      *cli
	o      *consumeOptions
	src    recordSource
	format recordFormat
	ends   map[client.TopicPartition]int64 // nil: go on for ever
	out    *bufio.Writer
	bar    *bar
	total  int64 // offsets to go when the bar began
	count  int64
	line   []byte
	said   string // the trouble that was told last
}

// How long to wait for records before looking at other things: whether the end is
// reached, if the run stops there, and whether there is trouble that a person should know
// of.
const (
	exitPoll    = 100 * time.Millisecond
	troublePoll = 2 * time.Second
)

// run writes records until it is interrupted, has written enough, or is at the end.
func (con *consumption) run(ctx context.Context) error {
	for ctx.Err() == nil && !con.enough() {
		patience := troublePoll
		if con.ends != nil {
			patience = exitPoll
		}
		polling, cancel := context.WithTimeout(ctx, patience)
		records, err := con.src.poll(polling)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil // an interrupt is how it is meant to end
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			return con.c.reach(err)
		}
		con.tellTrouble()
		if err := con.write(ctx, records); err != nil {
			return err
		}
	}
	return nil
}

// tellTrouble says why nothing comes, once for each reason: a consumer waits for a broker
// that is away, and should not look as if there was nothing to read.
func (con *consumption) tellTrouble() {
	text := ""
	if err := con.src.trouble(); err != nil {
		text = err.Error()
	}
	if text != "" && text != con.said {
		fmt.Fprintf(con.c.err, "lacuna: waiting: %s\n", text)
	}
	con.said = text
}

func (con *consumption) enough() bool {
	if con.o.max > 0 && con.count >= con.o.max {
		return true
	}
	if con.ends == nil {
		return false
	}
	left := con.src.left(con.ends)
	if con.bar == nil && left > 0 {
		con.total = left
		con.bar = con.c.newBar("consuming", left, false, con.o.quiet || con.c.outWidth > 0)
	}
	con.bar.set(con.total - left)
	return left == 0
}

// write writes records out, and only then commits them: a reader of the pipe that went
// away has not had them.
func (con *consumption) write(ctx context.Context, records []*kgo.Record) (err error) {
	if left := con.o.max - con.count; con.o.max > 0 && int64(len(records)) > left {
		records = records[:left]
	}
	done := records[:0:0]
	for _, r := range records {
		if con.line, err = con.format(con.line[:0], r); err != nil {
			return fmt.Errorf("write the record at %s[%d] offset %d: %w", r.Topic, r.Partition, r.Offset, err)
		}
		if _, err := con.out.Write(con.line); err != nil {
			return fmt.Errorf("write to standard output: %w", err)
		}
		con.count++
		if con.o.leaveEvery == 0 || con.count%int64(con.o.leaveEvery) != 0 {
			done = append(done, r)
		}
	}
	if err := con.out.Flush(); err != nil {
		return fmt.Errorf("write to standard output: %w", err)
	}
	if con.o.group == "" || con.o.noCommit || len(done) == 0 {
		return nil
	}
	return con.src.commit(ctx, done)
}
