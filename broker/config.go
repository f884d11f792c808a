package broker

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"
)

// Config says how a broker is started. Its zero value serves on 127.0.0.1:9092 from
// ./lacuna-data, with fsync.
type Config struct {
	// Listen are the addresses to serve, HOST:PORT. Port 0 takes a free one.
	// By default 127.0.0.1:9092.
	Listen []string
	// Advertise is the HOST:PORT that clients are told to connect to. By default the
	// listener that they came to.
	Advertise string
	// Insecure admits listeners that other machines reach. There is no authentication yet.
	Insecure bool
	// DataDir is the directory that holds everything durable. By default ./lacuna-data.
	DataDir string
	// FS is the file system of DataDir. By default the machine's; vfs.NewMem() keeps all
	// in memory.
	FS vfs.FS
	// NoFsync answers acks=all after the write, without fsync: a crash of the machine, not
	// of the process, may then lose acknowledged records.
	NoFsync bool
	// AcceptReplicationFactor ignores a replication factor above 1 instead of refusing it.
	AcceptReplicationFactor bool
	// Admin is the HOST:PORT of metrics, health and pprof. Empty: not served.
	Admin string
	// Settings are broker settings by Kafka's names, such as "num.partitions". They stand
	// below those that clients set while the broker runs.
	Settings map[string]string
	// Logger receives what people should know. By default nothing is logged.
	Logger *zap.Logger
	// Version is what the binary calls itself.
	Version string
}

// DefaultListen is where a broker listens that is not told otherwise.
const DefaultListen = "127.0.0.1:9092"

// DefaultDataDir is where a broker keeps its data that is not told otherwise.
const DefaultDataDir = "./lacuna-data"

// withDefaults fills in what the caller left out.
func (c Config) withDefaults() Config {
	if len(c.Listen) == 0 {
		c.Listen = []string{DefaultListen}
	}
	if c.DataDir == "" {
		c.DataDir = DefaultDataDir
	}
	c.DataDir = filepath.Clean(c.DataDir) // file systems in memory know no "./"
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

// validate refuses what would surprise: an address that others reach without
// authentication, or one that clients cannot connect to.
func (c Config) validate() error {
	for _, addr := range c.Listen {
		host, err := c.serveable("listen", addr)
		if err != nil {
			return err
		}
		if isUnspecified(host) && c.Advertise == "" {
			return fmt.Errorf("listen address %q covers every interface, and no client can connect to %q: "+
				"say with --advertise HOST:PORT by which name clients reach this machine", addr, host)
		}
	}
	if c.Admin != "" {
		if _, err := c.serveable("admin", c.Admin); err != nil {
			return err
		}
	}
	if c.Advertise != "" {
		host, port, err := net.SplitHostPort(c.Advertise)
		if err != nil {
			return fmt.Errorf("advertised address %q: %w; it has the form HOST:PORT", c.Advertise, err)
		}
		if host == "" || port == "" {
			return fmt.Errorf("advertised address %q needs a host and a port", c.Advertise)
		}
	}
	if strings.ContainsRune(c.DataDir, 0) {
		return errors.New("the data directory's name contains a NUL")
	}
	return nil
}

// serveable is the host of an address that is served, if it may be.
func (c Config) serveable(what, addr string) (host string, err error) {
	host, _, err = net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("%s address %q: %w; it has the form HOST:PORT", what, addr, err)
	}
	if !isLoopback(host) && !c.Insecure {
		return "", fmt.Errorf("%s address %q is reachable by other machines, and there is no authentication yet: "+
			"use 127.0.0.1, or say --insecure to mean it", what, addr)
	}
	return host, nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func isUnspecified(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// limits are the bounds of what clients can make the broker hold, from its settings.
type limits struct {
	maxRequestBytes int           // socket.request.max.bytes
	memoryBytes     int64         // queued.max.request.bytes
	maxInFlight     int           // max.in.flight.requests
	maxIdle         time.Duration // connections.max.idle.ms
	fetchMaxBytes   int           // fetch.max.bytes
	fetchMemory     int64         // fetch.max.memory.bytes
	fetchSessions   int           // max.incremental.fetch.session.cache.slots
	shareSessions   int           // group.share.max.share.sessions
	cleanerMemory   int           // log.cleaner.dedupe.buffer.size
	maxDecoded      int           // max.decoded.batch.bytes
}
