package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sort"
	"strconv"

	"github.com/lacunamq/lacuna/broker/dealer"
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/share"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// ShareGroupStatus is what GET /share-groups/GROUP of the admin listener says: what Kafka's
// protocol has no field for.
type ShareGroupStatus struct {
	Group      string                 `json:"group"`
	State      string                 `json:"state"`
	Mode       string                 `json:"mode"`
	Members    []ShareMemberStatus    `json:"members"`
	Partitions []SharePartitionStatus `json:"partitions"`
	More       bool                   `json:"more,omitempty"` // there are more partitions than one answer lists
}

// ShareMemberStatus is a member of a share group.
type ShareMemberStatus struct {
	ID       string      `json:"id"`
	ClientID string      `json:"client_id"`
	Host     string      `json:"host"`
	Topics   []string    `json:"topics"`
	Acquired int         `json:"acquired"`
	AgeMs    int64       `json:"age_ms,omitempty"` // of what it has acquired, or renewed, longest ago
	Pending  int         `json:"pending,omitempty"`
	Waiting  bool        `json:"waiting"` // a fetch of it waits for records
	Slots    []SlotRange `json:"slots,omitempty"`
}

// SlotRange is key slots of a partition that a member is dealt, both ends included.
type SlotRange struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	First     int32  `json:"first"`
	Last      int32  `json:"last"`
}

// SharePartitionStatus is a share partition that is being dealt.
type SharePartitionStatus struct {
	Topic       string          `json:"topic"`
	Partition   int32           `json:"partition"`
	Acquired    int             `json:"acquired"`
	Delayed     int             `json:"delayed"`      // released, and not dealt before their backoff is over
	Pending     int             `json:"pending"`      // staged in open transactions
	DeadLetters int             `json:"dead_letters"` // they wait for their dead letters
	ReadTo      int64           `json:"read_to"`      // below it, records have been read to be dealt
	Oldest      *OldestOpen     `json:"oldest_open,omitempty"`
	Held        []AcquiredRange `json:"held"`
	HeldTo      *int64          `json:"held_to,omitempty"` // ask again from there for more
}

// OldestOpen is the oldest record that the group has not done.
type OldestOpen struct {
	Offset int64 `json:"offset"`
	AgeMs  int64 `json:"age_ms"` // since the record's timestamp
}

// AcquiredRange is records that a member has acquired, both ends included.
type AcquiredRange struct {
	First       int64  `json:"first"`
	Last        int64  `json:"last"`
	Member      string `json:"member"`
	AgeMs       int64  `json:"age_ms"`
	ExpiresInMs int64  `json:"expires_in_ms"`
	Delivery    int    `json:"delivery"` // its number, from 1
}

// How much one answer lists.
const (
	maxStatusPartitions = 1000
	maxStatusHeld       = 10_000
	defaultStatusHeld   = 1000
)

// errNotFound is answered with 404.
var errNotFound = errors.New("not found")

// adminJSON makes a handler of a function that answers with a value or an error.
func (b *Broker) adminJSON(answer func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value, err := answer(r)
		status := http.StatusOK
		switch {
		case errors.Is(err, errNotFound):
			status = http.StatusNotFound
		case errors.Is(err, kerr.InvalidRequest):
			status = http.StatusBadRequest
		case err != nil:
			status = http.StatusServiceUnavailable
		}
		if err != nil {
			value = map[string]string{"error": err.Error()}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(value); err != nil {
			b.log.Debug("an answer of the admin listener was not taken", zap.Error(err))
		}
	}
}

// adminShareGroup answers GET /share-groups/{group}, with the parameters topic and
// partition, to choose, and from and limit, for the acquired records.
func (b *Broker) adminShareGroup(r *http.Request) (any, error) {
	group := r.PathValue("group")
	d, view, err := b.shareGroupOf(r.Context(), group)
	if err != nil {
		return nil, err
	}
	q := adminQuery{r: r}
	topic, partition := r.FormValue("topic"), q.number("partition", -1)
	page := dealer.Page{From: q.number("from", 0), Limit: int(min(max(q.number("limit", defaultStatusHeld), 0), maxStatusHeld))}
	if q.err != nil {
		return nil, q.err
	}
	s := &ShareGroupStatus{Group: group, State: d.State, Mode: view.Mode().String(), Members: []ShareMemberStatus{}, Partitions: []SharePartitionStatus{}}
	members := make(map[string]*ShareMemberStatus)
	s.addMembers(d, members)
	named := b.openSharePartitions(group, topic, int32(partition))
	if len(named) > maxStatusPartitions {
		named, s.More = named[:maxStatusPartitions], true
	}
	for i := range named {
		at := &named[i]
		about, ok := b.dealer.Describe(group, at.TopicPartition, page)
		if !ok {
			continue // it was closed meanwhile
		}
		page.Limit -= len(about.Held)
		s.Partitions = append(s.Partitions, b.sharePartitionStatus(at, &about))
		b.addStandings(members, about.Members)
	}
	b.addSlots(members, view, topic, int32(partition))
	return s, nil
}

