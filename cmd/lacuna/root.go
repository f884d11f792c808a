package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/lacunamq/lacuna/client"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// defaultBootstrap is where a broker listens that was started without configuration.
const defaultBootstrap = "127.0.0.1:9092"

// cli is what the commands share: the streams and the global flags.
type cli struct {
	streams
	bootstrap []string
	output    string // "text" or "json"
	admin     string // address of the broker's admin listener, "" if that is not to be asked
}

func rootCommand(s streams) *cobra.Command {
	c := &cli{streams: s}
	root := &cobra.Command{
		Use:   "lacuna",
		Short: "A Kafka-protocol broker in which a consumer may leave gaps, and its tools",
		Long: `A Kafka-protocol broker in which a consumer may leave gaps behind it, and nothing is
lost in them; and the tools to use it and to look into it.

  lacuna serve                                  # a broker on 127.0.0.1:9092
  lacuna produce --topic greetings < words.txt  # write lines
  lacuna consume --topic greetings --exit       # read them all`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArguments,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(
		versionCommand(c), serveCommand(c), fsckCommand(c),
		topicsCommand(c), produceCommand(c), consumeCommand(c), groupsCommand(c), transactionsCommand(c),
		processorsCommand(c),
	)
	return root
}

// connectFlags are those of commands that talk to a broker.
func (c *cli) connectFlags(cmd *cobra.Command) {
	cmd.PersistentFlags().StringSliceVarP(&c.bootstrap, "bootstrap", "b", defaultBootstraps(),
		"brokers to connect to first, HOST:PORT (or LACUNA_BOOTSTRAP)")
}

// outputFlag is that of commands whose result a program may want to read.
func (c *cli) outputFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVarP(&c.output, "output", "o", "text", "text, or json for programs")
	check := func(*cobra.Command, []string) error {
		if c.output != "text" && c.output != "json" {
			return usagef("--output is %q: it is text or json", c.output)
		}
		return nil
	}
	cmd.PersistentPreRunE = check
}

func defaultBootstraps() []string {
	if env := os.Getenv("LACUNA_BOOTSTRAP"); env != "" {
		return strings.Split(env, ",")
	}
	return []string{defaultBootstrap}
}

// kafkaOptions are those of every kgo client of the tools.
func (c *cli) kafkaOptions(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(c.bootstrap...),
		kgo.ClientID("lacuna-cli"),
		kgo.SoftwareNameAndVersion("lacuna-cli", version()),
	}, more...)
}

// connect makes a client; it dials with the first request.
func (c *cli) connect(more ...kgo.Opt) (*kgo.Client, error) {
	cl, err := kgo.NewClient(c.kafkaOptions(more...)...)
	if err != nil {
		return nil, usagef("connect to %s: %w", strings.Join(c.bootstrap, ","), err)
	}
	return cl, nil
}

// kafkaAdmin is a client for what every Kafka broker knows.
func (c *cli) kafkaAdmin() (*kadm.Client, error) {
	cl, err := c.connect()
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(cl), nil
}

// ledgerAdmin is a client for ledgers.
func (c *cli) ledgerAdmin() (*client.Admin, error) {
	a, err := client.NewAdmin(client.KafkaOpts(c.kafkaOptions()...))
	if err != nil {
		return nil, usagef("connect to %s: %w", strings.Join(c.bootstrap, ","), err)
	}
	return a, nil
}

// reach adds to an error of a first request what a person can do about it.
func (c *cli) reach(err error) error {
	if shards := new(kadm.ShardErrors); errors.As(err, &shards) && len(shards.Errs) == 1 {
		err = shards.Errs[0].Err // which of several brokers failed says nothing when there is one
	}
	if err == nil || !isDialError(err) {
		return err
	}
	return fmt.Errorf("%w\nno broker answers at %s: start one with `lacuna serve`, or say with --bootstrap where it is",
		err, strings.Join(c.bootstrap, ","))
}

// said is the error of an answer in the broker's own words, where it has some: those that go
// with its code say less.
func said(err error, words string) error {
	if err == nil || words == "" {
		return err
	}
	return &spokenError{err, words}
}

type spokenError struct {
	err   error
	words string
}

// Error implements error.
func (e *spokenError) Error() string {
	var code *kerr.Error
	if errors.As(e.err, &code) {
		return code.Message + ": " + e.words
	}
	return e.err.Error() + ": " + e.words
}

// Unwrap returns the error of the code.
func (e *spokenError) Unwrap() error { return e.err }

// noArguments refuses arguments with a hint at what was meant.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		return usagef("unknown command %q for %q; see %s --help", args[0], cmd.CommandPath(), cmd.CommandPath())
	}
	return usagef("%s takes no arguments, got %q; see %s --help", cmd.CommandPath(), args, cmd.CommandPath())
}
