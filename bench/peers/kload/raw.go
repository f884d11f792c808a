package main

// A share-group consumer spoken at protocol level (ShareGroupHeartbeat,
// ShareFetch with piggybacked acknowledgements). The kgo and Java share
// consumers force every record of a poll to be settled before the next poll;
// the protocol does not, and the out-of-order workloads need that freedom.

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sort"
	"sync/atomic"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type rawConn struct {
	c    net.Conn
	br   *bufio.Reader
	f    *kmsg.RequestFormatter
	corr int32
	out  []byte
	in   []byte
	rx   *atomic.Int64
}

func rawDial(addr string, rx *atomic.Int64) (*rawConn, error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &rawConn{c: c, br: bufio.NewReaderSize(c, 1<<16), f: kmsg.NewRequestFormatter(kmsg.FormatterClientID("kload")), rx: rx}, nil
}

func (r *rawConn) do(req kmsg.Request) (kmsg.Response, error) {
	r.corr++
	r.out = r.f.AppendRequest(r.out[:0], req, r.corr)
	if _, err := r.c.Write(r.out); err != nil {
		return nil, err
	}
	r.c.SetReadDeadline(time.Now().Add(40 * time.Second))
	var hdr [4]byte
	if _, err := io.ReadFull(r.br, hdr[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(hdr[:]))
	if cap(r.in) < n {
		r.in = make([]byte, n)
	}
	b := r.in[:n]
	if _, err := io.ReadFull(r.br, b); err != nil {
		return nil, err
	}
	if r.rx != nil {
		r.rx.Add(int64(n + 4))
	}
	b = b[4:] // correlation id
	resp := req.ResponseKind()
	if resp.IsFlexible() && resp.Key() != 18 {
		if len(b) > 0 && b[0] == 0 {
			b = b[1:]
		} else {
			return nil, errors.New("unexpected response tags")
		}
	}
	return resp, resp.ReadFrom(b)
}

type rawShare struct {
	hb, fc    *rawConn
	group     string
	member    string
	topic     string
	tid       [16]byte
	parts     []int32
	epoch     int32 // session
	mepoch    int32
	maxRec    int32
	maxWait   int32
	acks      map[int32][]int64
	rels      map[int32][]int64
	lastHB    time.Time
	hbEvery   time.Duration
	sentFirst bool
	ackErr    error
	strict    bool
	maxBytes  int32
}

func newRawShare(addr, group, topic string, maxRec, maxWait int32, strict bool, rx *atomic.Int64) (*rawShare, error) {
	hb, err := rawDial(addr, nil)
	if err != nil {
		return nil, err
	}
	fc, err := rawDial(addr, rx)
	if err != nil {
		return nil, err
	}
	var id [16]byte
	rand.Read(id[:])
	id[0] &= 0x7f
	s := &rawShare{hb: hb, fc: fc, group: group, topic: topic, maxRec: maxRec, maxWait: maxWait, strict: strict,
		member: base64.RawURLEncoding.EncodeToString(id[:]), acks: map[int32][]int64{}, rels: map[int32][]int64{}, hbEvery: 2 * time.Second, maxBytes: 50 << 20}
	if s.member[0] == '-' {
		s.member = "a" + s.member[1:]
	}
	md := kmsg.NewPtrMetadataRequest()
	md.Version = 12
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	md.Topics = append(md.Topics, t)
	r, err := hb.do(md)
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	mr := r.(*kmsg.MetadataResponse)
	if len(mr.Topics) != 1 || mr.Topics[0].ErrorCode != 0 {
		return nil, fmt.Errorf("metadata: %v", kerr.ErrorForCode(mr.Topics[0].ErrorCode))
	}
	s.tid = mr.Topics[0].TopicID
	deadline := time.Now().Add(20 * time.Second)
	for len(s.parts) == 0 {
		if err := s.heartbeat(); err != nil {
			return nil, fmt.Errorf("share heartbeat: %w", err)
		}
		if len(s.parts) > 0 {
			break
		}
		if time.Now().After(deadline) {
			return nil, errors.New("no assignment within 20 s")
		}
		time.Sleep(100 * time.Millisecond)
	}
	return s, nil
}

func (s *rawShare) heartbeat() error {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.Version = 1
	req.GroupID = s.group
	req.MemberID = s.member
	req.MemberEpoch = s.mepoch
	if s.mepoch == 0 {
		req.SubscribedTopicNames = []string{s.topic}
	}
	r, err := s.hb.do(req)
	if err != nil {
		return err
	}
	resp := r.(*kmsg.ShareGroupHeartbeatResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		if errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.CoordinatorLoadInProgress) || errors.Is(err, kerr.NotCoordinator) {
			return nil
		}
		return err
	}
	s.lastHB = time.Now()
	s.mepoch = resp.MemberEpoch
	if resp.Assignment != nil {
		for _, tp := range resp.Assignment.TopicPartitions {
			if tp.TopicID == s.tid {
				s.parts = tp.Partitions
			}
		}
	}
	return nil
}

