package tests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// What the groups of the checker are set to.
const (
	shareLock    = time.Second
	shareSession = 2500 * time.Millisecond
	shareLimit   = 4
)

// shareCheck lets the workers of a share group do what they like, and the broker crash,
// and checks all that they see.
type shareCheck struct {
	t          *testing.T
	rng        *rand.Rand
	group      string
	topic      string
	topicID    [16]byte
	partitions int32
	plan       sharePlan
	letters    letterQueue
	account    *shareAccount
	broker     shareHost
	keys       int
	cutting    bool // connections are cut while a fetch waits, too

	calm        atomic.Bool // workers accept all they get, and wait for more as long as it takes
	calmFilters bool        // by filters that take all together; set before they are calm
	someTakeAll bool        // without a filter
	over        atomic.Bool // nothing is asked of the broker any more
	mu          struct {
		sync.Mutex
		addr    string
		workers map[*shareWorker]struct{}
	}
}

// shareHost runs the broker.
type shareHost interface {
	start() (addr string)
	// die ends the broker as a crash does. What is left is for start.
	die()
	// bury cleans up behind die.
	bury()
	stop()
}

// inProcess is a broker in this process, on a file system that loses what is not synced.
type inProcess struct {
	t    *testing.T
	disk *vfs.MemFS
	left *vfs.MemFS
	rng  *rand.Rand
	b    *broker.Broker
}

var shareSettings = map[string]string{
	"errors.deadletterqueue.auto.create.topics.enable": "true",
	"offsets.topic.num.partitions":                     "2", "offsets.topic.segment.bytes": "20000", "log.cleaner.backoff.ms": "20", "log.cleaner.min.cleanable.ratio": "0",
	"group.share.min.record.lock.duration.ms": fmt.Sprint(shareLock.Milliseconds()),
	"group.share.min.session.timeout.ms":      "100", "group.share.min.heartbeat.interval.ms": "100",
}

func (h *inProcess) start() string {
	var err error
	h.b, err = broker.Start(context.Background(), broker.Config{
		Listen: []string{"127.0.0.1:0"}, DataDir: "data", FS: errorfs.Wrap(h.disk, errorfs.InjectorFunc(slowSyncs)), Settings: shareSettings,
	})
	require.NoError(h.t, err)
	return h.b.Addr()
}

// slowSyncs makes a disk slow, so that a crash comes upon what is not synced yet, and slower
// for every other topic, so that of two topics either is behind.
func slowSyncs(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		pause := 3 * time.Millisecond
		if _, id, ok := strings.Cut(op.Path, "topics/"); ok && len(id) > 10 && id[10]%2 == 0 { // what begins an id is the time
			pause *= 5
		}
		<-time.After(pause)
	}
	return nil
}

func (h *inProcess) die() {
	h.left = h.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50 * h.rng.IntN(3), RNG: h.rng})
}

func (h *inProcess) bury() {
	h.stop()
	h.disk = h.left
}

func (h *inProcess) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), wire.Patience)
	defer cancel()
	require.NoError(h.t, h.b.Stop(ctx))
}

// killed is a broker in a process of its own.
type killed struct {
	t   *testing.T
	dir string
	p   *process
}

func (h *killed) start() string {
	var flags []string
	for name, value := range shareSettings {
		flags = append(flags, "--set", name+"="+value)
	}
	h.p = startProcess(h.t, h.dir, flags...)
	return h.p.addr
}

func (h *killed) die()  { h.p.kill() }
func (h *killed) bury() {}
func (h *killed) stop() { h.p.stop() }

// newShareCheck draws a group and its topic.
func newShareCheck(t *testing.T, seed uint64, plan sharePlan, host shareHost) *shareCheck {
	c := &shareCheck{t: t, rng: rand.New(rand.NewPCG(seed, 1)), group: "g", topic: "t", plan: plan, broker: host}
	c.partitions = []int32{1, 8}[c.rng.IntN(2)]
	c.keys = []int{1, 5, 50}[c.rng.IntN(3)]
	c.cutting = c.rng.IntN(3) == 0
	c.account = newShareAccount(plan, shareLimit, shareLock-2*time.Millisecond) // the broker counts in ms
	c.mu.workers = make(map[*shareWorker]struct{})
	c.mu.addr = host.start()
	conn := dial(t, c.mu.addr)
	require.NoError(t, conn.CreateTopic(c.topic, c.partitions, nil))
	var err error
	c.topicID, err = conn.MakeTopic(c.topic)
	require.NoError(t, err)
	settings := plan.groupSettings(c.rng)
	if plan.letters {
		require.NoError(t, c.letters.prepare(c.rng, conn, settings))
	}
	configureGroup(t, c.mu.addr, c.group, settings)
	return c
}

