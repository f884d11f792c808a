package processor_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/processor"
	"github.com/lacunamq/lacuna/statestore"
)

const crashGroup = "job"

// crashLife is one life of a process.
type crashLife struct {
	w      *crashWorld
	seat   string // its name
	name   string
	link   *crashLink
	ctx    context.Context // ends with its death
	cancel context.CancelFunc
	stop   chan struct{} // closed for it to end in good order
	done   chan struct{}
	app    atomic.Pointer[processor.App]
}

// vacant tells that nobody is on a seat.
func (w *crashWorld) vacant(s *crashSeat) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.life == nil
}

// hire begins a life of a seat.
func (w *crashWorld) hire(s *crashSeat) {
	w.mu.Lock()
	s.lives++
	l := &crashLife{w: w, seat: s.name, name: fmt.Sprintf("%s-%d", s.name, s.lives), stop: make(chan struct{}), done: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(w.ctx)
	l.link = w.net.link(func(at crashPoint) { w.trap.pass(s, at) })
	s.life = l
	disk := s.disk
	w.mu.Unlock()
	w.note("%s begins", l.name)
	go l.run(w.lifeOpts(l, s, disk))
}

func (w *crashWorld) lifeOpts(l *crashLife, s *crashSeat, left *vfs.MemFS) []processor.Option {
	disk := errorfs.Wrap(left, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if at, ok := diskPoint(op, w.topicName); ok {
			w.trap.pass(s, at)
		}
		return nil
	}))
	opts := []processor.Option{
		processor.KafkaOpts(w.kafkaOpts(l.link, l.name)...), processor.Name(s.name), processor.StateDir("state"), processor.StateFS(disk),
		processor.HandOverThreshold(5), processor.UnitRecords(1 + w.rng.IntN(8)),
		processor.MemberOpts(kgo.SessionTimeout(w.session), kgo.HeartbeatInterval(20*time.Millisecond), kgo.RebalanceTimeout(5*time.Second)),
		processor.OnEvents(processor.Hooks{
			Failed:    func(err error) { w.note("%s: failed: %v", l.name, err) },
			Restarted: func(bucket int32, err error) { w.note("%s: bucket %d restarted: %v", l.name, bucket, err) },
			Assigned:  func(tasks []processor.TaskStatus) { w.noteAssigned(l, tasks) },
			Committed: func(bucket int32, records, replayed int) {
				w.note("%s: bucket %d committed %d, %d silently", l.name, bucket, records, replayed)
			},
		})}
	if w.job.once {
		opts = append(opts, processor.ExactlyOnce())
	}
	if w.job.ack == processor.AckAtProcess && w.rng.IntN(2) == 0 {
		opts = append(opts, processor.StoreOpener(statestore.Pebble(statestore.SyncEach())))
	}
	if w.job.changelog {
		opts = append(opts, processor.Changelog("log"))
	}
	return append(opts, w.opts...)
}

func (w *crashWorld) noteAssigned(l *crashLife, tasks []processor.TaskStatus) {
	w.note("%s: assigned %v", l.name, tasks)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.assigned != nil {
		w.mu.assigned[l.seat] = append(w.mu.assigned[l.seat], tasks)
	}
}

// run opens the App until that works, and closes it in the end.
func (l *crashLife) run(opts []processor.Option) {
	defer close(l.done)
	wrong := func(what string) {
		if l.ctx.Err() == nil {
			l.w.violated(errors.New(l.name + ": " + what))
		}
	}
	var app *processor.App
	said := ""
	for app == nil {
		var err error
		if app, err = processor.Open(l.ctx, crashGroup, l.w.job.topology(wrong), opts...); err == nil {
			break
		}
		if err.Error() != said {
			said = err.Error()
			l.w.note("%s: %s", l.name, said)
		}
		select {
		case <-l.stop:
			return
		case <-l.ctx.Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
	l.app.Store(app)
	l.w.note("%s is open", l.name)
	select {
	case <-l.stop:
	case <-l.ctx.Done():
	case <-app.Failed():
	}
	err := errors.Join(app.Err(), app.Close(l.ctx))
	if err != nil && l.ctx.Err() == nil {
		wrong(err.Error())
	}
}

// die is the end of all that the process can do to others.
func (l *crashLife) die() {
	l.link.cut()
	l.cancel()
}

// end waits for the end of all goroutines.
func (l *crashLife) end() {
	<-l.done
	l.cancel()
	l.link.cut()
}