func toBatches(offs []int64, typ int8, out []kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch) []kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch {
	sort.Slice(offs, func(i, j int) bool { return offs[i] < offs[j] })
	for i := 0; i < len(offs); {
		j := i
		for j+1 < len(offs) && offs[j+1] == offs[j]+1 {
			j++
		}
		b := kmsg.NewShareFetchRequestTopicPartitionAcknowledgementBatch()
		b.FirstOffset, b.LastOffset = offs[i], offs[j]
		b.AcknowledgeTypes = []int8{typ}
		out = append(out, b)
		i = j + 1
	}
	return out
}

func (s *rawShare) poll(ctx context.Context, out []load.Msg) ([]load.Msg, error) {
	if time.Since(s.lastHB) > s.hbEvery {
		if err := s.heartbeat(); err != nil {
			return out, err
		}
	}
	req := kmsg.NewPtrShareFetchRequest()
	req.Version = 2
	req.GroupID = &s.group
	req.MemberID = &s.member
	req.ShareSessionEpoch = s.epoch
	req.MaxWaitMillis = s.maxWait
	req.MinBytes = 1
	req.MaxBytes = s.maxBytes
	req.MaxRecords = s.maxRec
	req.BatchSize = s.maxRec
	if s.strict {
		req.ShareAcquireMode = 1
	}
	t := kmsg.NewShareFetchRequestTopic()
	t.TopicID = s.tid
	for _, p := range s.parts {
		rp := kmsg.NewShareFetchRequestTopicPartition()
		rp.Partition = p
		rp.PartitionMaxBytes = 10 << 20
		a := toBatches(s.acks[p], 1, nil)
		a = toBatches(s.rels[p], 2, a)
		sort.Slice(a, func(i, j int) bool { return a[i].FirstOffset < a[j].FirstOffset })
		s.acks[p] = s.acks[p][:0]
		s.rels[p] = s.rels[p][:0]
		rp.AcknowledgementBatches = a
		if len(a) > 0 || !s.sentFirst {
			t.Partitions = append(t.Partitions, rp)
		}
	}
	if len(t.Partitions) > 0 {
		req.Topics = append(req.Topics, t)
	}
	r, err := s.fc.do(req)
	if err != nil {
		return out, err
	}
	resp := r.(*kmsg.ShareFetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return out, fmt.Errorf("share fetch: %w", err)
	}
	s.sentFirst = true
	s.epoch++
	for _, rt := range resp.Topics {
		for i := range rt.Partitions {
			p := &rt.Partitions[i]
			if p.ErrorCode != 0 {
				return out, fmt.Errorf("partition: %w", kerr.ErrorForCode(p.ErrorCode))
			}
			if p.AcknowledgeErrorCode != 0 {
				s.ackErr = kerr.ErrorForCode(p.AcknowledgeErrorCode)
			}
			out = parseAcquired(p.Partition, p.Records, p.AcquiredRecords, out)
		}
	}
	return out, nil
}