// at is where the broker is, in which of its lives.
func (c *shareCheck) at() (addr string, life int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.addr, c.account.life()
}

// register makes a worker known, whose connections a crash of the broker cuts. It tells
// whether there has been none since it was to join.
func (c *shareCheck) register(w *shareWorker) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.workers[w] = struct{}{}
	return w.life == c.account.life()
}

func (c *shareCheck) unregister(w *shareWorker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.workers, w)
}

// cutAll cuts the connections of all workers.
func (c *shareCheck) cutAll() {
	for w := range c.mu.workers {
		w.cut()
	}
}

// crash lets the broker crash and start again.
func (c *shareCheck) crash() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.account.crash(c.broker.die)
	c.cutAll()
	c.broker.bury()
	c.mu.addr = c.broker.start()
}

// complain notes an error that a worker should not see: not one of a connection that was
// cut, nor one that says that the worker was fenced, since it was slow.
func (w *shareWorker) complain(err error) {
	var kind *kerr.Error
	if !errors.As(err, &kind) || errors.Is(err, kerr.UnknownMemberID) && time.Now().After(w.patience()) {
		return
	}
	a := w.c.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.life == a.mu.life && !w.dead {
		a.fault("%s: %v", w.m.ID, err)
	}
}

// rest rests, unless there is nothing to do any more.
func (c *shareCheck) rest(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end) && !c.over.Load(); {
		<-time.After(10 * time.Millisecond)
	}
}

// produce appends n records, some of which have no key, a few at a time, within about
// that time.
func (c *shareCheck) produce(rng *rand.Rand, n int, within time.Duration) {
	pace := within / time.Duration(n)
	for n > 0 {
		addr, life := c.at()
		conn, err := wire.Dial(context.Background(), addr)
		for err == nil && n > 0 {
			few := min(n, 1+rng.IntN(20))
			if err = c.produceFew(conn, rng, life, few); err == nil {
				n -= few
				<-time.After(pace * time.Duration(few))
			}
		}
		if conn != nil {
			conn.Close()
		}
		if err != nil {
			<-time.After(10 * time.Millisecond) // the broker is about to start
		}
	}
}

func (c *shareCheck) produceFew(conn *wire.Conn, rng *rand.Rand, life, n int) error {
	var b protocol.BatchBuilder
	o := protocol.PlainBatch(0)
	o.Codec = protocol.Codec(rng.IntN(5))
	b.Reset(o)
	type record struct{ key, value string }
	var all []record
	for range n {
		r := record{value: fmt.Sprint(rng.Uint64())}
		var key []byte
		if rng.IntN(10) > 0 {
			r.key = fmt.Sprint("key-", rng.IntN(c.keys))
			key = []byte(r.key)
		}
		b.Append(key, []byte(r.value), nil, time.Now().UnixMilli())
		all = append(all, r)
	}
	batch, err := b.Build(nil)
	require.NoError(c.t, err)
	partition := int32(rng.IntN(int(c.partitions)))
	c.account.producing()
	resp, err := conn.Do(wire.ProduceRequest(c.topic, partition, -1, batch))
	if err != nil {
		return err
	}
	base, err := wire.ProducedAt(resp)
	if err != nil {
		return err
	}
	c.account.mu.Lock()
	defer c.account.mu.Unlock()
	if life != c.account.mu.life {
		return errors.New("the broker is another")
	}
	for i, r := range all {
		c.account.record(shareOffset{partition, base + int64(i)}, r.key, r.value)
	}
	c.account.mu.unanswered = false
	return nil
}

// run lets so many workers, some of which wait as long as it takes, work on so many
// records while the broker crashes now and then, and then checks that all comes to an end.
func (c *shareCheck) run(workers, records, crashes int, chaos time.Duration) {
	c.t.Logf("%v: %d workers, %d partitions, %d keys, %d records, %d crashes", c.plan, workers, c.partitions, c.keys, records, crashes)
	var wg sync.WaitGroup
	for i := range workers {
		rng := rand.New(rand.NewPCG(c.rng.Uint64(), 2))
		wg.Go(func() {
			for n := 0; !c.over.Load(); n++ {
				c.live(rng, i, n)
				<-time.After(time.Millisecond)
			}
		})
	}
	producer := rand.New(rand.NewPCG(c.rng.Uint64(), 3))
	c.produce(producer, records/2, 0)
	var producing sync.WaitGroup
	producing.Go(func() { c.produce(producer, records-records/2, chaos) })
	c.disturb(crashes, records/2, chaos)
	c.calmDown(workers)
	producing.Wait()
	ends, letters := c.end(producer)
	c.over.Store(true)
	c.mu.Lock()
	c.cutAll()
	c.mu.Unlock()
	wg.Wait()
	c.broker.stop()
	require.Empty(c.t, firstOf(c.account.faults()))
	archived, ended := c.account.finish(ends)
	if c.plan.letters {
		c.account.checkLetters(&c.letters, c.group, c.topic, letters)
	}
	c.t.Logf("%d deliveries, %d of them seen late, %d records accepted or rejected, %d archived, %d dead letters, %d changes of the mode",
		c.account.mu.seen, c.account.mu.late, ended, archived, len(letters), len(c.account.mu.modes)-1)
	require.Empty(c.t, firstOf(c.account.faults()))
}

