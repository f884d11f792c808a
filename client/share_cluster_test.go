package client

import (
	"cmp"
	"net"
	"slices"
	"time"

	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fakeShare is the one share group of a test cluster, as strict as a broker about epochs,
// acquisition and order, and with a log of what it was asked.
type fakeShare struct {
	c       *cluster
	mode    string
	lock    time.Duration
	limit   int // of deliveries
	members map[string]int32
	left    []string
	session map[string]*fakeSession
	shared  map[sharePartition]map[int64]*fakeShared
	log     []shareAsk

	// refuse gives the answer to acknowledgements of a partition before anything happens.
	refuse func(kind ackKind, first, last int64) *kerr.Error
	// taken are the epochs that were refused.
	refusedEpochs int
}

// shareAsk is what one request asked.
type shareAsk struct {
	key   kmsg.Key
	epoch int32
	acks  []ackRun
	max   int32
}

type fakeSession struct {
	conn       net.Conn
	epoch      int32 // of the next request
	partitions map[sharePartition]struct{}
	over       chan struct{}
}

// fakeShared is an offset that somebody has acquired once. The states are those of KIP-932.
type fakeShared struct {
	state    string // "acquired", "available", "acknowledged", "archived"
	member   string
	deadline time.Time
	count    int
}

// serveShares gives the cluster a share group.
func (c *cluster) serveShares() *fakeShare {
	c.share = &fakeShare{c: c, lock: 30 * time.Second, limit: 5, mode: "round-robin", members: make(map[string]int32),
		session: make(map[string]*fakeSession), shared: make(map[sharePartition]map[int64]*fakeShared)}
	c.features = append(c.features, protocol.FeatureCooperativeDelivery)
	return c.share
}

// with runs a function under the cluster's lock.
func (f *fakeShare) with(do func()) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	do()
	f.c.growLocked()
}

// states counts the offsets of topic t in a state.
func (f *fakeShare) states(state string) (n int) {
	f.with(func() {
		for _, offsets := range f.shared {
			for _, o := range offsets {
				if o.state == state {
					n++
				}
			}
		}
	})
	return n
}

// asked are the requests of an API so far.
func (f *fakeShare) asked(key kmsg.Key) (asks []shareAsk) {
	f.with(func() {
		for _, a := range f.log {
			if a.key == key {
				asks = append(asks, a)
			}
		}
	})
	return asks
}

func (f *fakeShare) disconnected(conn net.Conn) {
	f.with(func() {
		for member, s := range f.session {
			if s.conn == conn {
				f.end(member, s)
			}
		}
	})
}

// end closes a session: what is acquired becomes available and that delivery does not count.
func (f *fakeShare) end(member string, s *fakeSession) {
	close(s.over)
	delete(f.session, member)
	for at, offsets := range f.shared {
		if _, ok := s.partitions[at]; !ok {
			continue
		}
		for _, o := range offsets {
			if o.state == "acquired" && o.member == member {
				o.state = "available"
				o.count--
			}
		}
	}
}

func (f *fakeShare) answer(conn net.Conn, req kmsg.Request) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.ShareGroupHeartbeatRequest:
		return f.heartbeat(req)
	case *kmsg.DescribeConfigsRequest:
		return f.describe(req)
	case *kmsg.ShareFetchRequest:
		return f.fetch(conn, req)
	case *kmsg.ShareAcknowledgeRequest:
		return f.acknowledge(req)
	}
	return nil
}

func (f *fakeShare) describe(req *kmsg.DescribeConfigsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	for _, r := range req.Resources {
		rr := kmsg.NewDescribeConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = r.ResourceType, r.ResourceName
		config := kmsg.NewDescribeConfigsResponseResourceConfig()
		config.Name, config.Value = modeConfig, &f.mode
		rr.Configs = append(rr.Configs, config)
		resp.Resources = append(resp.Resources, rr)
	}
	return resp
}

func (f *fakeShare) heartbeat(req *kmsg.ShareGroupHeartbeatRequest) (answer kmsg.Response) {
	resp := req.ResponseKind().(*kmsg.ShareGroupHeartbeatResponse)
	resp.HeartbeatIntervalMillis = 5000
	f.with(func() {
		epoch, known := f.members[req.MemberID]
		switch {
		case req.MemberEpoch == -1:
			delete(f.members, req.MemberID)
			f.left = append(f.left, req.MemberID)
			resp.MemberEpoch = -1
			return
		case req.MemberEpoch == 0:
			epoch = int32(len(f.log) + 1)
			f.members[req.MemberID] = epoch
		case !known:
			resp.ErrorCode = kerr.UnknownMemberID.Code
			return
		}
		resp.MemberID, resp.MemberEpoch = &req.MemberID, epoch
		resp.Assignment = &kmsg.ShareGroupHeartbeatResponseAssignment{}
		for _, t := range f.c.topics {
			rt := kmsg.NewShareGroupHeartbeatResponseAssignmentTopicPartition()
			rt.TopicID = t.id
			for i := range t.partitions {
				rt.Partitions = append(rt.Partitions, int32(i))
			}
			resp.Assignment.TopicPartitions = append(resp.Assignment.TopicPartitions, rt)
		}
	})
	return resp
}

