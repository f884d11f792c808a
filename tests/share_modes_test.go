package tests

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/tests/wire"
)

// modeChange is a change of the group's delivery mode. A partition takes it in between sent
// and heard, the latter zero until it is known. From then on nothing is dealt there until
// nothing is acquired any more, and then in the new mode.
type modeChange struct {
	mode        string
	sent, heard time.Time
}

// dealtBy are the changes, first to last, after which a fetch that was sent then may have
// been dealt what its worker sees now.
func (a *shareAccount) dealtBy(sent time.Time) (first, last int) {
	last = len(a.mu.modes) - 1
	for first = last; first > 0; first-- {
		if heard := a.mu.modes[first].heard; !heard.IsZero() && heard.Before(sent) {
			break
		}
	}
	return first, last
}

// surelyOrdered tells whether what a fetch that was sent then is dealt by now has an order
// per key.
func (a *shareAccount) surelyOrdered(sent time.Time) bool {
	first, last := a.dealtBy(sent)
	for _, m := range a.mu.modes[first : last+1] {
		if !hasOrder(m.mode) {
			return false
		}
	}
	return true
}

// checkMode looks whether a partition may deal again after the last change of the mode: not
// while anybody has what was dealt in another mode.
func (a *shareAccount) checkMode(r *shareRecord, sent, now time.Time) {
	first, last := a.dealtBy(sent)
	before := a.mu.effective[r.partition]
	if first < last || before == last {
		return
	}
	a.mu.effective[r.partition] = last
	change := &a.mu.modes[last]
	for _, m := range a.mu.modes[before:last] {
		if m.mode == change.mode {
			return // that may be how it dealt all the time
		}
	}
	for _, other := range a.mu.records {
		if other.partition == r.partition && other.holder != nil && other.seen.Before(change.sent) && now.Before(a.sureUntil(other)) {
			a.fault("%v is dealt in mode %s while %s has %v from before", r.shareOffset, change.mode, other.holder.m.ID, other.shareOffset)
		}
	}
}

// switchMode changes the delivery mode, and returns when all partitions have heard of it.
func (c *shareCheck) switchMode(mode string) {
	a := c.account
	a.mu.Lock()
	a.mu.modes = append(a.mu.modes, modeChange{mode: mode, sent: time.Now()})
	change := &a.mu.modes[len(a.mu.modes)-1]
	a.mu.Unlock()
	err := errors.New("not tried")
	for err != nil {
		addr, _ := c.at()
		if err = setMode(addr, c.group, mode); err != nil {
			var kind *kerr.Error
			if errors.As(err, &kind) && !kind.Retriable {
				break
			}
			<-time.After(10 * time.Millisecond) // the broker is about to start
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.flaw("the mode does not change: %v", err)
	}
	change.heard = time.Now()
}

// setMode changes the delivery mode of a group.
func setMode(addr, group, mode string) error {
	conn, err := wire.Dial(context.Background(), addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Configure(kmsg.ConfigResourceTypeGroupConfig, group, map[string]string{"share.delivery.mode": mode}); err != nil {
		return err
	}
	if err := conn.DescribeShare(group); !errors.Is(err, kerr.GroupIDNotFound) {
		return err
	}
	return nil
}

// keepSwitching changes the mode now and then until it is time to calm down.
func (c *shareCheck) keepSwitching(over context.Context, rng *rand.Rand) {
	for {
		select {
		case <-over.Done():
			return
		case <-time.After(time.Duration(100+rng.IntN(500)) * time.Millisecond):
			c.switchMode(c.otherMode(rng, shareModes))
		}
	}
}

// otherMode draws a mode other than the present one.
func (c *shareCheck) otherMode(rng *rand.Rand, of []string) string {
	for {
		if mode := of[rng.IntN(len(of))]; mode != c.lastMode() {
			return mode
		}
	}
}

// lastMode is the mode that was set last.
func (c *shareCheck) lastMode() string {
	c.account.mu.Lock()
	defer c.account.mu.Unlock()
	return c.account.mu.modes[len(c.account.mu.modes)-1].mode
}