// disturb lets the broker crash so many times, each upon an answer or a little later, and
// the mode change.
func (c *shareCheck) disturb(crashes, records int, chaos time.Duration) {
	over, end := context.WithTimeout(context.Background(), chaos)
	defer end()
	var switching sync.WaitGroup
	defer switching.Wait()
	if c.plan.switches {
		rng := rand.New(rand.NewPCG(c.rng.Uint64(), 4))
		switching.Go(func() { c.keepSwitching(over, rng) })
	}
	if c.plan.letters {
		records = 10
	}
	for range crashes {
		select {
		case <-c.account.afterMore(1 + c.rng.IntN(records)):
			<-time.After(time.Duration(c.rng.IntN(2)*c.rng.IntN(10)) * time.Millisecond)
			c.crash()
		case <-over.Done():
		}
	}
	<-over.Done()
}

// calmDown has workers accept all that comes. Where each holds its own keys they take all.
func (c *shareCheck) calmDown(workers int) {
	if c.plan.letters {
		require.NoError(c.t, c.letters.open(dial(c.t, c.mu.addr)))
	}
	c.someTakeAll = c.rng.IntN(2) == 0
	c.calmFilters = c.plan.filters && workers > 1 && c.lastMode() != "key-range"
	c.calm.Store(true)
}

// end waits until all has come to its end, and reads the dead letters as a crash leaves them.
func (c *shareCheck) end(producer *rand.Rand) (ends []int64, letters []deadLetter) {
	begun := time.Now()
	c.finish()
	c.t.Logf("calm after %v", time.Since(begun))
	if c.plan.switches { // while all wait
		modes := shareModes
		if c.calmFilters {
			modes = modes[:2]
		}
		c.switchMode(c.otherMode(c.rng, modes))
	}
	c.produce(producer, 20, 0) // while all wait and nothing else happens
	ends = c.finish()
	if c.plan.letters {
		c.crash()
		ends = c.finish()
		var err error
		letters, err = c.letters.read(dial(c.t, c.mu.addr))
		require.NoError(c.t, err)
	}
	return ends, letters
}

func firstOf(faults []string) []string { return faults[:min(len(faults), 10)] }

// finish waits until the group is done with everything. The fetches that wait meanwhile
// have to be woken up.
func (c *shareCheck) finish() (ends []int64) {
	conn := dial(c.t, c.mu.addr)
	for p := range c.partitions {
		end, err := conn.EndOffset(c.topic, p)
		require.NoError(c.t, err)
		ends = append(ends, end)
	}
	var starts []int64
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
		var err error
		starts, err = conn.ShareStart(c.group, c.topic, c.partitions)
		require.NoError(c.t, err)
		if slices.Equal(starts, ends) {
			return ends
		}
	}
	c.account.mu.Lock()
	defer c.account.mu.Unlock()
	c.account.flaw("the group does not finish: it is at %v of %v", starts, ends)
	return ends
}

func sortRecords(all []*shareRecord) {
	slices.SortFunc(all, func(a, b *shareRecord) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
	})
}

// TestShareGroups is the checker: whatever workers and broker do, in the end every record
// is accepted, rejected, or archived at its limit, the latter two with a dead letter where
// there is a topic for it. None comes again after that was answered, none is with two
// members at once or with one whose filter does not take it, delivery counts are right, and
// in the ordered modes the order per key holds, also from a change of the mode on.
func TestShareGroups(t *testing.T) {
	for seed := range seeds(t, scaled(4, 60)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(uint64(seed), 9))
			h := &inProcess{t: t, disk: vfs.NewCrashableMem(), rng: rng}
			c := newShareCheck(t, uint64(seed), planOf(seed), h)
			workers := []int{1, 2, 5, 16, 64}[rng.IntN(5)]
			c.run(workers, 300+rng.IntN(700), rng.IntN(3), time.Duration(scaled(1000, 2000))*time.Millisecond)
		})
	}
}

// TestShareGroupsKilled is the same for a broker that kill -9 ends.
func TestShareGroupsKilled(t *testing.T) {
	for seed := range scaled(1, 6) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			plan := planOf(seed + 73) // that of the first seed mixes in all
			c := newShareCheck(t, uint64(seed), plan, &killed{t: t, dir: t.TempDir()})
			c.run(8, 600, 2, time.Second)
		})
	}
}
