package wire

import (
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/protocol"
)

// The versions that share requests are sent at.
const (
	shareHeartbeatVersion   = 1
	shareFetchVersion       = 2
	shareAcknowledgeVersion = 2
	shareOffsetsVersion     = 0
	shareDescribeVersion    = 1
)

// ShareMember is a member of a share group that fetches all partitions of one topic. One
// goroutine at a time may use it, but for Heartbeat, which another may.
type ShareMember struct {
	Group, ID  string
	Topic      string
	TopicID    [16]byte
	Partitions int32

	epoch    int32 // of the member
	session  int32 // epoch of the share session
	filtered bool  // the fetch under way has a filter
}

// Acked is what a member says of records [First, Last] of a partition.
type Acked struct {
	Partition   int32
	First, Last int64
	Type        int8 // 0 gap, 1 accept, 2 release, 3 reject, 4 renew
}

// Shared is a record that was dealt to a member. Key and Value alias the answer.
type Shared struct {
	Partition  int32
	Offset     int64
	Count      int16 // of its deliveries, this one included
	Key, Value []byte
}

// ShareFetch is what a member asks for.
type ShareFetch struct {
	MaxRecords int32
	MaxBytes   int32
	MaxWaitMs  int32
	Whole      bool // batches are dealt whole
	Acked      []Acked
	Filter     *protocol.KeyFilter // nil: all records
	Last       bool                // it closes the session, and gets nothing
}

// ShareAnswer is the answer to a ShareFetch.
type ShareAnswer struct {
	Records []Shared // by partition and offset
	Refused map[int32]error
}

// Heartbeat joins the group with the first call, and stays in it with the others.
func (m *ShareMember) Heartbeat(c *Conn) error { return m.heartbeat(c, m.epoch) }

// Leave leaves the group.
func (m *ShareMember) Leave(c *Conn) error { return m.heartbeat(c, -1) }

func (m *ShareMember) heartbeat(c *Conn, epoch int32) error {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.SetVersion(shareHeartbeatVersion)
	req.GroupID, req.MemberID, req.MemberEpoch = m.Group, m.ID, epoch
	if epoch == 0 {
		req.SubscribedTopicNames = []string{m.Topic}
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	answer := resp.(*kmsg.ShareGroupHeartbeatResponse)
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return fmt.Errorf("heartbeat of %s: %w", m.ID, err)
	}
	m.epoch = answer.MemberEpoch
	return nil
}

// Fetch asks for records, and acknowledges some.
func (m *ShareMember) Fetch(c *Conn, f *ShareFetch) (*ShareAnswer, error) {
	if err := m.SendFetch(c, f); err != nil {
		return nil, err
	}
	return m.ReceiveFetch(c)
}

// SendFetch is the first half of Fetch.
func (m *ShareMember) SendFetch(c *Conn, f *ShareFetch) error {
	req := kmsg.NewPtrShareFetchRequest()
	req.SetVersion(shareFetchVersion)
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &m.Group, &m.ID, m.session
	if f.Last {
		req.ShareSessionEpoch = closeSession
	}
	if m.filtered = f.Filter != nil; m.filtered {
		req.UnknownTags.Set(protocol.ExtensionTag, f.Filter.AppendTo(nil))
	}
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = f.MaxWaitMs, 1, f.MaxBytes
	req.MaxRecords, req.BatchSize, req.ShareAcquireMode = f.MaxRecords, f.MaxRecords, 1
	if f.Whole {
		req.ShareAcquireMode = 0
	}
	t := kmsg.NewShareFetchRequestTopic()
	t.TopicID = m.TopicID
	for i := range m.Partitions {
		p := kmsg.NewShareFetchRequestTopicPartition()
		p.Partition = i
		for _, a := range f.Acked {
			if a.Partition == i {
				b := kmsg.NewShareFetchRequestTopicPartitionAcknowledgementBatch()
				b.FirstOffset, b.LastOffset, b.AcknowledgeTypes = a.First, a.Last, []int8{a.Type}
				p.AcknowledgementBatches = append(p.AcknowledgementBatches, b)
			}
		}
		if req.ShareSessionEpoch == 0 || len(p.AcknowledgementBatches) > 0 {
			t.Partitions = append(t.Partitions, p)
		}
	}
	if len(t.Partitions) > 0 {
		req.Topics = append(req.Topics, t)
	}
	if m.session++; f.Last {
		m.NewSession()
	}
	return c.Send(req)
}

