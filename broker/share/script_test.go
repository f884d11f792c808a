package share

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
)

// TestScripts runs the transcripts in testdata: a request, and below it the records that it
// logs, then the answer.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		w := newWorld()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.fresh = len(w.log)
			said := w.run(t, d)
			require.NoError(t, w.group.CheckInvariants(), d.Pos)
			w.requireRecoverable(t)
			var lines []string
			for i := range w.log[w.fresh:] {
				lines = append(lines, describeChange(&w.log[w.fresh+i]))
			}
			return strings.TrimLeft(strings.Join(lines, "\n")+"\n"+said, "\n")
		})
	})
}

func (w *world) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "topic":
		w.setTopic(d.CmdArgs[0].Key, int32(number(t, d, "partitions", 0)))
		w.group.Refresh(w.env(t))
		return ""
	case "settings":
		if d.HasArg("mode") {
			mode, err := ParseMode(text(d, "mode"))
			require.NoError(t, err)
			w.settings.Mode = mode
		}
		w.settings.KeyRangeInitial = int32(number(t, d, "initial", int64(w.settings.KeyRangeInitial)))
		w.settings.MaxSize = int(number(t, d, "max", int64(w.settings.MaxSize)))
		w.group.Refresh(w.env(t))
		return ""
	case "heartbeat":
		return w.heartbeat(t, d)
	case "silent":
		w.group.Remove(w.env(t), d.CmdArgs[0].Key)
		return ""
	case "view":
		return describeView(w.group.View())
	case "crash":
		// The last records of the log, lost, are those of an operation that nobody was
		// told of.
		n := len(w.log) - int(number(t, d, "losing", 0))
		w.group, w.log = w.recovered(n), w.log[:n]
		w.group.Refresh(w.env(t))
		return ""
	}
	d.Fatalf(t, "unknown command %s", d.Cmd)
	return ""
}

func (w *world) heartbeat(t *testing.T, d *datadriven.TestData) string {
	h := &Heartbeat{Group: "g", MemberID: d.CmdArgs[0].Key, ClientID: "c", ClientHost: "/127.0.0.1"}
	h.Epoch = int32(number(t, d, "epoch", 0))
	if d.HasArg("topics") {
		h.Topics = strings.Split(text(d, "topics"), ",")
	}
	if err := h.Check(); err != nil {
		return "refused: " + err.Error() + "\n"
	}
	a, err := w.group.Heartbeat(w.env(t), h)
	if err != nil {
		var refused *Error
		require.True(t, errors.As(err, &refused))
		return fmt.Sprintf("%s: %s\n", refused.Kind.Message, refused.Message)
	}
	said := fmt.Sprintf("answer: epoch %d", a.Epoch)
	if a.Assigned {
		said += ", " + describePartitions(a.Assignment)
	}
	return said + "\n"
}

func number(t *testing.T, d *datadriven.TestData, name string, def int64) int64 {
	if !d.HasArg(name) {
		return def
	}
	n, err := strconv.ParseInt(text(d, name), 10, 64)
	require.NoError(t, err)
	return n
}

// text is an argument as it stands.
func text(d *datadriven.TestData, name string) string {
	for _, a := range d.CmdArgs {
		if a.Key == name {
			return strings.Join(a.Vals, ",")
		}
	}
	return ""
}
