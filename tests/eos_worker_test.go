package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/client"
)

// eosJob is what a process of workers is told.
type eosJob struct {
	Addr    string
	Mode    string // a share.delivery.mode, or eosReaders
	Name    string // of its Transactor
	Process int    // no two processes have the same
	Seat    int    // which of eosSeats it has
	Seed    uint64
}

const (
	eosReaders = "readers"
	eosGroup   = "g"
	eosIn      = "in"
	eosOut     = "out"

	eosSeats   = 4 // processes
	eosPerSeat = 4 // workers of a process: members of the share group, or Readers

	eosTxnTimeout = 2 * time.Second

	// eosJobVariable makes a process of the test binary one of workers.
	eosJobVariable = "LACUNA_EOS_JOB"
)

// eosWorkers are the workers of one process: members of a share group, or Readers, and the
// one Transactor of them all. Each transaction gets an attempt's name, which its outputs
// bear, and its fate as the Transactor tells it is said on stdout.
type eosWorkers struct {
	job      eosJob
	attempts atomic.Int64
	t        *client.Transactor
	units    chan *eosUnit
	handling sync.WaitGroup

	mu  sync.Mutex // of what follows, and of stdout
	rng *rand.Rand
}

// eosUnit is a record that waits for the transaction that it goes into.
type eosUnit struct {
	record *kgo.Record
	ack    func(*client.Txn) error
	done   chan error
}

// runEOSWorkers is the life of a process of workers. It ends well when stdin does.
func runEOSWorkers(encoded string) error {
	w := &eosWorkers{units: make(chan *eosUnit)}
	if err := json.Unmarshal([]byte(encoded), &w.job); err != nil {
		return err
	}
	w.rng = rand.New(rand.NewPCG(w.job.Seed, uint64(w.job.Process)))
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin) // it never says anything: it is open for as long as we are wanted
		cancel()
	}()
	if err := w.open(ctx); err != nil {
		return err
	}
	closeSource, err := w.work(ctx)
	if err != nil {
		return err
	}
	w.say("ready", "", "")
	<-ctx.Done()
	// Who is not done by now tells where it hangs.
	defer time.AfterFunc(eosPatience/2, func() { panic("the workers do not close") }).Stop()
	if err := closeSource(context.Background()); err != nil {
		return fmt.Errorf("close the workers: %w", err)
	}
	close(w.units)
	w.handling.Wait()
	return w.t.Close(context.Background())
}