// ReceiveFetch is the second half of Fetch.
func (m *ShareMember) ReceiveFetch(c *Conn) (*ShareAnswer, error) {
	resp := kmsg.NewPtrShareFetchResponse()
	resp.SetVersion(shareFetchVersion)
	if err := c.receivePatiently(resp); err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, fmt.Errorf("fetch of %s: %w", m.ID, err)
	}
	if err := m.checkFilterApplied(resp); err != nil {
		return nil, err
	}
	answer := &ShareAnswer{Refused: make(map[int32]error)}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("fetch of %s, partition %d: %w", m.ID, p.Partition, err)
			}
			if err := kerr.ErrorForCode(p.AcknowledgeErrorCode); err != nil {
				answer.Refused[p.Partition] = err
			}
			if err := answer.add(p); err != nil {
				return nil, fmt.Errorf("fetch of %s, partition %d: %w", m.ID, p.Partition, err)
			}
		}
	}
	return answer, nil
}

// checkFilterApplied looks whether the answer says that the filter was heeded, if there was
// one.
func (m *ShareMember) checkFilterApplied(resp *kmsg.ShareFetchResponse) error {
	applied := false
	var wrong error
	resp.UnknownTags.Each(func(tag uint32, field []byte) {
		applied = applied || tag == protocol.ExtensionTag
		if _, err := protocol.ParseFilterApplied(field); err != nil {
			wrong = fmt.Errorf("fetch of %s: tag %d: %w", m.ID, tag, err)
		}
	})
	if wrong == nil && applied != m.filtered {
		wrong = fmt.Errorf("fetch of %s: it has a filter: %v, and was filtered: %v", m.ID, m.filtered, applied)
	}
	return wrong
}

// add takes out the records that were acquired, all of which have to be there.
func (a *ShareAnswer) add(p *kmsg.ShareFetchResponseTopicPartition) error {
	acquired := p.AcquiredRecords
	next := int64(0)
	begin := func() {
		if len(acquired) > 0 {
			next = acquired[0].FirstOffset
		}
	}
	begin()
	err := EachRecord(p.Records, func(r *protocol.Record) error {
		for len(acquired) > 0 && r.Offset > acquired[0].LastOffset {
			acquired = acquired[1:]
			begin()
		}
		if len(acquired) == 0 || r.Offset < acquired[0].FirstOffset {
			return nil
		}
		if r.Offset != next {
			return fmt.Errorf("offset %d was acquired and is not in the answer", next)
		}
		next++
		a.Records = append(a.Records, Shared{Partition: p.Partition, Offset: r.Offset, Count: acquired[0].DeliveryCount, Key: r.Key, Value: r.Value})
		if r.Offset == acquired[0].LastOffset {
			acquired = acquired[1:]
			begin()
		}
		return nil
	})
	if err == nil && len(acquired) > 0 {
		return fmt.Errorf("offset %d was acquired and is not in the answer", next)
	}
	return err
}

// Hang ends the connection from this side, while another goroutine may wait for an answer.
func (c *Conn) Hang() error { return c.Conn.(*net.TCPConn).CloseWrite() }

// Finish ends the connection and returns when the broker has ended all that it did for it,
// be there answers under way or not.
func (c *Conn) Finish() error {
	_ = c.Hang() // it may have been ended before
	if err := c.SetReadDeadline(time.Now().Add(Patience)); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, c.in)
	return err
}

