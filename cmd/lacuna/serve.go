package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lacunamq/lacuna/broker"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// stopTimeout is how long a broker that was told to stop may take to answer what has
// begun.
const stopTimeout = 30 * time.Second

func serveCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a broker",
		Long: `Run a broker until it is told to stop by SIGINT (Ctrl-C) or SIGTERM.

It needs no configuration: it listens on 127.0.0.1:9092 and keeps its data in
./lacuna-data. Topics are created on first use.

Every flag can also be set in the environment (--data-dir is LACUNA_DATA_DIR) and in a
YAML file given with --config (data-dir: ...). The first of flag, environment and file
that sets a value wins. Broker settings by Kafka's names are set with --set, with
LACUNA_SET_NUM_PARTITIONS, or below "set:" in the file.`,
		Example: `  lacuna serve
  lacuna serve --listen 127.0.0.1:0 --data-dir /tmp/try --set num.partitions=4
  lacuna serve --listen 0.0.0.0:9092 --advertise broker.example:9092 --insecure`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadServeConfig(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			return c.serve(cmd.Context(), cfg)
		},
	}
	serveFlags(cmd.Flags())
	return cmd
}

// serve runs a broker until ctx ends.
func (c *cli) serve(ctx context.Context, cfg serveConfig) error {
	logger, err := newLogger(c.err, c.errTerminal, cfg.logLevel)
	if err != nil {
		return err
	}
	defer func() { _ = logger.Sync() }() // a terminal cannot be synced
	cfg.broker.Logger = logger
	b, err := broker.Start(ctx, cfg.broker)
	if err != nil {
		return explainStart(err)
	}
	c.announce(b, cfg.broker)
	<-ctx.Done()
	fmt.Fprintln(c.out, "stopping")
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := b.Stop(stopping); err != nil {
		return fmt.Errorf("stop the broker: %w", err)
	}
	fmt.Fprintln(c.out, "stopped")
	return nil
}

// announce tells a person what runs where, what to try, and how to stop it.
func (c *cli) announce(b *broker.Broker, cfg broker.Config) {
	dir := cfg.DataDir
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	durability := "on the disk before it is acknowledged (fsync on)"
	if cfg.NoFsync {
		durability = "acknowledged before it is on the disk (fsync off)"
	}
	fmt.Fprintf(c.out, "lacuna %s is ready\n\n", version())
	fmt.Fprintf(c.out, "  listening on  %s\n", strings.Join(b.Addrs(), ", "))
	if cfg.Advertise != "" {
		fmt.Fprintf(c.out, "  advertised    %s\n", cfg.Advertise)
	}
	if addr := b.AdminAddr(); addr != "" {
		fmt.Fprintf(c.out, "  admin         http://%s/metrics, /health, /debug/pprof\n", addr)
	}
	fmt.Fprintf(c.out, "  data in       %s, %s\n\n", dir, durability)
	where := ""
	if addr := b.Addr(); addr != defaultBootstrap {
		where = " -b " + addr
	}
	fmt.Fprintf(c.out, "  try it        lacuna produce%s --topic greetings\n", where)
	fmt.Fprintf(c.out, "                lacuna consume%s --topic greetings --exit\n", where)
	fmt.Fprintf(c.out, "  stop it       Ctrl-C, or kill -TERM %d\n\n", os.Getpid())
}

// explainStart adds what a person can do about a broker that does not start.
func explainStart(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w\nanother server listens there: stop it, or choose a place with --listen (127.0.0.1:0 takes a free port)", err)
	case errors.Is(err, broker.ErrDataDirInUse):
		return fmt.Errorf("%w\nstop the broker that uses it, or choose a directory with --data-dir", err)
	}
	return err
}

// newLogger writes lines for people to a terminal, and JSON otherwise.
func newLogger(w io.Writer, terminal bool, level string) (*zap.Logger, error) {
	min, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, usagef("--log-level is %q: it is debug, info, warn or error", level)
	}
	cfg := zap.NewProductionEncoderConfig()
	cfg.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoder := zapcore.NewJSONEncoder(cfg)
	if terminal {
		cfg.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		cfg.EncodeLevel = zapcore.CapitalColorLevelEncoder
		encoder = zapcore.NewConsoleEncoder(cfg)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), min)), nil
}
