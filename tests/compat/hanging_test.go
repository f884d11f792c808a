package compat

import (
	"path"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	lacuna "github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/commitlog/logtest"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestKafkasToolAbortsAHangingTransaction has kafka-transactions.sh find and abort what no
// coordinator knows. No request makes such a transaction: it is written to the log of a
// broker that is stopped.
func TestKafkasToolAbortsAHangingTransaction(t *testing.T) {
	requireTool(t, kafkaScript)
	cfg := lacuna.Config{Listen: []string{"127.0.0.1:0"}, DataDir: "data", FS: vfs.NewMem()}
	b, err := lacuna.Start(t.Context(), cfg)
	require.NoError(t, err)
	adm := adminOf(t, b)
	made, err := adm.CreateTopic(t.Context(), 1, 1, nil, "orders")
	require.NoError(t, err)
	require.NoError(t, b.Stop(t.Context()))
	logtest.LeaveOpen(t, cfg.FS, path.Join("data", "topics", metadata.TopicID(made.ID).String(), "0"),
		logtest.InTxn(12345, 3, 0), time.Now().Add(-time.Hour).UnixMilli())
	b, err = lacuna.Start(t.Context(), cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Stop(t.Context())) }()

	tool := func(args ...string) (said string) {
		var lines []string
		require.NoError(t, run(t.Context(), nil, func(line []byte) error {
			lines = append(lines, string(line))
			return nil
		}, kafkaScript, append([]string{"run", kafkaDir(), toolsPackage + "TransactionsCommand", "--bootstrap-server", b.Addr()}, args...)...))
		return strings.Join(lines, "\n")
	}
	require.Regexp(t, `(?m)^orders\s+0\s+12345\s+3\s+.*\s0\s`, tool("find-hanging", "--topic", "orders", "--partition", "0"))
	tool("abort", "--topic", "orders", "--partition", "0", "--start-offset", "0")
	require.NotContains(t, tool("find-hanging", "--topic", "orders"), "12345")
	stable, err := adminOf(t, b).ListCommittedOffsets(t.Context(), "orders")
	require.NoError(t, err)
	at, _ := stable.Lookup("orders", 0)
	require.EqualValues(t, 2, at.Offset, "the record and its marker")
}

func adminOf(t *testing.T, b *lacuna.Broker) *kadm.Client {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return kadm.NewClient(cl)
}
