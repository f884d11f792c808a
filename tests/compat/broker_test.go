package compat

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A broker is one that the clients talk to.
type broker struct {
	addr string
	stop func() error
	// crash kills it without a word and starts it again on its data; nil where the broker is
	// somebody else's.
	crash func() error
}

// shared is the broker of the tests that name their own topics and groups. Other people's
// suites each get a fresh one, since they expect one.
var shared = struct {
	broker
	once sync.Once
}{broker: broker{stop: func() error { return nil }}}

// sharedBroker starts the shared broker with the first test that needs it.
func sharedBroker(t *testing.T) broker {
	t.Helper()
	shared.once.Do(func() { shared.broker = startBroker(t, options{}) })
	require.NotEmpty(t, shared.addr, "the broker did not start for an earlier test")
	return shared.broker
}

// options are what a suite asks of its broker.
type options struct {
	settings  map[string]string // by Kafka's names
	advertise string            // the HOST:PORT that clients are told, if not the listener's
	// acceptReplication is for tests that ask for more replicas than there are brokers. Kafka
	// has no such setting, so that they fail on one node of it.
	acceptReplication bool
}

// freshBroker starts a broker for one test. Where the broker is somebody else's, at
// $BROKER, it is that one.
func freshBroker(t *testing.T, o options) broker {
	t.Helper()
	b := startBroker(t, o)
	t.Cleanup(func() { assert.NoError(t, b.stop()) })
	return b
}

// startBroker starts the broker that the environment names, and returns when it answers.
func startBroker(t *testing.T, o options) broker {
	t.Helper()
	settings := map[string]string{
		"num.partitions":                   "4",
		"group.initial.rebalance.delay.ms": "0",
		"group.min.session.timeout.ms":     "100",
	}
	maps.Copy(settings, o.settings)
	o.settings = settings
	var b broker
	switch addr := os.Getenv("BROKER"); {
	case addr != "":
		b = broker{addr: addr, stop: func() error { return nil }}
	case os.Getenv("PEER") == "kafka":
		b = startKafka(t, o)
	default:
		b = startLacuna(t, o)
	}
	b.awaitAnswer(t)
	return b
}

// startKafka starts Apache Kafka with an authorizer that allows everything, since some
// suites use its ACLs.
func startKafka(t *testing.T, o options) broker {
	t.Helper()
	port := freePort(t)
	args := []string{"start", strconv.Itoa(port), kafkaDir(),
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"allow.everyone.if.no.acl.found=true", "super.users=User:ANONYMOUS"}
	if o.advertise != "" {
		args = append(args, "advertised.listeners=PLAINTEXT://"+o.advertise)
	}
	for _, name := range slices.Sorted(maps.Keys(o.settings)) {
		args = append(args, name+"="+o.settings[name])
	}
	start := func() error {
		if out, err := exec.Command(kafkaScript, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("start Kafka: %w: %s", err, out)
		}
		return nil
	}
	require.NoError(t, start())
	return broker{addr: loopback(port), stop: func() error {
		out, err := exec.Command(kafkaScript, "stop", strconv.Itoa(port), kafkaDir(), "wipe").CombinedOutput()
		if err != nil {
			return fmt.Errorf("stop Kafka: %w: %s", err, out)
		}
		return nil
	}, crash: func() error {
		if err := killKafka(port); err != nil {
			return err
		}
		return start()
	}}
}

// killKafka kills the node on a port, and returns when it is gone: it has let go of its
// data folder's lock.
func killKafka(port int) error {
	folder := filepath.Join(kafkaDir(), fmt.Sprintf("run-%d", port))
	text, err := os.ReadFile(filepath.Join(folder, "pid"))
	if err != nil {
		return fmt.Errorf("kill Kafka: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("kill Kafka: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(folder, "data", ".lock"), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("kill Kafka: %w", err)
	}
	defer lock.Close()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill Kafka: %w", err)
	}
	return syscall.FcntlFlock(lock.Fd(), syscall.F_SETLKW, &syscall.Flock_t{Type: syscall.F_WRLCK})
}

// lacunaBinary builds the binary under test, once; or it is the one at $LACUNA_BINARY.
var lacunaBinary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("LACUNA_BINARY"); path != "" {
		return path, nil
	}
	path := filepath.Join(cacheDir, "lacuna-under-test")
	out, err := exec.Command("go", "build", "-o", path, "../../cmd/lacuna").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build lacuna: %w: %s", err, out)
	}
	return path, nil
})

// startLacuna starts the lacuna binary in a directory of its own, as a person would.
func startLacuna(t *testing.T, o options) broker {
	t.Helper()
	binary, err := lacunaBinary()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "lacuna-compat-")
	require.NoError(t, err)
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)

	port := freePort(t)
	args := []string{"serve", "--listen", loopback(port), "--data-dir", filepath.Join(dir, "data")}
	for _, name := range slices.Sorted(maps.Keys(o.settings)) {
		args = append(args, "--set", name+"="+o.settings[name])
	}
	if o.advertise != "" {
		args = append(args, "--advertise", o.advertise)
	}
	if o.acceptReplication {
		args = append(args, "--accept-replication-factor")
	}
	p := &lacunaProcess{binary: binary, args: args, log: log}
	require.NoError(t, p.start())
	return broker{addr: loopback(port), crash: p.crash, stop: func() error {
		defer log.Close()
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return fmt.Errorf("stop lacuna: %w", err)
		}
		if err := p.cmd.Wait(); err != nil {
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("lacuna did not stop cleanly, its files stay in %s: %w: %s", dir, err, tail(said))
		}
		return os.RemoveAll(dir)
	}}
}

// A lacunaProcess is the process of a broker, the present one if it crashes now and then.
type lacunaProcess struct {
	binary string
	args   []string
	log    *os.File
	cmd    *exec.Cmd
}

func (p *lacunaProcess) start() error {
	p.cmd = exec.Command(p.binary, p.args...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start lacuna: %w", err)
	}
	return nil
}

func (p *lacunaProcess) crash() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill lacuna: %w", err)
	}
	if err := p.cmd.Wait(); p.cmd.ProcessState == nil {
		return fmt.Errorf("kill lacuna: %w", err)
	}
	return p.start()
}

// freePort finds a port that nobody listens on, and whose neighbour, for Kafka's
// controller, is free too. It is below those that systems give to outgoing connections: one
// of these could take it while a broker that crashed is not up again.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20000 + rand.IntN(9000)
		first, err := net.Listen("tcp", loopback(port))
		if err != nil {
			continue
		}
		second, err := net.Listen("tcp", loopback(port+1))
		first.Close()
		if err == nil {
			second.Close()
			return port
		}
	}
	require.Fail(t, "no two free ports side by side")
	return 0
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// admin is a client for what the tests themselves ask of the broker.
func (b broker) admin(t *testing.T) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addr))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

// awaitAnswer waits until the broker serves: until it knows a coordinator, which a fresh
// broker needs a moment for and some suites do not retry.
func (b broker) awaitAnswer(t *testing.T) {
	t.Helper()
	admin := b.admin(t)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		found := admin.FindGroupCoordinators(ctx, "any")
		require.NoError(c, found.Error())
	}, 30*time.Second, 50*time.Millisecond, "no answer from %s", b.addr)
}

// createTopic creates a topic for a test.
func (b broker) createTopic(t *testing.T, name string, partitions int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	answer, err := b.admin(t).CreateTopic(ctx, int32(partitions), 1, nil, name)
	require.NoError(t, err)
	require.NoError(t, answer.Err)
}
