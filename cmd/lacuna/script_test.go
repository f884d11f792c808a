package main

import (
	"context"
	"os"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/client"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"lacuna": main})
}

// TestScripts runs the transcripts in testdata, each with the real binary and a broker of
// its own, in memory. UPDATE=1 rewrites what the commands are expected to print.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"acquire": acquire, "open-transaction": openTransaction, "hang": hang,
			"process": process, "rebuild": rebuild, "consumer": consumer,
		},
		UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(env *testscript.Env) error {
			b := &scriptBroker{t: t, config: broker.Config{
				Listen: []string{"127.0.0.1:0"}, DataDir: "data", FS: vfs.NewMem(), Admin: "127.0.0.1:0",
				Settings: map[string]string{
					"offsets.topic.num.partitions":     "2",
					"group.initial.rebalance.delay.ms": "0",
				},
			}}
			if err := b.start(); err != nil {
				return err
			}
			env.Defer(func() {
				if err := b.stop(); err != nil {
					t.Errorf("stop the broker: %v", err)
				}
			})
			env.Values[underTest{}] = b
			env.Setenv("LACUNA_BOOTSTRAP", b.Addr())
			env.Setenv("ADMIN", b.AdminAddr())
			// Under the race detector every process would rest for a second at its end.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
	})
}

// scriptBroker is the broker of one script, which commands may stop and start again.
type scriptBroker struct {
	*broker.Broker
	t      *testing.T
	config broker.Config
}

// underTest is the key of a script's broker.
type underTest struct{}

func (b *scriptBroker) start() (err error) {
	b.Broker, err = broker.Start(context.Background(), b.config)
	return err
}

func (b *scriptBroker) stop() error { return b.Stop(context.Background()) }

// acquire GROUP TOPIC N has a member of a share group acquire N records of a topic, one by
// one, and keep them until the script ends.
func acquire(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: acquire GROUP TOPIC N")
	}
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	begun, end := make(chan struct{}), make(chan struct{})
	w, err := client.OpenWorker(context.Background(), func(context.Context, *client.ShareRecord) error {
		select {
		case begun <- struct{}{}:
			<-end
		case <-end: // what comes while it closes: nobody waits for that
		}
		return nil
	}, client.KafkaOpts(kgo.SeedBrokers(ts.Getenv("LACUNA_BOOTSTRAP"))), client.Group(args[0]), client.Topics(args[1]),
		client.Concurrency(n), client.MaxRecords(n), client.KeyOrder(false))
	ts.Check(err)
	ts.Defer(func() {
		close(end)
		ts.Check(w.Close(context.Background()))
	})
	for range n {
		<-begun
	}
}
