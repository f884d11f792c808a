package processor_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/processor"
)

// expel has the group remove all its members.
func (r *rig) expel() error {
	groups, err := kadm.NewClient(r.kafka).DescribeGroups(r.t.Context(), "job")
	if err != nil {
		return err
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = "job"
	for _, m := range groups["job"].Members {
		member := kmsg.NewLeaveGroupRequestMember()
		member.MemberID = m.MemberID
		req.Members = append(req.Members, member)
	}
	_, err = req.RequestWith(r.t.Context(), r.kafka)
	return err
}

// expelled forwards the number of the punctuation in each, and is removed from its group in the
// first.
type expelled struct {
	c *processor.Context
	r *rig
	n *atomic.Int64
}

func (p *expelled) Init(c *processor.Context) error {
	p.c = c
	_, err := c.Schedule(10*time.Millisecond, processor.WallClock, func(time.Time) error {
		n := p.n.Add(1)
		if n == 1 {
			if err := p.r.expel(); err != nil {
				return err
			}
		}
		return c.Forward(&kgo.Record{Key: []byte("tick"), Value: strconv.AppendInt(nil, n, 10)})
	})
	return err
}

func (p *expelled) Process(*kgo.Record) error { return nil }
func (p *expelled) Close() error              { return nil }

// A member that was removed emits nothing more, also where it acknowledges nothing.
func TestWhoWasRemovedPunctuatesNothing(t *testing.T) {
	r := newRig(t, 1)
	n := new(atomic.Int64)
	r.open(processor.Topology{Inputs: []string{"in"}, Sinks: []string{"out"}, Processors: []processor.Node{{
		Name: "tick", New: func() processor.Processor { return &expelled{r: r, n: n} }}}},
		processor.ExactlyOnce(), processor.Name("w1"), processor.MemberOpts(kgo.HeartbeatInterval(time.Second)))
	first := string(r.output(1)[0].Value)
	require.NotEqual(t, "1", first, "it was emitted by one who was no member")
}