// untilOpen tries to open something while the broker may be about to start.
func untilOpen[T any](ctx context.Context, w *eosWorkers, open func() (T, error)) (T, error) {
	for {
		opened, err := open()
		if err == nil || ctx.Err() != nil {
			return opened, err
		}
		w.say("note", "", err.Error())
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func eosBackoff(int) time.Duration { return 20 * time.Millisecond }

func (w *eosWorkers) open(ctx context.Context) (err error) {
	w.t, err = untilOpen(ctx, w, func() (*client.Transactor, error) {
		return client.OpenTransactor(ctx, client.TransactionalID(w.job.Name), client.TransactionTimeout(eosTxnTimeout),
			client.TransactorRetryBackoff(eosBackoff),
			client.TransactorFailed(func(err error) { w.say("note", "", err.Error()) }),
			client.KafkaOpts(kgo.SeedBrokers(w.job.Addr), kgo.ProducerBatchCompression(kgo.SnappyCompression())))
	})
	if err != nil {
		return err
	}
	for range eosPerSeat {
		w.handling.Go(func() { w.transact(ctx) })
	}
	return nil
}

// work opens what gives records, and returns how to close it.
func (w *eosWorkers) work(ctx context.Context) (func(context.Context) error, error) {
	if w.job.Mode == eosReaders {
		return w.read(ctx)
	}
	var members []*client.Worker
	for range eosPerSeat {
		member, err := untilOpen(ctx, w, func() (*client.Worker, error) {
			return client.OpenWorker(ctx, w.handle, client.SeedBrokers(w.job.Addr), client.Group(eosGroup), client.Topics(eosIn),
				client.Concurrency(4), client.RetryBackoff(eosBackoff))
		})
		if err != nil {
			return nil, err
		}
		members = append(members, member)
	}
	return func(ctx context.Context) error {
		errs := make([]error, len(members))
		var wg sync.WaitGroup
		for i, m := range members {
			wg.Go(func() { errs[i] = m.Close(ctx) })
		}
		wg.Wait()
		return errors.Join(errs...)
	}, nil
}

// handle is the handler of the members of a share group: what has waited for the same
// goroutine goes into one transaction.
func (w *eosWorkers) handle(_ context.Context, r *client.ShareRecord) error {
	return w.ask(r.Record, func(tx *client.Txn) error { return tx.Accept(r) })
}

func (w *eosWorkers) ask(r *kgo.Record, ack func(*client.Txn) error) error {
	u := &eosUnit{record: r, ack: ack, done: make(chan error, 1)}
	w.units <- u
	return <-u.done
}

// read opens Readers, each of a part of the slots of the seat.
func (w *eosWorkers) read(ctx context.Context) (func(context.Context) error, error) {
	const width = (1 << 16) / (eosSeats * eosPerSeat)
	polling, rest := context.WithCancel(ctx)
	var polls sync.WaitGroup
	var readers []*client.Reader
	for i := range eosPerSeat {
		lo := (w.job.Seat*eosPerSeat + i) * width
		r, err := untilOpen(ctx, w, func() (*client.Reader, error) {
			return client.OpenReader(ctx, client.SeedBrokers(w.job.Addr), client.Group(eosGroup), client.Topics(eosIn),
				client.Slots(client.SlotRange{Lo: uint16(lo), Hi: uint16(lo + width - 1)}), client.RetryBackoff(eosBackoff),
				client.FetchMaxPartitionBytes(16<<10), client.FetchMaxWait(100*time.Millisecond))
		})
		if err != nil {
			rest()
			return nil, err
		}
		readers = append(readers, r)
		polls.Go(func() { w.poll(polling, r) })
	}
	return func(ctx context.Context) error {
		rest()
		polls.Wait()
		var errs []error
		for _, r := range readers {
			errs = append(errs, r.Close(ctx))
		}
		return errors.Join(errs...)
	}, nil
}

// poll has the records of a Reader handled, some at a time.
func (w *eosWorkers) poll(ctx context.Context, r *client.Reader) {
	atATime := make(chan struct{}, 4)
	var asking sync.WaitGroup
	defer asking.Wait()
	for {
		records, err := r.Poll(ctx)
		if err != nil && ctx.Err() == nil {
			w.say("note", "", err.Error())
		}
		for _, record := range records {
			atATime <- struct{}{}
			asking.Go(func() {
				defer func() { <-atATime }()
				acked := false
				err := w.ask(record, func(tx *client.Txn) error {
					acked = true
					return tx.Ack(r, record)
				})
				if err != nil && !acked { // otherwise it comes again by itself
					_ = r.Redeliver(record)
				}
			})
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// transact runs transactions of what waits: of one record, or of a few.
func (w *eosWorkers) transact(ctx context.Context) {
	for first := range w.units {
		units := []*eosUnit{first}
		for most := 1 + w.draw(4); len(units) < most; {
			select {
			case u, ok := <-w.units:
				if ok {
					units = append(units, u)
					continue
				}
			default:
			}
			break
		}
		err := w.attempt(ctx, units)
		for _, u := range units {
			u.done <- err
		}
	}
}

var errOnPurpose = errors.New("aborted on purpose")

// eosWhim is what a unit of work does beside its work.
type eosWhim struct {
	fails  bool          // before it has done anything
	acks   bool          // before it produces, not after
	early  bool          // some of it is sent while it works
	aborts bool          // when its records were produced
	hurry  time.Duration // after which its context ends; 0: never
}

// attempt runs one transaction, and says what became of it.
func (w *eosWorkers) attempt(ctx context.Context, units []*eosUnit) error {
	name := fmt.Sprintf("%d.%d", w.job.Process, w.attempts.Add(1))
	whim := w.drawWhim(ctx)
	if whim.hurry > 0 {
		hurried, cancel := context.WithTimeout(ctx, whim.hurry)
		defer cancel()
		ctx = hurried
	} else {
		ctx = context.WithoutCancel(ctx) // closing waits for it
	}
	err := w.t.Do(ctx, func(tx *client.Txn) error { return whim.unit(tx, name, units) })
	fate := eosFate(err)
	if fate == eosCommitted && whim.silent(units) {
		fate = eosAcked
	}
	w.say(fate, name, fmt.Sprint(err))
	return err
}

// silent tells that an attempt produces nothing.
func (whim *eosWhim) silent(units []*eosUnit) bool {
	return !whim.early && !slices.ContainsFunc(units, func(u *eosUnit) bool { return !eosDropped(u.record.Offset) })
}

// unit transforms the records of a transaction, and acknowledges them in it.
func (whim *eosWhim) unit(tx *client.Txn, name string, units []*eosUnit) error {
	if whim.fails {
		return errOnPurpose
	}
	ack := func() error {
		for _, u := range units {
			if err := u.ack(tx); err != nil {
				return err
			}
		}
		return nil
	}
	if whim.acks {
		if err := ack(); err != nil {
			return err
		}
	}
	var outputs []*kgo.Record
	for _, u := range units {
		if !eosDropped(u.record.Offset) {
			outputs = append(outputs, &kgo.Record{Topic: eosOut, Key: u.record.Key})
		}
	}
	at := 0
	for _, u := range units {
		if !eosDropped(u.record.Offset) {
			o := eosOutput{attempt: name, of: len(outputs), input: u.record.Offset, key: string(u.record.Key)}
			outputs[at].Value = o.encode()
			at++
		}
	}
	if err := tx.Produce(outputs...); err != nil {
		return err
	}
	if whim.early {
		if err := tx.Produce(&kgo.Record{Topic: eosOut, Value: eosFiller(name)}); err != nil {
			return err
		}
	}
	if whim.aborts {
		return errOnPurpose
	}
	if whim.acks {
		return nil
	}
	return ack()
}

func (w *eosWorkers) drawWhim(ctx context.Context) (whim eosWhim) {
	k := w.draw(100)
	if ctx.Err() != nil {
		return whim // it is time to finish
	}
	whim.acks = w.draw(2) == 0
	switch {
	case k < 3:
		whim.fails = true
	case k < 5:
		whim.aborts = true
	case k < 8:
		whim.early, whim.aborts = true, true
	case k < 9:
		whim.early = true
	case k < 14:
		whim.hurry = time.Duration(1+w.draw(30)) * time.Millisecond
	}
	return whim
}

func (w *eosWorkers) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

// The fates of attempts, as the Transactor tells them.
const (
	eosCommitted = "committed"
	eosAcked     = "acked" // committed, with no output
	eosAborted   = "aborted"
	eosConflict  = "conflict" // aborted, since the broker refused a record
	eosLost      = "lost"     // aborted, since the client knew that it had lost a record
	eosUnknown   = "unknown"
)

func eosFate(err error) string {
	switch {
	case err == nil:
		return eosCommitted
	case errors.Is(err, client.ErrOutcomeUnknown):
		return eosUnknown
	case errors.Is(err, kerr.InvalidRecordState):
		return eosConflict
	case errors.Is(err, client.ErrConflict):
		return eosLost
	}
	return eosAborted
}

// say writes a line for the process that watches. What was said before a kill is heard.
func (w *eosWorkers) say(what, attempt, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(os.Stdout, "%s|%s|%s\n", what, attempt, strings.ReplaceAll(why, "\n", "; "))
}
