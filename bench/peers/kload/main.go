// Kload drives any Kafka-protocol broker, given by host:port.
//
//	kload topic   -b ADDR -t T -parts P [-rm]
//	kload produce -b ADDR -t T -n N -size S [-rate R]
//	kload consume -b ADDR -t T -n N [-keymod 16]
//	kload filter  -b ADDR -t T [-slots 0-4095]
//	kload queue   -b ADDR -t T -n N -c CONSUMERS -ack STYLE [...]
//	kload txn     -b ADDR -t T -n N -c PRODUCERS -records R
//
// With -pid, the broker's CPU seconds and memory are part of the result line.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	settings load.Settings
	traffic  load.Traffic
	// batchBytes bounds a produced batch; 0: the client's default, 1 MB.
	batchBytes int
)

func main() {
	commands := map[string]func(args []string){
		"topic": topicCommand, "produce": produceCommand, "consume": consumeCommand,
		"filter": filterCommand, "queue": queueCommand, "txn": txnCommand,
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "kload topic|produce|consume|filter|queue|txn ...")
		os.Exit(2)
	}
	commands[os.Args[1]](os.Args[2:])
}

// flags begins the flags of a command.
func flags(command string) *flag.FlagSet {
	fs := flag.NewFlagSet(command, flag.ExitOnError)
	settings.Register(fs, "127.0.0.1:9092")
	fs.IntVar(&batchBytes, "batch", 0, "max produce batch bytes (0: client default, 1 MB)")
	return fs
}

// client connects to the broker and counts its bytes.
func client(opts ...kgo.Opt) (*kgo.Client, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	opts = append(opts, kgo.SeedBrokers(settings.Addr), kgo.ClientID("kload"),
		kgo.Dialer(func(ctx context.Context, network, host string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, host)
			if err != nil {
				return nil, err
			}
			return traffic.Count(c), nil
		}))
	return kgo.NewClient(opts...)
}

// pairs reads "k=v,k=v".
func pairs(list string) map[string]string {
	m := map[string]string{}
	for kv := range strings.SplitSeq(list, ",") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			m[k] = v
		}
	}
	return m
}
