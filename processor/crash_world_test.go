package processor_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/processor"
)

// crashWorld is a broker and processes of processors, all of which are killed: what goes on
// of them reaches nobody, and what they have on their disks is all that is left.
type crashWorld struct {
	ctx  context.Context // ends when the run has taken too long
	job  crashJob
	rng  *rand.Rand
	opts []processor.Option // of all processes, after the others
	net  *crashNet
	trap crashTrap

	seats   []*crashSeat
	hired   int           // seats that have come
	session time.Duration // after which the dead are no members

	kafka      *kgo.Client
	partitions int32
	keys       int
	produced   map[string]int // versions of each key
	inputs     int
	topics     sync.Map       // names by id
	news       chan struct{}  // something was emitted, or is wrong
	reading    sync.WaitGroup // of outputs
	ending     sync.WaitGroup // of what was killed
	began      time.Time

	mu struct {
		sync.Mutex
		disk    *vfs.MemFS // the broker's
		broker  *broker.Broker
		emitted *emitted
		ended   bool // the last output was read
		wrong   []error
		log     []string
		// assigned is what processes were assigned, by the names of their seats.
		assigned map[string][][]processor.TaskStatus
	}
}

// crashSeat is what stays of a process from one life to the next. The world's mutex guards it.
type crashSeat struct {
	name  string
	disk  *vfs.MemFS
	lives int
	life  *crashLife // nil: it does not run
}

func newCrashWorld(ctx context.Context, job crashJob, seed uint64, opts ...processor.Option) (*crashWorld, error) {
	w := &crashWorld{ctx: ctx, job: job, rng: rand.New(rand.NewPCG(seed, 7)), opts: opts, session: 800 * time.Millisecond, produced: make(map[string]int), news: make(chan struct{}, 1), began: time.Now()}
	w.net = &crashNet{links: make(map[*crashLink]struct{})}
	w.mu.emitted, w.mu.disk = newEmitted(job), vfs.NewCrashableMem()
	w.partitions, w.keys = int32(1+w.rng.IntN(2)), 1+w.rng.IntN(4)
	if err := w.startBroker(); err != nil {
		return w, err
	}
	var err error
	if w.kafka, err = kgo.NewClient(w.kafkaOpts(w.net.link(nil), "world", kgo.ConsumeTopics("out"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(time.Second), kgo.ProducerLinger(0))...); err != nil {
		return w, err
	}
	if err := w.makeTopics(); err != nil {
		return w, err
	}
	w.reading.Go(w.read)
	return w, nil
}

// makeTopics creates the topics, and learns the names of all.
func (w *crashWorld) makeTopics() error {
	admin := kadm.NewClient(w.kafka)
	for topic, partitions := range map[string]int32{"in": w.partitions, "out": 1} {
		if _, err := admin.CreateTopic(w.ctx, partitions, 1, nil, topic); err != nil {
			return err
		}
	}
	found, err := admin.ListTopicsWithInternal(w.ctx)
	for _, t := range found {
		w.topics.Store(base64.RawURLEncoding.EncodeToString(t.ID[:]), t.Topic)
	}
	return err
}

func (w *crashWorld) topicName(id string) string {
	if name, ok := w.topics.Load(id); ok {
		return name.(string)
	}
	return "another topic"
}

func (w *crashWorld) kafkaOpts(link *crashLink, name string, opts ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{kgo.SeedBrokers("127.0.0.1:1"), kgo.Dialer(link.dial), kgo.ClientID(name), kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond })}, opts...)
}

// startBroker starts a broker on what there is on its disk.
func (w *crashWorld) startBroker() error {
	w.mu.Lock()
	disk := errorfs.Wrap(w.mu.disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if at, ok := diskPoint(op, w.topicName); ok {
			w.trap.pass(theBroker, at)
		}
		return nil
	}))
	w.mu.Unlock()
	b, err := broker.Start(w.ctx, broker.Config{Listen: []string{"127.0.0.1:0"}, Advertise: "127.0.0.1:1", DataDir: "data", FS: disk, Logger: w.brokerLog(), Settings: map[string]string{
		"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1", "group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100",
	}})
	if err != nil {
		return fmt.Errorf("start the broker: %w", err)
	}
	w.mu.Lock()
	w.mu.broker = b
	w.mu.Unlock()
	w.net.lead(b.Addr())
	return nil
}