// enter checks the epoch of a request and moves it on.
func (f *fakeShare) enter(conn net.Conn, member string, epoch int32) (*fakeSession, *kerr.Error) {
	s := f.session[member]
	if epoch == 0 {
		if s != nil {
			f.end(member, s)
		}
		s = &fakeSession{conn: conn, epoch: 1, partitions: make(map[sharePartition]struct{}), over: make(chan struct{})}
		f.session[member] = s
		return s, nil
	}
	switch {
	case s == nil:
		return nil, kerr.ShareSessionNotFound
	case epoch == finalEpoch:
	case epoch != s.epoch:
		f.refusedEpochs++
		return nil, kerr.InvalidShareSessionEpoch
	default:
		s.epoch++
	}
	return s, nil
}

func (f *fakeShare) acknowledge(req *kmsg.ShareAcknowledgeRequest) (answer kmsg.Response) {
	resp := req.ResponseKind().(*kmsg.ShareAcknowledgeResponse)
	resp.AcquisitionLockTimeoutMillis = int32(f.lock.Milliseconds())
	f.with(func() {
		ask := shareAsk{key: kmsg.ShareAcknowledge, epoch: req.ShareSessionEpoch}
		s, refused := f.enter(nil, *req.MemberID, req.ShareSessionEpoch)
		if refused != nil {
			resp.ErrorCode = refused.Code
			return
		}
		for _, t := range req.Topics {
			rt := kmsg.NewShareAcknowledgeResponseTopic()
			rt.TopicID = t.TopicID
			for _, p := range t.Partitions {
				var runs []ackRun
				for _, b := range p.AcknowledgementBatches {
					runs = append(runs, ackRun{b.FirstOffset, b.LastOffset, ackKind(b.AcknowledgeTypes[0])})
				}
				ask.acks = append(ask.acks, runs...)
				rp := kmsg.NewShareAcknowledgeResponseTopicPartition()
				rp.Partition = p.Partition
				if err := f.apply(sharePartition{t.TopicID, p.Partition}, *req.MemberID, runs); err != nil {
					rp.ErrorCode = err.Code
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		f.log = append(f.log, ask)
		if req.ShareSessionEpoch == finalEpoch {
			f.end(*req.MemberID, s)
		}
	})
	return resp
}

// apply takes the acknowledgements of a partition in, all or none.
func (f *fakeShare) apply(at sharePartition, member string, runs []ackRun) *kerr.Error {
	for _, run := range runs {
		if f.refuse != nil {
			if err := f.refuse(run.kind, run.first, run.last); err != nil {
				return err
			}
		}
		for o := run.first; o <= run.last; o++ {
			at := f.shared[at][o]
			if at == nil || at.state != "acquired" || at.member != member || !at.deadline.After(time.Now()) {
				return kerr.InvalidRecordState
			}
		}
	}
	for _, run := range runs {
		for o := run.first; o <= run.last; o++ {
			shared := f.shared[at][o]
			switch run.kind {
			case ackAccept, ackGap:
				shared.state = "acknowledged"
			case ackReject:
				shared.state = "archived"
			case ackRenew:
				shared.deadline = time.Now().Add(f.lock)
			case ackRelease:
				f.release(at, o)
			}
		}
	}
	return nil
}

// release makes an offset available, or archives it, and with it the later ones of its key.
func (f *fakeShare) release(at sharePartition, offset int64) {
	shared := f.shared[at][offset]
	if shared.state = "available"; shared.count >= f.limit {
		shared.state = "archived"
	}
	if f.mode == "round-robin" {
		return
	}
	p := f.c.partitionByID(at.topic, at.number)
	for o, later := range f.shared[at] {
		if o > offset && later.state == "acquired" && later.member == shared.member && string(p.records[o].key) == string(p.records[offset].key) {
			later.state = "available"
			later.count--
		}
	}
}

// expire releases what is acquired for too long.
func (f *fakeShare) expire() {
	for at, offsets := range f.shared {
		for o, shared := range offsets {
			if shared.state == "acquired" && !shared.deadline.After(time.Now()) {
				f.release(at, o)
			}
		}
	}
}

func (f *fakeShare) fetch(conn net.Conn, req *kmsg.ShareFetchRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ShareFetchResponse)
	resp.AcquisitionLockTimeoutMillis = int32(f.lock.Milliseconds())
	timeout := time.NewTimer(time.Duration(req.MaxWaitMillis) * time.Millisecond)
	defer timeout.Stop()
	var s *fakeSession
	ackErrs := make(map[sharePartition]*kerr.Error)
	f.with(func() {
		var refused *kerr.Error
		if s, refused = f.enter(conn, *req.MemberID, req.ShareSessionEpoch); refused != nil {
			resp.ErrorCode = refused.Code
			return
		}
		f.subscribe(s, req, ackErrs)
	})
	if resp.ErrorCode != 0 {
		return resp
	}
	if _, ok := extension(&req.UnknownTags); ok {
		resp.UnknownTags.Set(protocol.ExtensionTag, protocol.FilterApplied{}.AppendTo(nil))
	}
	for {
		f.c.mu.Lock()
		f.expire()
		found := f.session[*req.MemberID] == s && f.acquire(s, req, resp)
		grew, down := f.c.grew, f.c.down
		f.c.mu.Unlock()
		if found || down {
			break
		}
		select {
		case <-grew:
			continue
		case <-s.over:
		case <-timeout.C:
		}
		break
	}
	for at, err := range ackErrs {
		f.answerAck(resp, at, err)
	}
	return resp
}

func (f *fakeShare) subscribe(s *fakeSession, req *kmsg.ShareFetchRequest, ackErrs map[sharePartition]*kerr.Error) {
	ask := shareAsk{key: kmsg.ShareFetch, epoch: req.ShareSessionEpoch, max: req.MaxRecords}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			at := sharePartition{t.TopicID, p.Partition}
			s.partitions[at] = struct{}{}
			var runs []ackRun
			for _, b := range p.AcknowledgementBatches {
				runs = append(runs, ackRun{b.FirstOffset, b.LastOffset, ackKind(b.AcknowledgeTypes[0])})
			}
			if ask.acks = append(ask.acks, runs...); len(runs) > 0 {
				ackErrs[at] = f.apply(at, *req.MemberID, runs)
			}
		}
	}
	for _, t := range req.ForgottenTopicsData {
		for _, p := range t.Partitions {
			delete(s.partitions, sharePartition{t.TopicID, p})
		}
	}
	f.log = append(f.log, ask)
}