// parseAcquired walks v2 batches (uncompressed) and keeps acquired offsets.
func parseAcquired(part int32, b []byte, acq []kmsg.ShareFetchResponseTopicPartitionAcquiredRecord, out []load.Msg) []load.Msg {
	if len(acq) == 0 {
		return out
	}
	ai := 0
	for len(b) >= 61 {
		base := int64(binary.BigEndian.Uint64(b))
		l := int(binary.BigEndian.Uint32(b[8:])) + 12
		if l > len(b) {
			return out
		}
		attrs := binary.BigEndian.Uint16(b[21:])
		cnt := int(binary.BigEndian.Uint32(b[57:]))
		body := b[61:l]
		b = b[l:]
		if attrs&0x27 != 0 { // compressed or control
			continue
		}
		for i := 0; i < cnt; i++ {
			ln, n := binary.Varint(body)
			if n <= 0 || int(ln)+n > len(body) {
				break
			}
			rec := body[n : n+int(ln)]
			body = body[n+int(ln):]
			rec = rec[1:]
			_, n = binary.Varint(rec) // ts delta
			rec = rec[n:]
			od, n := binary.Varint(rec)
			rec = rec[n:]
			off := base + od
			for ai < len(acq) && acq[ai].LastOffset < off {
				ai++
			}
			if ai == len(acq) {
				return out
			}
			if off < acq[ai].FirstOffset {
				continue
			}
			kl, n := binary.Varint(rec)
			rec = rec[n:]
			var key []byte
			if kl >= 0 {
				key = rec[:kl]
				rec = rec[kl:]
			}
			vl, n := binary.Varint(rec)
			rec = rec[n:]
			var val []byte
			if vl >= 0 {
				val = rec[:vl]
			}
			out = append(out, load.Msg{Part: part, Off: off, Key: key, Val: val, Deliv: int32(acq[ai].DeliveryCount)})
		}
	}
	return out
}

func (s *rawShare) ack(ms []load.Msg) {
	for i := range ms {
		s.acks[ms[i].Part] = append(s.acks[ms[i].Part], ms[i].Off)
	}
}

func (s *rawShare) flush(ctx context.Context) error {
	any := false
	for _, a := range s.acks {
		any = any || len(a) > 0
	}
	if !any {
		return s.ackErr
	}
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.Version = 2
	req.GroupID = &s.group
	req.MemberID = &s.member
	req.ShareSessionEpoch = s.epoch
	t := kmsg.NewShareAcknowledgeRequestTopic()
	t.TopicID = s.tid
	for p, offs := range s.acks {
		if len(offs) == 0 {
			continue
		}
		rp := kmsg.NewShareAcknowledgeRequestTopicPartition()
		rp.Partition = p
		for _, b := range toBatches(offs, 1, nil) {
			x := kmsg.NewShareAcknowledgeRequestTopicPartitionAcknowledgementBatch()
			x.FirstOffset, x.LastOffset, x.AcknowledgeTypes = b.FirstOffset, b.LastOffset, b.AcknowledgeTypes
			rp.AcknowledgementBatches = append(rp.AcknowledgementBatches, x)
		}
		s.acks[p] = offs[:0]
		t.Partitions = append(t.Partitions, rp)
	}
	req.Topics = append(req.Topics, t)
	r, err := s.fc.do(req)
	if err != nil {
		return err
	}
	resp := r.(*kmsg.ShareAcknowledgeResponse)
	s.epoch++
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	for _, rt := range resp.Topics {
		for _, p := range rt.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return err
			}
		}
	}
	return s.ackErr
}

// close: graceful = leave session and group; otherwise just drop the sockets.
func (s *rawShare) close(graceful bool) {
	if graceful {
		req := kmsg.NewPtrShareFetchRequest()
		req.Version = 2
		req.GroupID = &s.group
		req.MemberID = &s.member
		req.ShareSessionEpoch = -1
		s.fc.do(req)
		s.mepoch = -1
		s.heartbeat()
	}
	s.fc.c.Close()
	s.hb.c.Close()
}
