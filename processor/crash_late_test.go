package processor_test

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// noteWaits notes what a run that comes to no end may be waiting for: who is in the group,
// which transactions are open or being ended, how far outputs can be read, and what processes
// have.
func (w *crashWorld) noteWaits() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	admin := kadm.NewClient(w.kafka)
	groups, err := admin.DescribeGroups(ctx, crashGroup)
	for _, g := range groups.Sorted() {
		w.note("the group is %s with %d members (%v)", g.State, len(g.Members), g.Err)
		for _, m := range g.Members {
			w.note("a member is %s", m.MemberID)
		}
	}
	w.noteUnknown("the group", err)
	txns, err := admin.DescribeTransactions(ctx)
	for _, t := range txns.Sorted() {
		w.note("transactional id %s is %s, producer %d in epoch %d, since %d in %v (%v)",
			t.TxnID, t.State, t.ProducerID, t.ProducerEpoch, t.StartTimestamp, t.Topics, t.Err)
	}
	w.noteUnknown("transactions", err)
	stable, err := admin.ListCommittedOffsets(ctx, "in", "out")
	w.noteUnknown("last stable offsets", err)
	ends, err := admin.ListEndOffsets(ctx, "in", "out")
	w.noteUnknown("end offsets", err)
	ends.Each(func(end kadm.ListedOffset) {
		at, _ := stable.Lookup(end.Topic, end.Partition)
		w.note("%s[%d] is stable up to %d and ends at %d", end.Topic, end.Partition, at.Offset, end.Offset)
	})
	for _, l := range w.lives() {
		if a := l.app.Load(); a != nil {
			w.note("%s has %v (%v)", l.name, a.Status(), a.Err())
		} else {
			w.note("%s is not open", l.name)
		}
	}
}

func (w *crashWorld) noteUnknown(what string, err error) {
	if err != nil {
		w.note("%s cannot be looked up: %v", what, err)
	}
}

// brokerLog notes what brokers warn of.
func (w *crashWorld) brokerLog() *zap.Logger {
	encoder := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "what"})
	return zap.New(zapcore.NewCore(encoder, zapcore.AddSync(notes{w}), zap.WarnLevel))
}

// notes are lines for the log of a run.
type notes struct{ w *crashWorld }

func (n notes) Write(line []byte) (int, error) {
	n.w.note("broker: %s", strings.TrimSpace(string(line)))
	return len(line), nil
}
