package client_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// growing is a topic that gains partitions, and two members of a group that begin at its end.
type growing struct {
	*server
	read    chan string // values
	members []*client.GroupReader
}

// produce writes a record to each of these partitions.
func (g *growing) produce(value string, partitions ...int32) {
	g.tb.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(g.addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(g.tb, err)
	defer cl.Close()
	for _, p := range partitions {
		r := &kgo.Record{Topic: "growing", Partition: p, Value: fmt.Appendf(nil, "%s %d", value, p)}
		require.NoError(g.tb, cl.ProduceSync(g.tb.Context(), r).FirstErr())
	}
}

// requireRead checks what the members read next, in any order.
func (g *growing) requireRead(want ...string) {
	g.tb.Helper()
	var got []string
	for range want {
		got = append(got, <-g.read)
	}
	slices.Sort(got)
	require.Equal(g.tb, want, got)
}

func (g *growing) handle(ctx context.Context, r *client.Reader, records []*kgo.Record) {
	for _, record := range records {
		g.read <- string(record.Value)
	}
	_ = r.Commit(ctx, records...) // what is refused comes again, and is in the way then
}

func (g *growing) begin() {
	for range 2 {
		r, err := client.OpenGroupReader(g.tb.Context(), kgo.RangeBalancer(), g.handle, client.SeedBrokers(g.addr()),
			client.Group("g"), client.Topics("growing"), client.ResetPosition(client.Latest()),
			client.MemberOpts(kgo.HeartbeatInterval(20*time.Millisecond), kgo.MetadataMinAge(20*time.Millisecond), kgo.MetadataMaxAge(50*time.Millisecond)))
		require.NoError(g.tb, err)
		g.members = append(g.members, r)
	}
}

func (g *growing) end() {
	for _, r := range g.members {
		require.NoError(g.tb, r.Close(context.Background()))
	}
	g.members = nil
}

// Members that begin at the end of a topic are given nothing of before, whoever of them comes
// first, and all that is written to partitions that are added: while nobody of the group
// runs, and while they do.
func TestGroupReadersGetPartitionsThatAreAdded(t *testing.T) {
	g := &growing{server: newServer(t), read: make(chan string, 100)}
	cl, err := kgo.NewClient(kgo.SeedBrokers(g.addr()))
	require.NoError(t, err)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	_, err = adm.CreateTopic(t.Context(), 2, 1, nil, "growing")
	require.NoError(t, err)
	g.produce("before", 0, 1)
	g.begin()
	t.Cleanup(g.end)
	ledgers := g.admin()
	for begun := 0; begun < 2; {
		of, err := ledgers.Describe(t.Context(), "g")
		require.NoError(t, err)
		begun = len(of)
	}
	g.produce("then", 0, 1)
	g.requireRead("then 0", "then 1")
	g.end()

	_, err = adm.UpdatePartitions(t.Context(), 3, "growing")
	require.NoError(t, err)
	g.produce("away", 0, 2)
	g.begin()
	g.requireRead("away 0", "away 2")

	_, err = adm.UpdatePartitions(t.Context(), 4, "growing")
	require.NoError(t, err)
	g.produce("beside", 1, 3)
	g.requireRead("beside 1", "beside 3")
}
