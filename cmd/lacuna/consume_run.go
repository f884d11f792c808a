package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/twmb/franz-go/pkg/kgo"
)

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
