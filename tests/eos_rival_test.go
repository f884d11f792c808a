package tests

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// eosRival wants records that others want, too: of a share group it keeps some for longer
// than their locks last, of a consumer group it takes those that are next. It speaks the
// protocol itself, and commits what the broker lets it have.
type eosRival struct {
	r     *eosRun
	topic [16]byte
	round int

	work sync.Mutex // held in each round
}

func newEOSRival(r *eosRun) *eosRival {
	conn := dial(r.t, r.broker.addr)
	defer conn.Close()
	topic, err := conn.MakeTopic(eosIn)
	require.NoError(r.t, err)
	return &eosRival{r: r, topic: topic}
}

// eosClaim is some records that the rival has in a transaction.
type eosClaim struct {
	name   string // of the attempt
	conn   *wire.Conn
	p      *wire.Producer
	member *wire.ShareMember // nil: of a consumer group
	inputs []int64
}

// first takes records before the others begin, and sees that they come into conflict.
func (v *eosRival) first(begin func()) {
	t := v.r.t
	c, err := v.claim(wire.Patience, wire.Patience/2)
	require.NoError(t, err)
	require.NotNil(t, c)
	defer c.conn.Close()
	if c.member == nil {
		require.NoError(t, v.stage(c))
		begin()
		v.r.account.await("no worker wants what is pending", func() bool { return v.r.account.tolds(eosConflict) > 0 })
		require.NoError(t, v.end(c, true))
		return
	}
	begin()
	<-time.After(eosLock + 100*time.Millisecond)
	require.NoError(t, c.member.Heartbeat(c.conn))
	err = v.stage(c)
	if err == nil {
		err = v.end(c, true) // the readers will see that
	} else {
		require.ErrorIs(t, err, kerr.InvalidRecordState)
		err = v.end(c, false)
	}
	require.NoError(t, err)
	require.NoError(t, c.member.Leave(c.conn))
}

// compete goes on in the same way, until it is told to end.
func (v *eosRival) compete() (end func()) {
	ctx, cancel := context.WithCancel(v.r.t.Context())
	var competing sync.WaitGroup
	competing.Go(func() {
		for ctx.Err() == nil {
			v.work.Lock()
			err := v.again(ctx)
			v.work.Unlock()
			if err != nil {
				v.r.account.note("rival: %v", err)
			}
			select { // the broker is about to start, or has nothing
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	return func() {
		cancel()
		competing.Wait()
	}
}

// rest waits until the rival holds nothing, and keeps it from going on.
func (v *eosRival) rest() (resume func()) {
	v.work.Lock()
	return v.work.Unlock
}

func (v *eosRival) again(ctx context.Context) error {
	c, err := v.claim(eosRivalTimeout, 300*time.Millisecond)
	if err != nil || c == nil {
		return err
	}
	defer c.conn.Close()
	pause := 100 * time.Millisecond
	if c.member != nil {
		pause += eosLock
	} else if err := v.stage(c); err != nil {
		return v.giveUp(c, err)
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
	if c.member != nil {
		if err := c.member.Heartbeat(c.conn); err != nil {
			return err
		}
		if err := v.stage(c); err != nil {
			return v.giveUp(c, err)
		}
	}
	return v.end(c, v.round%2 == 0)
}

// giveUp aborts what the broker has refused.
func (v *eosRival) giveUp(c *eosClaim, err error) error {
	if !errors.Is(err, kerr.InvalidRecordState) {
		return err
	}
	return v.end(c, false)
}

// eosRivalTimeout is how long a transaction of the rival may take, unless it waits for
// others.
const eosRivalTimeout = 2*eosLock + eosTxnTimeout

// claim chooses records, for which it waits a while, and produces their outputs in a
// transaction with a time-out. There may be none.
func (v *eosRival) claim(timeout, wait time.Duration) (c *eosClaim, err error) {
	v.round++
	ctx, cancel := context.WithTimeout(v.r.t.Context(), wire.Patience)
	defer cancel()
	c = &eosClaim{name: fmt.Sprintf("rival.%d", v.round)}
	if c.conn, err = wire.Dial(ctx, v.r.proxy.addr()); err != nil {
		return nil, err
	}
	if v.r.mode == eosReaders {
		c.inputs, err = v.next(c.conn)
	} else {
		c.member = &wire.ShareMember{Group: eosGroup, ID: fmt.Sprintf("rival-%d", v.round), Topic: eosIn, TopicID: v.topic, Partitions: 1}
		c.inputs, err = v.fetch(c, wait)
	}
	if err == nil && len(c.inputs) > 0 {
		if c.p, err = c.conn.InitProducer("rival", int32(timeout.Milliseconds())); err == nil {
			err = v.produce(c)
		}
	}
	if err != nil || len(c.inputs) == 0 {
		c.conn.Close()
		return nil, err
	}
	return c, nil
}

// next are the offsets behind those that are committed.
func (v *eosRival) next(conn *wire.Conn) (inputs []int64, err error) {
	ledger, err := conn.Ledger(eosGroup, eosIn, 0)
	if err != nil {
		return nil, err
	}
	for input := max(0, ledger.MaxCommit) + 10; len(inputs) < 20 && input < int64(v.r.inputs); input++ {
		if !eosDropped(input) {
			inputs = append(inputs, input)
		}
	}
	return inputs, nil
}

func (v *eosRival) fetch(c *eosClaim, wait time.Duration) (inputs []int64, err error) {
	if err := c.member.Heartbeat(c.conn); err != nil {
		return nil, err
	}
	answer, err := c.member.Fetch(c.conn, &wire.ShareFetch{MaxRecords: 3, MaxBytes: 1 << 20, MaxWaitMs: int32(wait.Milliseconds())})
	if err != nil {
		return nil, err
	}
	for _, record := range answer.Records {
		if !eosDropped(record.Offset) {
			inputs = append(inputs, record.Offset)
		}
	}
	return inputs, nil
}

func (v *eosRival) produce(c *eosClaim) error {
	return c.p.ProduceBatch(c.conn, eosOut, 0, func(b *protocol.BatchBuilder) {
		for _, input := range c.inputs {
			o := eosOutput{attempt: c.name, of: len(c.inputs), input: input, key: "rival"}
			b.Append(nil, o.encode(), nil, time.Now().UnixMilli())
		}
	})
}

// stage acknowledges what is claimed. What the broker refuses is a conflict.
func (v *eosRival) stage(c *eosClaim) error {
	member := ""
	if c.member != nil {
		member = c.member.ID
	}
	err := c.p.Stage(c.conn, eosGroup, member, eosIn, 0, -1, commits(c.inputs...))
	if errors.Is(err, kerr.InvalidRecordState) {
		v.r.account.tell(c.name, eosConflict)
	}
	return err
}

// end ends the transaction. If no answer comes, nobody knows how.
func (v *eosRival) end(c *eosClaim, commit bool) error {
	err := c.p.End(c.conn, commit)
	switch {
	case err != nil:
		return err
	case commit:
		v.r.account.tell(c.name, eosCommitted)
	default:
		v.r.account.tell(c.name, eosAborted)
	}
	return nil
}
