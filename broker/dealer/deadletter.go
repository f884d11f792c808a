package dealer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"go.uber.org/zap"
)

// DeadLetters writes records that nobody could handle to a group's dead-letter topic.
type DeadLetters interface {
	// Write writes the dead letters of records of one partition, and returns when they are
	// durable. Those that could not be written are left, in any order, and err says why. A
	// record for which no letter is to be written, whatever the reason, is not left. The
	// letters are the callee's.
	Write(ctx context.Context, group string, tp extension.TopicPartition, letters []cooperative.DeadLetter) (left []cooperative.DeadLetter, err error)
}

// How long dead letters wait that could not be written, at first and at most.
const (
	letterRetry    = 100 * time.Millisecond
	letterRetryMax = 10 * time.Second
)

// lettersAtOnce is how many dead letters are written together at most.
const lettersAtOnce = 1000

// letters are the dead letters of a partition that are to be written. While there are any
// a goroutine writes them.
type letters struct {
	// retry holds a signal when what could not be written may have become writable.
	retry chan struct{}
	mu    struct {
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
		p.d.wg.Go(p.writeLetters)
	}
}

// next takes the dead letters that are first in line, and ends the writing if there are
// none.
func (l *letters) next(ctx context.Context) []cooperative.DeadLetter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.queue) == 0 || ctx.Err() != nil {
		l.mu.queue, l.mu.writing = nil, false
		return nil
	}
	n := min(len(l.mu.queue), lettersAtOnce)
	first := slices.Clone(l.mu.queue[:n])
	l.mu.queue = l.mu.queue[:copy(l.mu.queue, l.mu.queue[n:])]
	return first
}

// putBack puts dead letters at the end of the line, so that they hold up no other, and
// gives how many are in it.
func (l *letters) putBack(left []cooperative.DeadLetter) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.queue = append(l.mu.queue, left...)
	return len(l.mu.queue)
}

// tryAgain lets letters that could not be written be tried again at once.
func (l *letters) tryAgain() { signal(l.retry) }

// writeLetters writes until there is none left.
func (p *partition) writeLetters() {
	for pause := letterRetry; ; {
		due := p.letters.next(p.ctx)
		if len(due) == 0 {
			return
		}
		if !p.decided() {
			continue // the partition ends
		}
		done := make(map[int64]bool, len(due))
		for i := range due {
			done[due[i].Offset] = true
		}
		left, err := p.d.opts.DeadLetters.Write(p.ctx, p.group, p.TopicPartition, due)
		for i := range left {
			delete(done, left[i].Offset)
		}
		if len(done) > 0 {
			pause = letterRetry
			p.lettered(slices.Sorted(maps.Keys(done)))
		}
		if len(left) == 0 {
			continue
		}
		waiting := p.letters.putBack(left)
		if p.ctx.Err() != nil {
			continue
		}
		p.d.opts.Logger.Error("dead letters cannot be written: their records wait",
			zap.Stringer("partition", p.key), zap.Int64("offset", left[0].Offset), zap.Int("waiting", waiting), zap.Error(err))
		p.restLetters(pause)
		pause = min(2*pause, letterRetryMax)
	}
}

// decided waits until it is durable that the letters which are due are to be written. One
// about a record that a crash let be dealt again would be about a record that may be
// accepted.
func (p *partition) decided() bool {
	seen, err := p.do(func(*individualcommit.Ledger) {})
	return err == nil && p.ledger.Wait(p.ctx, seen) == nil
}

// lettered archives the records of dead letters that are durable.
func (p *partition) lettered(offsets []int64) {
	// If the ledger is gone, the count that is logged has them written again.
	_, _ = p.act(func(*individualcommit.Ledger) {
		p.locked.dealing.DeadLettered(offsets, &p.locked.changes)
	})
}

func (p *partition) restLetters(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.letters.retry:
	case <-p.ctx.Done():
	}
}
