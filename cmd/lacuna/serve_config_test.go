package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/lacunamq/lacuna/broker"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// load loads the configuration of a command line, an environment and a file.
func load(t *testing.T, yaml string, environ []string, args ...string) (serveConfig, error) {
	t.Helper()
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	serveFlags(fs)
	if yaml != "" {
		path := filepath.Join(t.TempDir(), "lacuna.yaml")
		require.NoError(t, os.WriteFile(path, []byte(yaml), 0o600))
		args = append(args, "--config", path)
	}
	require.NoError(t, fs.Parse(args))
	return loadServeConfig(fs, environ)
}

func TestServeNeedsNoConfiguration(t *testing.T) {
	cfg, err := load(t, "", nil)
	require.NoError(t, err)
	require.Equal(t, "info", cfg.logLevel)
	require.Equal(t, broker.Config{
		Listen: []string{"127.0.0.1:9092"}, DataDir: "./lacuna-data", Settings: map[string]string{}, Version: version(),
	}, cfg.broker)
}

func TestServeConfigurationTheFirstThatSetsAValueWins(t *testing.T) {
	const yaml = `
listen: ["127.0.0.1:1001", "127.0.0.1:1002"]
data-dir: /from/file
fsync: off
admin: 127.0.0.1:1003
set:
  num.partitions: 3
  log.retention.ms: 1000
  message.max.bytes: 5
`
	environ := []string{"LACUNA_DATA_DIR=/from/env", "LACUNA_ADMIN=127.0.0.1:2003", "LACUNA_SET_LOG_RETENTION_MS=2000",
		"LACUNA_SET_MESSAGE_MAX_BYTES=6"}
	cfg, err := load(t, yaml, environ, "--admin", "127.0.0.1:3003", "--set", "message.max.bytes=7")
	require.NoError(t, err)
	require.Equal(t, broker.Config{
		Listen: []string{"127.0.0.1:1001", "127.0.0.1:1002"}, DataDir: "/from/env", NoFsync: true, Admin: "127.0.0.1:3003",
		Settings: map[string]string{"num.partitions": "3", "log.retention.ms": "2000", "message.max.bytes": "7"},
		Version:  version(),
	}, cfg.broker)
}

func TestServeConfigurationFromTheEnvironmentAlone(t *testing.T) {
	cfg, err := load(t, "", []string{
		"LACUNA_LISTEN=127.0.0.1:1, 127.0.0.1:2", "LACUNA_FSYNC=off", "LACUNA_INSECURE=true", "LACUNA_LOG_LEVEL=debug",
		"LACUNA_ACCEPT_REPLICATION_FACTOR=1",
		// Others put variables of that prefix there too.
		"LACUNA_PORT=tcp://10.0.0.1:9092", "LACUNA_SERVICE_HOST=10.0.0.1", "LACUNA_BOOTSTRAP=x:1",
	})
	require.NoError(t, err)
	require.Equal(t, []string{"127.0.0.1:1", "127.0.0.1:2"}, cfg.broker.Listen)
	require.True(t, cfg.broker.NoFsync)
	require.True(t, cfg.broker.Insecure)
	require.True(t, cfg.broker.AcceptReplicationFactor)
	require.Equal(t, "debug", cfg.logLevel)
}

func TestServeConfigurationFileByEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lacuna.yaml")
	require.NoError(t, os.WriteFile(path, []byte("advertise: broker.example:9092\n"), 0o600))
	cfg, err := load(t, "", []string{"LACUNA_CONFIG=" + path})
	require.NoError(t, err)
	require.Equal(t, "broker.example:9092", cfg.broker.Advertise)
}

func TestServeFlagsOfSwitches(t *testing.T) {
	for args, want := range map[string]bool{"--fsync": false, "--fsync=on": false, "--fsync=off": true} {
		cfg, err := load(t, "", nil, args)
		require.NoError(t, err)
		require.Equal(t, want, cfg.broker.NoFsync, args)
	}
}

func TestServeConfigurationErrorsNameTheCulprit(t *testing.T) {
	for want, give := range map[string]struct {
		yaml string
		args []string
	}{
		`unknown setting "datadir"`:        {yaml: "datadir: /x"},
		`unknown setting "num.partitions"`: {yaml: "num.partitions: 3"},
		`fsync is "maybe"`:                 {args: []string{"--fsync=maybe"}},
		`no such file`:                     {args: []string{"--config=/nowhere/lacuna.yaml"}},
		`read the configuration`:           {yaml: "listen: [unclosed"},
	} {
		_, err := load(t, give.yaml, nil, give.args...)
		require.ErrorContains(t, err, want)
		require.ErrorAs(t, err, new(usageError))
	}
}

func TestLoggerWritesForPeopleOrForPrograms(t *testing.T) {
	for terminal, want := range map[bool]string{true: "\tINFO", false: `"level":"info"`} {
		var out writer
		logger, err := newLogger(&out, terminal, "info")
		require.NoError(t, err)
		logger.Info("hello")
		logger.Debug("not this")
		if terminal {
			want = "hello"
		}
		require.Contains(t, string(out), want)
		require.NotContains(t, string(out), "not this")
	}
	_, err := newLogger(new(writer), false, "loud")
	require.ErrorContains(t, err, "--log-level")
}

type writer []byte

func (w *writer) Write(b []byte) (int, error) {
	*w = append(*w, b...)
	return len(b), nil
}