// shareView is the assignment of a share group.
func (b *Broker) shareView(ctx context.Context, group string) (*share.View, error) {
	view, err := b.groups.Share(ctx, group)
	if err == nil && view == nil {
		err = fmt.Errorf("%w: there is no share group %q", errNotFound, group)
	}
	return view, err
}

// shareGroupOf is a share group as it is described, and its assignment.
func (b *Broker) shareGroupOf(ctx context.Context, group string) (*share.Description, *share.View, error) {
	view, err := b.shareView(ctx, group)
	if err != nil {
		return nil, nil, err
	}
	d, err := b.groups.DescribeShare(ctx, group)
	if err != nil {
		return nil, nil, err
	}
	return &d, view, nil
}

// adminQuery reads the parameters of a request.
type adminQuery struct {
	r   *http.Request
	err error
}

func (q *adminQuery) number(name string, absent int64) int64 {
	text := q.r.FormValue(name)
	if text == "" {
		return absent
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		q.err = fmt.Errorf("%w: %s=%q is no number", kerr.InvalidRequest, name, text)
	}
	return n
}

// namedPartition is a partition with the name of its topic.
type namedPartition struct {
	extension.TopicPartition
	name string
}

// openSharePartitions are those of a group that are dealt, by name and number; topic and
// partition choose, unless they are empty or below 0.
func (b *Broker) openSharePartitions(group, topic string, partition int32) (named []namedPartition) {
	for _, tp := range b.dealer.Open(group) {
		p := b.topics.partitionOf(tp.Topic, tp.Partition)
		if p != nil && (topic == "" || p.topic.name == topic) && (partition < 0 || p.index == partition) {
			named = append(named, namedPartition{tp, p.topic.name})
		}
	}
	sort.Slice(named, func(i, j int) bool {
		return cmp.Or(cmp.Compare(named[i].name, named[j].name), cmp.Compare(named[i].Partition, named[j].Partition)) < 0
	})
	return named
}

func (s *ShareGroupStatus) addMembers(d *share.Description, members map[string]*ShareMemberStatus) {
	s.Members = make([]ShareMemberStatus, len(d.Members))
	for i := range d.Members {
		m := &d.Members[i]
		s.Members[i] = ShareMemberStatus{ID: m.ID, ClientID: m.ClientID, Host: m.ClientHost, Topics: m.Topics}
		members[m.ID] = &s.Members[i]
	}
}

// addStandings adds what members have of one partition.
func (b *Broker) addStandings(members map[string]*ShareMemberStatus, standings []cooperative.MemberStanding) {
	nowMs := b.nowMs()
	for _, standing := range standings {
		m := members[standing.Member]
		if m == nil {
			continue // it has just left
		}
		if standing.Acquired > 0 {
			m.AgeMs = max(m.AgeMs, nowMs-standing.SinceMs)
		}
		m.Acquired += standing.Acquired
		m.Pending += standing.Pending
		m.Waiting = m.Waiting || standing.Wants > 0
	}
}

// addSlots adds the key slots that members are dealt, where the mode has such.
func (b *Broker) addSlots(members map[string]*ShareMemberStatus, view *share.View, topic string, partition int32) {
	for _, t := range view.Topics() {
		source, refused := b.topics.find("", t.Topic, true)
		if refused != nil || topic != "" && source.name != topic {
			continue
		}
		for p := range min(t.Partitions, maxStatusPartitions) {
			if partition >= 0 && p != partition {
				continue
			}
			for _, slice := range view.Slices(t.Topic, p) {
				if m := members[slice.Member]; m != nil {
					m.Slots = append(m.Slots, SlotRange{Topic: source.name, Partition: p, First: slice.Start, Last: slice.End - 1})
				}
			}
		}
	}
}

func (b *Broker) sharePartitionStatus(at *namedPartition, d *dealer.Description) SharePartitionStatus {
	s := SharePartitionStatus{
		Topic: at.name, Partition: at.Partition, Acquired: d.Acquired, Delayed: d.Delayed, Pending: d.Pending,
		DeadLetters: d.Archiving, ReadTo: d.FedTo, Held: make([]AcquiredRange, len(d.Held)),
	}
	if d.HeldTo >= 0 {
		s.HeldTo = &d.HeldTo
	}
	nowMs := b.nowMs()
	for i, held := range d.Held {
		s.Held[i] = AcquiredRange{First: held.Start, Last: held.End - 1, Member: held.Member,
			AgeMs: max(nowMs-held.SinceMs, 0), ExpiresInMs: max(held.DeadlineMs-nowMs, 0), Delivery: held.Deliveries + 1}
	}
	if r := b.recordAt(at.TopicPartition, d.Oldest); r.there {
		s.Oldest = &OldestOpen{Offset: d.Oldest, AgeMs: max(nowMs-r.timestampMs, 0)}
	}
	return s
}

// recordAt is a record of a partition, if it is there and can be read.
func (b *Broker) recordAt(tp extension.TopicPartition, offset int64) copiedRecord {
	log, err := dataLogs{b}.open(tp)
	if err != nil || offset < log.Bounds().Start || offset >= log.Bounds().HighWatermark {
		return copiedRecord{}
	}
	records := sourceRecords{log: log, decoding: b.decoding}
	return records.first([]cooperative.DeadLetter{{Offset: offset}})
}