// note logs what happens.
func (w *crashWorld) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(format, args...)
}

func (w *crashWorld) noteLocked(format string, args ...any) {
	w.mu.log = append(w.mu.log, fmt.Sprintf("%v %s", time.Since(w.began).Round(time.Millisecond), fmt.Sprintf(format, args...)))
}

// violated notes what must not be. The run ends soon.
func (w *crashWorld) violated(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked("wrong: %v", err)
	w.mu.wrong = append(w.mu.wrong, err)
	w.tellLocked()
}

func (w *crashWorld) tellLocked() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// read reads the outputs until the last one.
func (w *crashWorld) read() {
	for w.ctx.Err() == nil {
		fetched := w.kafka.PollFetches(w.ctx)
		if fetched.IsClientClosed() {
			return
		}
		w.mu.Lock()
		for _, o := range fetched.Records() {
			if w.mu.ended = string(o.Key) == lastOutput; !w.mu.ended {
				w.mu.emitted.add(o)
			}
		}
		ended := w.mu.ended
		w.tellLocked()
		w.mu.Unlock()
		if ended {
			return
		}
	}
}

// lastOutput is the key of the output that ends a run.
const lastOutput = "the end"

// nudge writes a record of each key. Should one before it be lost, that is seen then.
func (w *crashWorld) nudge() {
	w.note("nudge")
	for key := range w.keys {
		w.produceKey(key)
	}
}

// produce writes some records. It does not wait until they are written, since the broker may
// be killed meanwhile.
func (w *crashWorld) produce(n int) {
	for range n {
		w.produceKey(w.rng.IntN(w.keys))
	}
}

func (w *crashWorld) produceKey(number int) {
	key := fmt.Sprint("key-", number)
	w.produced[key]++
	w.inputs++
	w.kafka.Produce(w.ctx, &kgo.Record{Topic: "in", Key: []byte(key), Value: []byte(strconv.Itoa(w.produced[key]))}, func(_ *kgo.Record, err error) {
		if err != nil && w.ctx.Err() == nil {
			w.violated(fmt.Errorf("produce: %w", err))
		}
	})
}

// errLate marks a run that came to no end.
var errLate = errors.New("it takes too long")

// nudgeAfter is how long nothing may be emitted while something should be.
const nudgeAfter = 2 * time.Second

// await waits until all inputs are emitted, or until what is fired.
func (w *crashWorld) await(fired <-chan struct{}) (sprung bool, err error) {
	for {
		w.mu.Lock()
		distinct := w.mu.emitted.distinct
		w.mu.Unlock()
		if w.isWrong() || distinct >= w.inputs {
			return false, nil
		}
		select {
		case <-fired:
			return true, nil
		case <-w.news:
		case <-time.After(nudgeAfter):
			w.nudge()
		case <-w.ctx.Done():
			return false, fmt.Errorf("%w: %d of %d inputs are emitted", errLate, distinct, w.inputs)
		}
	}
}

// killed is what was killed.
type killed struct {
	lives  []*crashLife
	broker *broker.Broker // nil: it lives on
}

// kill kills processes, and the broker or not. Of what was written and not synced so many
// percent are left. It may be what springs a trap.
func (w *crashWorld) kill(seats []*crashSeat, brokerToo bool, percent int, rng *rand.Rand) (k killed) {
	left := func(disk *vfs.MemFS) *vfs.MemFS {
		return disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if brokerToo {
		w.net.down()
	}
	for _, s := range seats {
		if s.life != nil {
			s.life.die()
			k.lives = append(k.lives, s.life)
			s.disk, s.life = left(s.disk), nil
		}
	}
	if brokerToo {
		k.broker, w.mu.disk = w.mu.broker, left(w.mu.disk)
	}
	return k
}

// mourn ends the goroutines of what was killed, while all else goes on, and starts a broker
// if there is none.
func (w *crashWorld) mourn(k killed) error {
	for _, l := range k.lives {
		w.ending.Go(l.end)
	}
	if k.broker == nil {
		return nil
	}
	w.ending.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := k.broker.Stop(ctx); err != nil {
			w.note("stop a broker that was killed: %v", err)
		}
	})
	return w.startBroker()
}

