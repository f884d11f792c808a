package main

import (
	"context"
	"os"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"lacuna": main})
}

// TestScripts runs the transcripts in testdata, each with the real binary and a broker of
// its own, in memory. UPDATE=1 rewrites what the commands are expected to print.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(env *testscript.Env) error {
			b, err := broker.Start(context.Background(), broker.Config{
				Listen: []string{"127.0.0.1:0"}, DataDir: "data", FS: vfs.NewMem(),
				Settings: map[string]string{
					"offsets.topic.num.partitions":     "2",
					"group.initial.rebalance.delay.ms": "0",
				},
			})
			if err != nil {
				return err
			}
			env.Defer(func() {
				if err := b.Stop(context.Background()); err != nil {
					t.Errorf("stop the broker: %v", err)
				}
			})
			env.Setenv("LACUNA_BOOTSTRAP", b.Addr())
			// Under the race detector every process would rest for a second at its end.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
	})
}
