package load

import (
	"context"
	"fmt"
	"time"
)

// heldMsg is a record that is acked later.
type heldMsg struct {
	due time.Time
	m   Msg
}

// work is one consumer: it polls, handles, acks and holds back what the workload says.
func (q *queue) work(i int) {
	c := q.consumers[i]
	var buf, acks []Msg
	var later []heldMsg
	for q.ctx.Err() == nil {
		var err error
		buf, err = c.Poll(q.ctx, buf[:0])
		if err != nil && q.ctx.Err() == nil {
			q.fail(fmt.Errorf("consumer %d: %w", i, err))
			break
		}
		now := time.Now()
		if len(buf) > 0 {
			q.firstAt.CompareAndSwap(0, now.UnixNano())
			q.lastAt.Store(now.UnixNano())
		}
		acks = acks[:0]
		for j := range buf {
			if q.handle(i, &buf[j], now) {
				later = append(later, q.hold(buf[j], now))
			} else {
				acks = append(acks, buf[j])
			}
		}
		q.noticePhase2()
		due := 0
		for due < len(later) && later[due].due.Before(now) {
			acks = append(acks, later[due].m)
			due++
		}
		later = later[due:]
		q.held.Add(int64(-due))
		if len(acks) == 0 {
			continue
		}
		if err := c.Ack(acks); err != nil && q.ctx.Err() == nil {
			q.fail(fmt.Errorf("ack %d: %w", i, err))
		}
		q.acked.Add(int64(len(acks)))
	}
	q.settle(i, c)
}

// settle waits at the end until the server has confirmed what was acked.
func (q *queue) settle(i int, c Consumer) {
	if q.cfg.Abandon {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.Flush(ctx); err != nil {
		q.fail(fmt.Errorf("flush %d: %w", i, err))
	}
}

// handle takes in one record, and says whether its ack is held back.
func (q *queue) handle(i int, m *Msg, now time.Time) (hold bool) {
	if len(m.Val) < valueHeader {
		return false
	}
	if m.Deliv > 1 {
		q.redeliveredAt.CompareAndSwap(0, now.UnixNano())
	}
	seq := Seq(m.Val)
	isNew := q.seen.Add(seq)
	if isNew {
		q.per[i].Add(1)
		if q.cfg.Live && now.After(q.start.Add(q.cfg.Warm)) {
			q.latency.Add(now.Sub(time.Unix(0, Stamp(m.Val))))
		}
	}
	if q.cfg.HotKey != "" {
		if string(m.Key) == q.cfg.HotKey {
			time.Sleep(q.cfg.HotSleep)
			q.hot.Add(time.Since(q.start))
		} else {
			q.cold.Add(time.Since(q.start))
		}
		q.lastAt.Store(time.Now().UnixNano())
	}
	switch {
	case q.cfg.HoldAll:
		return true
	case q.cfg.HoldFirst > 0:
		return int64(seq) < 2*q.cfg.HoldFirst && seq&1 == 1
	case q.cfg.LatePct > 0 && isNew:
		return int((seq*2654435761)>>7%100) < q.cfg.LatePct
	}
	return false
}

// hold keeps a record for a later ack, without its bytes.
func (q *queue) hold(m Msg, now time.Time) heldMsg {
	due := now.Add(q.cfg.LateFor)
	if q.cfg.HoldAll || q.cfg.HoldFirst > 0 {
		due = now.Add(time.Hour)
	}
	m.Key, m.Val = nil, nil
	if n := q.held.Add(1); n > q.mostHeld.Load() {
		q.mostHeld.Store(n)
	}
	return heldMsg{due: due, m: m}
}

// noticePhase2 remembers when all gaps of the workload were open: what comes after is
// measured with them.
func (q *queue) noticePhase2() {
	if q.cfg.HoldFirst == 0 || q.phase2At.Load() != 0 || q.seen.Uniq.Load() < 2*q.cfg.HoldFirst {
		return
	}
	if q.phase2At.CompareAndSwap(0, time.Now().UnixNano()) {
		q.phase2CPU.Store(ReadProc(q.cfg.Pid).CPU)
	}
}
