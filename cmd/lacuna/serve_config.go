package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/lacunamq/lacuna/broker"
	"github.com/spf13/pflag"
)

// The settings of the server have one name each: the flag --data-dir is data-dir in the
// file and LACUNA_DATA_DIR in the environment. Broker settings by Kafka's names are below
// "set": --set num.partitions=3, LACUNA_SET_NUM_PARTITIONS=3, or in the file
//
//	set:
//	  num.partitions: 3
const (
	environmentPrefix = "LACUNA_"
	setKey            = "set"
	pathDelimiter     = "/" // not a dot, since Kafka's names have dots
)

func serveFlags(fs *pflag.FlagSet) {
	fs.StringSlice("listen", []string{broker.DefaultListen}, "HOST:PORT to listen on; may repeat; port 0 takes a free one")
	fs.String("advertise", "", "HOST:PORT that clients are told to connect to (default: where they came in)")
	fs.String("data-dir", broker.DefaultDataDir, "directory for everything durable")
	fs.String("fsync", "on", "on: acks=all means on the disk; off: in the system's memory, which a crash of the machine loses")
	fs.Lookup("fsync").NoOptDefVal = "on"
	fs.Bool("insecure", false, "listen where other machines reach it, although there is no authentication yet")
	fs.Bool("accept-replication-factor", false, "ignore a replication factor above 1 instead of refusing it")
	fs.String("admin", "", "HOST:PORT for metrics, health and profiles (default: off)")
	fs.String("log-level", "info", "debug, info, warn or error")
	fs.StringToString(setKey, nil, "broker setting by Kafka's name, KEY=VALUE; may repeat")
	fs.String("config", "", "YAML file with these settings")
}

// serveConfig is the configuration of the server, from flags, environment and file: the
// first that sets a value wins.
type serveConfig struct {
	broker   broker.Config
	logLevel string
}

// loadServeConfig reads all three. Values below "set" are merged name by name.
func loadServeConfig(fs *pflag.FlagSet, environ []string) (serveConfig, error) {
	k := koanf.New(pathDelimiter)
	if err := loadFile(k, fs, environ); err != nil {
		return serveConfig{}, err
	}
	fromEnv := env.Provider(pathDelimiter, env.Opt{
		Prefix:        environmentPrefix,
		EnvironFunc:   func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) { return environmentKey(fs, name), value },
	})
	if err := k.Load(fromEnv, nil); err != nil {
		return serveConfig{}, usagef("read the environment: %w", err)
	}
	flags := posflag.ProviderWithFlag(fs, pathDelimiter, k, func(f *pflag.Flag) (string, any) {
		if f.Name == setKey {
			return "", nil
		}
		return f.Name, posflag.FlagVal(fs, f)
	})
	if err := k.Load(flags, nil); err != nil {
		return serveConfig{}, usagef("read the flags: %w", err)
	}
	return parseServeConfig(k, fs)
}

// loadFile reads the file that --config or LACUNA_CONFIG names, if one does, and refuses
// names that it does not know: a typo should not be a setting that is silently missing.
func loadFile(k *koanf.Koanf, fs *pflag.FlagSet, environ []string) error {
	path := fs.Lookup("config").Value.String()
	for _, e := range environ {
		if value, ok := strings.CutPrefix(e, environmentPrefix+"CONFIG="); ok && path == "" {
			path = value
		}
	}
	if path == "" {
		return nil
	}
	if _, err := os.Stat(path); err != nil {
		return usagef("read the configuration: %w", err)
	}
	if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
		return usagef("read the configuration %s: %w", path, err)
	}
	for _, name := range slices.Sorted(maps.Keys(k.Raw())) {
		if name == "config" || fs.Lookup(name) == nil {
			return usagef("%s: unknown setting %q; it knows %s (broker settings by Kafka's names stand below %q)",
				path, name, strings.Join(settingNames(fs), ", "), setKey)
		}
	}
	return nil
}

func settingNames(fs *pflag.FlagSet) (names []string) {
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Name != "config" && f.Name != "help" {
			names = append(names, f.Name)
		}
	})
	return names
}

// environmentKey is the setting that a variable names, "" if it names none: an
// environment may hold variables of that prefix that others put there, as Kubernetes does
// for a service called lacuna.
func environmentKey(fs *pflag.FlagSet, variable string) string {
	name := strings.ToLower(strings.TrimPrefix(variable, environmentPrefix))
	if setting, ok := strings.CutPrefix(name, setKey+"_"); ok {
		return setKey + pathDelimiter + strings.ReplaceAll(setting, "_", ".")
	}
	name = strings.ReplaceAll(name, "_", "-")
	if name == "config" || name == setKey || fs.Lookup(name) == nil {
		return ""
	}
	return name
}

// parseServeConfig makes of the merged values what the broker wants.
func parseServeConfig(k *koanf.Koanf, fs *pflag.FlagSet) (serveConfig, error) {
	fsync, err := onOff("fsync", k.Get("fsync"))
	if err != nil {
		return serveConfig{}, err
	}
	settings, err := brokerSettings(k, fs)
	if err != nil {
		return serveConfig{}, err
	}
	insecure, err := onOff("insecure", k.Get("insecure"))
	if err != nil {
		return serveConfig{}, err
	}
	acceptReplication, err := onOff("accept-replication-factor", k.Get("accept-replication-factor"))
	if err != nil {
		return serveConfig{}, err
	}
	return serveConfig{
		logLevel: k.String("log-level"),
		broker: broker.Config{
			Listen:                  addressList(k.Get("listen")),
			Advertise:               k.String("advertise"),
			Insecure:                insecure,
			DataDir:                 k.String("data-dir"),
			NoFsync:                 !fsync,
			AcceptReplicationFactor: acceptReplication,
			Admin:                   k.String("admin"),
			Settings:                settings,
			Version:                 version(),
		},
	}, nil
}

// brokerSettings are those below "set", with the flags on top.
func brokerSettings(k *koanf.Koanf, fs *pflag.FlagSet) (map[string]string, error) {
	settings := make(map[string]string)
	for name, value := range k.Cut(setKey).All() {
		settings[name] = fmt.Sprint(value)
	}
	flags, err := fs.GetStringToString(setKey)
	if err != nil {
		return nil, usagef("read --%s: %w", setKey, err)
	}
	maps.Copy(settings, flags)
	return settings, nil
}

// addressList accepts a list, or addresses joined by commas as in the environment.
func addressList(value any) (addresses []string) {
	var parts []string
	switch v := value.(type) {
	case []string:
		parts = v
	case []any:
		for _, a := range v {
			parts = append(parts, fmt.Sprint(a))
		}
	case nil:
	default:
		parts = strings.Split(fmt.Sprint(v), ",")
	}
	for _, a := range parts {
		if a = strings.TrimSpace(a); a != "" {
			addresses = append(addresses, a)
		}
	}
	return addresses
}

// onOff reads a switch in any of the usual spellings.
func onOff(name string, value any) (bool, error) {
	switch strings.ToLower(fmt.Sprint(value)) {
	case "on", "true", "yes", "1":
		return true, nil
	case "off", "false", "no", "0":
		return false, nil
	}
	return false, usagef("%s is %q: it is on or off", name, fmt.Sprint(value))
}