// acquire acquires up to the limit, in offset order, and keeps keys with one member where
// they have an order.
func (f *fakeShare) acquire(s *fakeSession, req *kmsg.ShareFetchRequest, resp *kmsg.ShareFetchResponse) bool {
	member, left := *req.MemberID, int(req.MaxRecords)
	var filter *keyfilter.Filter
	if tag, ok := extension(&req.UnknownTags); ok {
		asked, err := protocol.ParseKeyFilter(tag)
		if err == nil {
			filter, err = keyfilter.New(asked)
		}
		if err != nil {
			resp.ErrorCode = kerr.InvalidRequest.Code
			return true
		}
	}
	parts := make([]sharePartition, 0, len(s.partitions))
	for at := range s.partitions {
		parts = append(parts, at)
	}
	slices.SortFunc(parts, func(a, b sharePartition) int { return cmp.Compare(a.number, b.number) })
	for _, at := range parts {
		p := f.c.partitionByID(at.topic, at.number)
		if p == nil {
			continue
		}
		if f.shared[at] == nil {
			f.shared[at] = make(map[int64]*fakeShared)
		}
		rp := kmsg.NewShareFetchResponseTopicPartition()
		rp.Partition = at.number
		blocked := make(map[string]bool)
		for o := p.start; o < p.end() && left > 0; o++ {
			shared, key := f.shared[at][o], string(p.records[o-p.start].key)
			if f.mode != "round-robin" && shared != nil && shared.state == "acquired" && shared.member != member {
				blocked[key] = true
			}
			if blocked[key] || shared != nil && shared.state != "available" || filter != nil && !filter.Match([]byte(key), o) {
				continue
			}
			if shared == nil {
				shared = &fakeShared{}
				f.shared[at][o] = shared
			}
			shared.state, shared.member, shared.deadline = "acquired", member, time.Now().Add(f.lock)
			shared.count++
			a := kmsg.NewShareFetchResponseTopicPartitionAcquiredRecord()
			a.FirstOffset, a.LastOffset, a.DeliveryCount = o, o, int16(shared.count)
			rp.AcquiredRecords = append(rp.AcquiredRecords, a)
			left--
		}
		if len(rp.AcquiredRecords) > 0 {
			rp.Records = p.batches(rp.AcquiredRecords[0].FirstOffset, nil)
			f.topicOf(resp, at.topic).Partitions = append(f.topicOf(resp, at.topic).Partitions, rp)
		}
	}
	return left < int(req.MaxRecords)
}

func (f *fakeShare) topicOf(resp *kmsg.ShareFetchResponse, id topicID) *kmsg.ShareFetchResponseTopic {
	for i := range resp.Topics {
		if resp.Topics[i].TopicID == id {
			return &resp.Topics[i]
		}
	}
	t := kmsg.NewShareFetchResponseTopic()
	t.TopicID = id
	resp.Topics = append(resp.Topics, t)
	return &resp.Topics[len(resp.Topics)-1]
}

func (f *fakeShare) answerAck(resp *kmsg.ShareFetchResponse, at sharePartition, err *kerr.Error) {
	t := f.topicOf(resp, at.topic)
	i := slices.IndexFunc(t.Partitions, func(p kmsg.ShareFetchResponseTopicPartition) bool { return p.Partition == at.number })
	if i < 0 {
		p := kmsg.NewShareFetchResponseTopicPartition()
		p.Partition = at.number
		t.Partitions = append(t.Partitions, p)
		i = len(t.Partitions) - 1
	}
	if err != nil {
		t.Partitions[i].AcknowledgeErrorCode = err.Code
	}
}