// Acknowledge says what became of records. It returns what was refused, by partition.
func (m *ShareMember) Acknowledge(c *Conn, acked []Acked) (refused map[int32]error, err error) {
	return m.acknowledge(c, acked, m.session)
}

// closeSession is the epoch of a request that closes its session.
const closeSession = -1

// CloseSession acknowledges records and frees what else the member has acquired. It
// returns what was refused, by partition. The next fetch opens another session.
func (m *ShareMember) CloseSession(c *Conn, acked []Acked) (refused map[int32]error, err error) {
	refused, err = m.acknowledge(c, acked, closeSession)
	m.NewSession()
	return refused, err
}

// NewSession has the next fetch open another session. If there is one it is not closed, so
// that the member keeps what it has.
func (m *ShareMember) NewSession() { m.session = 0 }

// InSession tells whether the member has opened a session. Without one it can acknowledge
// nothing.
func (m *ShareMember) InSession() bool { return m.session != 0 }

func (m *ShareMember) acknowledge(c *Conn, acked []Acked, session int32) (refused map[int32]error, err error) {
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.SetVersion(shareAcknowledgeVersion)
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &m.Group, &m.ID, session
	t := kmsg.NewShareAcknowledgeRequestTopic()
	t.TopicID = m.TopicID
	for _, a := range acked {
		b := kmsg.NewShareAcknowledgeRequestTopicPartitionAcknowledgementBatch()
		b.FirstOffset, b.LastOffset, b.AcknowledgeTypes = a.First, a.Last, []int8{a.Type}
		req.IsRenewAck = req.IsRenewAck || a.Type == 4
		if n := len(t.Partitions); n == 0 || t.Partitions[n-1].Partition != a.Partition {
			p := kmsg.NewShareAcknowledgeRequestTopicPartition()
			p.Partition = a.Partition
			t.Partitions = append(t.Partitions, p)
		}
		p := &t.Partitions[len(t.Partitions)-1]
		p.AcknowledgementBatches = append(p.AcknowledgementBatches, b)
	}
	if len(acked) > 0 {
		req.Topics = append(req.Topics, t)
	}
	m.session++
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	answer := resp.(*kmsg.ShareAcknowledgeResponse)
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return nil, fmt.Errorf("acknowledgement of %s: %w", m.ID, err)
	}
	refused = make(map[int32]error)
	for i := range answer.Topics {
		for _, p := range answer.Topics[i].Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				refused[p.Partition] = err
			}
		}
	}
	return refused, nil
}

// ShareStart is up to where a share group is done with each partition of a topic, -1 where
// it has not begun.
func (c *Conn) ShareStart(group, topic string, partitions int32) ([]int64, error) {
	req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	req.SetVersion(shareOffsetsVersion)
	g := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	g.GroupID = group
	t := kmsg.NewDescribeShareGroupOffsetsRequestGroupTopic()
	t.Topic = topic
	for i := range partitions {
		t.Partitions = append(t.Partitions, i)
	}
	g.Topics = append(g.Topics, t)
	req.Groups = append(req.Groups, g)
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	starts := make([]int64, partitions)
	for _, g := range resp.(*kmsg.DescribeShareGroupOffsetsResponse).Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return nil, err
		}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, err
				}
				starts[p.Partition] = p.StartOffset
			}
		}
	}
	return starts, nil
}

// DescribeShare asks for the description of a share group. When it is answered the group's
// settings are heeded as they were when it was asked.
func (c *Conn) DescribeShare(group string) error {
	req := kmsg.NewPtrShareGroupDescribeRequest()
	req.SetVersion(shareDescribeVersion)
	req.GroupIDs = []string{group}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	for _, g := range resp.(*kmsg.ShareGroupDescribeResponse).Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return fmt.Errorf("describe share group %s: %w", group, err)
		}
	}
	return nil
}
