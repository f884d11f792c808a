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
	"github.com/twmb/franz-go/pkg/kerr"
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
	share         bool
	maxRecords    int
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
--key it reads through Lacuna's extension instead: a group then needs no members, several
readers share a partition by slots or keys, and every record is committed on its own once
it was written out. With --share it is a member of a share group, among whose members the
broker deals the records of a partition one by one: it accepts what it has written out.
Where such a group begins, and in which order records are dealt, are its settings (groups
config): share.auto.offset.reset, latest by default, and share.delivery.mode.`,
		Example: `  lacuna consume -t orders --exit
  lacuna consume -t orders -g billing --individual
  lacuna consume -t orders -g billing --slots 0-32767 & lacuna consume -t orders -g billing --slots 32768-65535
  lacuna groups config mail --set share.auto.offset.reset=earliest; lacuna consume -t orders -g mail --share
  lacuna consume -t orders --key order-1 --format '%o %k: %v\n'
  lacuna consume -t orders -o json | jq .value`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.share && cmd.Flags().Changed("from") {
				return usagef("where a share group begins is its setting share.auto.offset.reset: see lacuna groups config --help")
			}
			return c.consume(cmd.Context(), o)
		},
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
	f.BoolVar(&o.share, "share", false, "be a member of a share group")
	f.IntVar(&o.maxRecords, "max-records", 0, "with --share, have at most that many records acquired at a time (0: up to 1000, by how fast they go)")
	f.IntVar(&o.leaveEvery, "leave-every", 0, "leave every Nth record uncommitted, with --share release it, to see what gaps do")
	f.BoolVar(&o.noCommit, "no-commit", false, "commit nothing")
	f.BoolVar(&o.readCommitted, "read-committed", false, "leave out records of open and aborted transactions")
	f.Int64VarP(&o.max, "max", "n", 0, "stop after that many records (0: do not)")
	f.BoolVarP(&o.exit, "exit", "e", false, "stop at what is the end when it starts")
	f.StringVarP(&o.format, "format", "f", "", `form of a record, such as '%t %p %o %k %v\n' in kgo's format language (pkg.go.dev/github.com/twmb/franz-go/pkg/kgo#NewRecordFormatter)`)
	f.StringVarP(&o.keyDelimiter, "key-delimiter", "K", "", "write the key before the value, and this between them")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no progress on a terminal")
	return cmd
}

// extended tells that Lacuna's extension is needed.
func (o *consumeOptions) extended() bool {
	return o.individual || !o.share && len(o.slots)+len(o.keys) > 0
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
	case o.leaveEvery < 0 || o.leaveEvery > 0 && !((o.extended() || o.share) && o.group != ""):
		return usagef("--leave-every goes with --group and --individual, --share, --slots or --key")
	case o.share:
		return o.validateShare()
	case o.maxRecords != 0:
		return usagef("--max-records goes with --share; --max stops after so many")
	}
	return nil
}

func (o *consumeOptions) validateShare() error {
	switch {
	case o.group == "":
		return usagef("--share needs a group: say --group NAME")
	case o.individual:
		return usagef("--share and --individual are two ways to commit single records: choose one")
	case len(o.partitions) > 0:
		return usagef("members of a share group do not choose their partitions: leave out --partition or --share")
	case o.noCommit:
		return usagef("a share group deals a record again that is not accepted: leave out --no-commit or --share")
	case o.readCommitted:
		return usagef("what a share group reads is its setting share.isolation.level: see lacuna groups config --help")
	case o.maxRecords < 0:
		return usagef("--max-records is %d: at least 1", o.maxRecords)
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
		return c.reach(o.explain(err))
	}
	con := &consumption{c: c, o: &o, src: src, format: format, ends: ends, out: bufio.NewWriterSize(c.out, 1<<16)}
	err = con.run(ctx)
	con.bar.finish()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	return errors.Join(c.reach(o.explain(err)), c.reach(unfinished(src.close(closing))))
}

// unfinished says what a source was at that it could not close.
func unfinished(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("commit what was written out: %w", err)
}

// explain adds to the refusal of a group what it lacks: a group is of one type for ever.
func (o *consumeOptions) explain(err error) error {
	if !errors.Is(err, kerr.GroupIDNotFound) && !errors.Is(err, kerr.InconsistentGroupProtocol) {
		return err
	}
	what := "it may be a share group, for which to say --share"
	if o.share {
		what = "a group that is not a share group cannot become one: choose another name"
	}
	return fmt.Errorf("%w\n%s; `lacuna groups list` shows the types of groups", err, what)
}

func (c *cli) openSource(ctx context.Context, o *consumeOptions, from client.Position) (recordSource, error) {
	if o.share {
		return c.openShareSource(ctx, o)
	}
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
