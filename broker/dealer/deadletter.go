package dealer

import (
	"context"
	"sync"
	"time"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"go.uber.org/zap"
)

// DeadLetters writes records that nobody could handle to a group's dead-letter topic.
type DeadLetters interface {
	// Write writes one dead letter, and returns when it is durable.
	Write(ctx context.Context, group string, tp extension.TopicPartition, letter cooperative.DeadLetter) error
}

// How long a dead letter waits that could not be written, at first and at most.
const (
	letterRetry    = 100 * time.Millisecond
	letterRetryMax = 10 * time.Second
)

// letters are the dead letters of a partition that are to be written. While there are any
// a goroutine writes them, one after another.
type letters struct {
	p  *partition
	mu struct {
		sync.Mutex
		queue   []cooperative.DeadLetter
		writing bool
	}
}

// add takes in dead letters. It waits for nothing.
func (l *letters) add(p *partition, more []cooperative.DeadLetter) {
	if len(more) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.queue = append(l.mu.queue, more...)
	if !l.mu.writing {
		l.mu.writing = true
		l.p = p
		p.d.wg.Go(l.write)
	}
}

// next takes the first dead letter, and ends the writing if there is none.
func (l *letters) next() (letter cooperative.DeadLetter, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.queue) == 0 || l.p.ctx.Err() != nil {
		l.mu.queue, l.mu.writing = nil, false
		return letter, false
	}
	letter = l.mu.queue[0]
	l.mu.queue = l.mu.queue[1:]
	return letter, true
}

// later puts a dead letter at the end of the queue and tells whether it is alone there.
func (l *letters) later(letter cooperative.DeadLetter) (alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.queue = append(l.mu.queue, letter)
	return len(l.mu.queue) == 1
}

// write writes until there is none left. One that cannot be written holds up no other.
func (l *letters) write() {
	p, failed, pause := l.p, 0, letterRetry
	for {
		letter, ok := l.next()
		if !ok {
			return
		}
		err := p.d.opts.DeadLetters.Write(p.ctx, p.group, p.TopicPartition, letter)
		if err == nil {
			failed, pause = 0, letterRetry
			// If the ledger is gone, the count that is logged has it written again.
			_, _ = p.do(func(*individualcommit.Ledger) {
				p.locked.dealing.DeadLettered([]int64{letter.Offset}, &p.locked.changes)
			})
			p.rouse()
			continue
		}
		if p.ctx.Err() == nil {
			p.d.opts.Logger.Error("a dead letter cannot be written: its record waits",
				zap.Stringer("partition", p.key), zap.Int64("offset", letter.Offset), zap.Error(err))
		}
		if failed++; l.later(letter) || failed >= l.len() {
			l.rest(pause)
			failed, pause = 0, min(2*pause, letterRetryMax)
		}
	}
}

func (l *letters) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.queue)
}

func (l *letters) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.p.ctx.Done():
	}
}