// removeDead removes from the group who is dead, before its session ends.
func (w *crashWorld) removeDead() error {
	groups, err := kadm.NewClient(w.kafka).DescribeGroups(w.ctx, crashGroup)
	if err != nil {
		return fmt.Errorf("describe the group: %w", err)
	}
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group = crashGroup
	alive := make(map[string]bool)
	for _, l := range w.lives() {
		alive[l.name] = true
	}
	for _, m := range groups[crashGroup].Members {
		if !alive[m.ClientID] {
			member := kmsg.NewLeaveGroupRequestMember()
			member.MemberID = m.MemberID
			leave.Members = append(leave.Members, member)
		}
	}
	if len(leave.Members) == 0 {
		return nil
	}
	w.note("removes %d members", len(leave.Members))
	_, err = leave.RequestWith(w.ctx, w.kafka)
	return err
}

// lives are the processes that run.
func (w *crashWorld) lives() (all []*crashLife) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.seats {
		if s.life != nil {
			all = append(all, s.life)
		}
	}
	return all
}

// finish waits until all inputs are acknowledged, which those are not that were emitted at
// least once and then killed. It lets all processes end in good order, and checks what there is
// of outputs.
func (w *crashWorld) finish() error {
	if err := w.awaitLedger(); err != nil || w.isWrong() {
		return err
	}
	lives := w.lives()
	for _, l := range lives {
		close(l.stop)
	}
	for _, l := range lives {
		l.end()
	}
	if err := w.kafka.ProduceSync(w.ctx, &kgo.Record{Topic: "out", Key: []byte(lastOutput)}).FirstErr(); err != nil {
		return fmt.Errorf("produce the last output: %w", err)
	}
	w.reading.Wait()
	if !w.mu.ended {
		return fmt.Errorf("%w: the last output is not read", errLate)
	}
	return errors.Join(w.mu.emitted.check(w.produced), w.checkLedger())
}

// awaitLedger waits until all inputs are acknowledged.
func (w *crashWorld) awaitLedger() error {
	nudge := time.Now().Add(nudgeAfter)
	for {
		err := w.checkLedger()
		if err == nil || w.isWrong() {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-w.ctx.Done():
			return fmt.Errorf("%w: %w", errLate, err)
		}
		if time.Now().After(nudge) {
			nudge = time.Now().Add(nudgeAfter)
			w.nudge()
		}
	}
}

// isWrong tells that the run need not go on.
func (w *crashWorld) isWrong() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mu.wrong) > 0 || len(w.mu.emitted.wrong) > 0
}

// checkLedger checks that all inputs are acknowledged.
func (w *crashWorld) checkLedger() error {
	admin := kadm.NewClient(w.kafka)
	ends, err := admin.ListEndOffsets(w.ctx, "in")
	if err != nil {
		return err
	}
	done, err := admin.FetchOffsets(w.ctx, crashGroup)
	if err != nil {
		return err
	}
	var wrong []error
	ends.Each(func(end kadm.ListedOffset) {
		if at, ok := done.Lookup("in", end.Partition); end.Offset > 0 && (!ok || at.At != end.Offset) {
			wrong = append(wrong, fmt.Errorf("in[%d] is acknowledged up to %d and ends at %d", end.Partition, at.At, end.Offset))
		}
	})
	return errors.Join(wrong...)
}

// done ends a run that came to err, and says all that is known of it if it went wrong.
func (w *crashWorld) done(err error) error {
	if w.kafka != nil && errors.Is(w.ctx.Err(), context.DeadlineExceeded) {
		w.noteWaits()
	}
	// What went wrong meanwhile comes first, since it may have ended the run.
	if err = errors.Join(w.end(), err); err == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Errorf("%w\n%s", err, strings.Join(w.mu.log, "\n"))
}

// end ends all that runs, and says what went wrong meanwhile.
func (w *crashWorld) end() error {
	w.trap.unset()
	k := w.kill(w.seats, false, 0, nil)
	for _, l := range k.lives {
		l.end()
	}
	w.ending.Wait()
	w.mu.Lock() // what is not produced by now is wrong for no other reason than the end
	b, wrong := w.mu.broker, slices.Concat(w.mu.wrong, w.mu.emitted.wrong)
	w.mu.Unlock()
	if w.kafka != nil {
		w.kafka.Close()
	}
	w.reading.Wait()
	if b == nil {
		return errors.Join(wrong...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(errors.Join(wrong...), b.Stop(ctx))
}
