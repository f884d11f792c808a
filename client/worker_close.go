package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// goodbyeTimeout is how long the last requests may take when the context of Close has ended.
const goodbyeTimeout = 5 * time.Second

// Close stops fetching, lets the handlers that are at work finish, records what became of
// their records, gives back those that no handler has begun, and leaves the group. What is
// given back does not count as a delivery.
//
// If ctx ends first, the contexts of the handlers end with [ErrWorkerClosed], their records
// are given back too, and Close still waits for them to return. It returns what failed.
func (w *Worker) Close(ctx context.Context) error {
	w.mu.Lock()
	first := !w.mu.state.stopping
	if first {
		w.mu.state.stop()
		w.mu.work.Broadcast()
	}
	w.mu.Unlock()
	if !first {
		<-w.closed
		return w.closeErr
	}
	err := w.drain(ctx)
	if err != nil {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(context.WithoutCancel(ctx), goodbyeTimeout)
		defer stop()
	}
	w.closeErr = errors.Join(err, w.sayGoodbye(ctx))
	w.cancel()
	w.wg.Wait()
	w.handlers.Wait()
	w.abandon(ErrWorkerClosed)
	w.disconnect()
	close(w.closed)
	return w.closeErr
}

// drain waits until all handlers have returned and every outcome is recorded. If ctx ends
// first it gives up what is left.
func (w *Worker) drain(ctx context.Context) error {
	for {
		w.mu.Lock()
		done, quiet := w.mu.state.quiet(), w.mu.quiet
		running := w.mu.state.queue.running
		w.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-quiet:
			continue
		case <-ctx.Done():
		}
		w.mu.Lock()
		e := w.mu.state.abandon(ErrWorkerClosed)
		w.mu.Unlock()
		w.tell(e)
		w.abandon(ErrWorkerClosed)
		return fmt.Errorf("wait for %d handlers and for what they did to be recorded: %w", running, context.Cause(ctx))
	}
}

// sayGoodbye ends every session, with what is left to acknowledge, and leaves the group.
func (w *Worker) sayGoodbye(ctx context.Context) error {
	w.mu.Lock()
	var last []func() error
	for _, src := range w.mu.sources {
		if a := src.session.last(); a != nil {
			last = append(last, func() error { return src.close(ctx, a) })
		}
	}
	w.mu.Unlock()
	errs := make([]error, len(last))
	var wg sync.WaitGroup
	for i, end := range last {
		wg.Go(func() { errs[i] = end() })
	}
	wg.Wait()
	return errors.Join(append(errs, w.leave(ctx))...)
}

// leave ends the membership. Who is no member any more has left.
func (w *Worker) leave(ctx context.Context) error {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.GroupID, req.MemberID, req.MemberEpoch = w.cfg.group, w.member, finalEpoch
	resp, err := req.RequestWith(ctx, w.acks)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err == nil || errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.GroupIDNotFound) {
		return nil
	}
	return &GroupError{Group: w.cfg.group, Doing: "leave", Err: err}
}
