package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// ledgerGroup has the ledger with the gaps.
const ledgerGroup = "gaps"

// randomRuns commits every second offset below n, by chance, and so leaves about n/4 gaps.
func randomRuns(n int64) (commit, gaps []protocol.Run) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for at := int64(0); at < n; at++ {
		into := &gaps
		if rnd.Uint32()&1 == 0 {
			into = &commit
		}
		if last := len(*into) - 1; last >= 0 && (*into)[last].End == at {
			(*into)[last].End++
		} else {
			*into = append(*into, protocol.Run{Start: at, End: at + 1})
		}
	}
	return commit, gaps
}

// commitRuns commits the runs, so many with each request, and not in order.
func commitRuns(tb testing.TB, c *wire.Conn, topic string, runs []protocol.Run, each int) {
	tb.Helper()
	var starts []int
	for at := 0; at < len(runs); at += each {
		starts = append(starts, at)
	}
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(starts), func(i, j int) { starts[i], starts[j] = starts[j], starts[i] })
	for _, at := range starts {
		o := protocol.IndividualOffsets{Commit: runs[at:min(at+each, len(runs))], Origin: protocol.NoOrigin}
		_, err := c.CommitIndividually(ledgerGroup, topic, 0, o)
		require.NoError(tb, err)
	}
}

// BenchmarkLedgerRecovery starts a broker over the ledger of a group, until it answers for
// it; its unit is a start. With gaps=0 it has little to read, so the difference is what the
// gaps take. "clean" follows a stop, "killed" finds what a kill -9 leaves.
func BenchmarkLedgerRecovery(b *testing.B) {
	for _, window := range []int64{1 << 14, 1 << 22} {
		t := embedded(b, func(c *broker.Config) { c.NoFsync = true })
		topic := offsets(b, t, int(window))
		commit, gaps := randomRuns(window)
		if window == 1<<14 {
			commit, gaps = []protocol.Run{{Start: 0, End: 1}}, nil
		}
		commitRuns(b, t.dial(b), topic, commit, 1000)
		killed := b.TempDir() + "/killed"
		require.NoError(b, os.CopyFS(killed, os.DirFS(t.config.DataDir)))
		t.stop()
		for _, state := range []string{"clean", "killed"} {
			b.Run(fmt.Sprintf("gaps=%d/stop=%s", len(gaps), state), func(b *testing.B) {
				config := t.config
				if state == "killed" {
					config.DataDir = b.TempDir()
				}
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					if state == "killed" {
						require.NoError(b, os.RemoveAll(config.DataDir))
						require.NoError(b, os.CopyFS(config.DataDir, os.DirFS(killed)))
					}
					b.StartTimer()
					started, err := broker.Start(context.Background(), config)
					require.NoError(b, err)
					awaitLedger(b, started.Addr(), topic)
					b.StopTimer()
					require.NoError(b, started.Stop(context.Background()))
					b.StartTimer()
				}
				b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(b.N), "ms")
			})
		}
		t.start()
	}
}

// awaitLedger asks for one gap until the broker has loaded the ledger.
func awaitLedger(tb testing.TB, addr, topic string) {
	c, err := wire.Dial(context.Background(), addr)
	require.NoError(tb, err)
	defer c.Close()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.SetVersion(9)
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = ledgerGroup
	g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: topic, Partitions: []int32{0}}}
	g.UnknownTags.Set(protocol.ExtensionTag, (&protocol.GapsRequest{MaxRuns: 1}).AppendTo(nil))
	req.Groups = append(req.Groups, g)
	for deadline := time.Now().Add(wire.Patience); ; {
		resp, err := c.Do(req)
		require.NoError(tb, err)
		group := resp.(*kmsg.OffsetFetchResponse).Groups[0]
		if err = kerr.ErrorForCode(group.ErrorCode); err == nil {
			require.NoError(tb, kerr.ErrorForCode(group.Topics[0].Partitions[0].ErrorCode))
			require.GreaterOrEqual(tb, group.Topics[0].Partitions[0].Offset, int64(0), "the ledger is gone")
			return
		}
		require.True(tb, kerr.IsRetriable(err) && time.Now().Before(deadline), "%v", err)
	}
}

// A group may leave a million gaps behind, and finds each of them again, whoever asks and
// after a restart.
func TestAMillionGapsAreKept(t *testing.T) {
	const window = 129 << 14
	target := embedded(t, inMemory)
	topic := offsets(t, target, window)
	var commit, gaps []protocol.Run
	for at := int64(0); at < window; at += 2 {
		gaps = append(gaps, protocol.Run{Start: at, End: at + 1})
		commit = append(commit, protocol.Run{Start: at + 1, End: at + 2})
	}
	require.Greater(t, len(gaps), 1_000_000)
	commitRuns(t, target.dial(t), topic, commit, 100_000)
	check := func() {
		l, err := target.dial(t).Ledger(ledgerGroup, topic, 0)
		require.NoError(t, err)
		require.Zero(t, l.Stable)
		require.EqualValues(t, window, l.MaxCommit)
		require.Len(t, l.Gaps, len(gaps))
		require.True(t, slices.Equal(gaps, l.Gaps))
	}
	check()
	target.stop()
	target.start()
	check()
}
