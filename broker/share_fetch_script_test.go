package broker_test

import (
	"fmt"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// run is the conversation of one member; each part has a topic of its own. Records that are
// still acquired at the end of one are acknowledged: what Lacuna does with those of a session
// that ends is its own.
func (s *fetchScript) run() {
	names := []string{"sessions", "amounts", "batches", "renewals", "modes", "doomed"}
	s.createTopics(names...)
	s.lookUp(names...)
	s.until(heartbeatRequest("g", "x", 1), 24, 25) // a new Kafka takes its time
	s.setGroup("g", "share.auto.offset.reset", "earliest")
	for _, name := range names {
		for _, n := range []int{5, 5, 20} {
			s.produce(name, n)
		}
	}
	a := s.fetcher("g", "a", names...)
	s.sessions(a)
	s.amounts(a)
	s.acknowledgements(a)
	s.renewals(a)
	s.modes(a)
	s.unknown(a)
	s.deleted(a)
}

func (s *fetchScript) sessions(a *fetcher) {
	of, first := about{topic: "sessions"}, acks("sessions", said(0, 0, 2))
	a.begins("sessions", 1)
	a.ends(first)
	for _, epoch := range []int32{3, -1, -2} {
		a.epoch = epoch
		title := fmt.Sprintf("a session that is not there, epoch %d", epoch)
		a.say(title, a.fetch(1, of))
		a.say(title, a.acknowledge(first))
	}
	a.epoch = 0
	a.say("acknowledges at once", a.fetch(1, first))
	a.say("acknowledges at once", a.acknowledge(first))
	a.strangers(of)
	a.say("begins without partitions", a.fetch(1))
	a.say("still has none", a.fetch(1))
	a.say("acknowledges nothing", a.acknowledge())
	a.say("adds one", a.fetch(1, of))
	a.epoch++
	a.say("an epoch of tomorrow", a.fetch(1))
	a.say("an epoch of tomorrow", a.acknowledge())
	a.epoch--
	a.say("releases", a.acknowledge(first))
	forget := a.fetch(1)
	forget.ForgottenTopicsData = []kmsg.ShareFetchRequestForgottenTopicsData{{TopicID: s.topics["sessions"], Partitions: []int32{0}}}
	a.say("forgets it", forget)
	a.epoch = -1
	a.say("ends, and names a partition", a.fetch(1, of))
	a.ends()
	a.say("begins", a.fetch(1, of))
	a.epoch = -1
	a.say("ends, and acknowledges", a.fetch(0, first))
	a.epoch = 1
	a.say("has ended", a.fetch(1, of))
	a.epoch = 0
	a.say("begins", a.fetch(1, of))
	a.ends(acks("sessions", said(0, 0, 1)))
}

// strangers sends what names no member.
func (f *fetcher) strangers(of about) {
	long := "0123456789012345678901234567890123456"
	for _, who := range []struct {
		title         string
		group, member *string
	}{
		{"no group", nil, &f.member},
		{"no member", &f.group, nil},
		{"a member without a name", &f.group, new(string)},
		{"a member with a long name", &f.group, &long},
	} {
		fetch, ack := f.fetch(1, of), f.acknowledge()
		fetch.GroupID, fetch.MemberID = who.group, who.member
		f.say(who.title, fetch)
		ack.GroupID, ack.MemberID = who.group, who.member
		f.say(who.title, ack)
	}
}

func (s *fetchScript) amounts(a *fetcher) {
	a.begins("amounts", 1)
	a.ends(acks("amounts", said(0, 0, 1)))
	a.say("begins", a.fetch(1, about{topic: "amounts"}))
	a.say("wants no records", a.fetch(0))
	a.say("wants less than none", a.fetch(-1))
	none := a.fetch(5)
	none.MaxBytes = 0
	a.say("wants no bytes", none)
	few := a.fetch(1)
	few.BatchSize = 0
	a.say("wants batches of 0", few)
	few = a.fetch(1)
	few.BatchSize = -1
	a.say("wants batches of -1", few)
	a.ends(acks("amounts", said(1, 3, 1)))
}

func (s *fetchScript) acknowledgements(a *fetcher) {
	a.begins("batches", 10)
	for _, wrong := range []struct {
		title string
		about
	}{
		{"no types", acks("batches", said(0, 0))},
		{"the wrong way round", acks("batches", said(2, 1, 1))},
		{"too many types", acks("batches", said(0, 1, 1, 1, 1))},
		{"too few types", acks("batches", said(0, 2, 1, 1))},
		{"a type that is none", acks("batches", said(0, 0, 9))},
		{"a type below zero", acks("batches", said(0, 0, -1))},
		{"a renewal", acks("batches", said(0, 0, 4))},
		{"out of order", acks("batches", said(2, 2, 1), said(0, 0, 1))},
	} {
		a.say(wrong.title, a.acknowledge(wrong.about))
		a.say(wrong.title, a.fetch(0, wrong.about))
	}
	of := func(batches ...ackRun) *kmsg.ShareAcknowledgeRequest {
		return a.acknowledge(acks("batches", batches...))
	}
	a.say("releases two", of(said(0, 1, 2, 2)))
	a.say("what it has not", of(said(0, 2, 0, 0, 1)))
	a.say("with a gap", of(said(2, 4, 1, 0, 1)))
	a.say("again", of(said(3, 4, 1)))
	a.say("not all of them", of(said(5, 6, 1), said(4, 4, 1)))
	a.say("one of each, and more", a.fetch(2, acks("batches", said(5, 7, 1, 2, 3))))
	a.ends(acks("batches", said(0, 1, 1), said(8, 9, 1)))
}

// renewing is a fetch that does nothing but renew.
func (f *fetcher) renewing(parts ...about) *kmsg.ShareFetchRequest {
	req := f.fetch(0, parts...)
	req.MaxBytes, req.MinBytes, req.MaxWaitMillis, req.IsRenewAck = 0, 0, 0, true
	return req
}

func (s *fetchScript) renewals(a *fetcher) {
	a.begins("renewals", 5)
	renewing := func(batches ...ackRun) *kmsg.ShareAcknowledgeRequest {
		req := a.acknowledge(acks("renewals", batches...))
		req.IsRenewAck = true
		return req
	}
	a.say("renews", renewing(said(0, 4, 4)))
	a.say("renews and does not say so", a.acknowledge(acks("renewals", said(0, 0, 4))))
	a.say("renews and acknowledges", renewing(said(0, 3, 1, 4, 2, 4)))
	a.say("renews what it released", renewing(said(2, 2, 4)))
	fetch := a.fetch(4)
	fetch.IsRenewAck = true
	a.say("renews and fetches", fetch)
	a.say("renews nothing", a.renewing())
	a.say("renews with a fetch", a.renewing(acks("renewals", said(1, 1, 4))))
	a.say("renews and accepts with a fetch", a.renewing(acks("renewals", said(3, 4, 4, 1))))
	a.sayAt("renews in version 1", a.acknowledge(acks("renewals", said(1, 1, 4))), 1)
	a.epoch = -1
	a.say("renews and ends", renewing(said(1, 1, 4), said(3, 3, 1)))
	a.epoch = 0
}

func (s *fetchScript) modes(a *fetcher) {
	batches := func(records, size int32, parts ...about) *kmsg.ShareFetchRequest {
		req := a.fetch(records, parts...)
		req.ShareAcquireMode, req.BatchSize = 0, size
		return req
	}
	a.begins("modes", 1)
	a.ends(acks("modes", said(0, 0, 1)))
	a.say("a batch", batches(3, 100, about{topic: "modes"}))
	a.say("no records", batches(0, 100))
	a.sayAt("version 1", batches(3, 100), 1)
	a.say("the last batch", batches(1, 100))
	a.waits("there are no more", batches(1, 100))
	a.ends(acks("modes", said(1, 29, 1)))
}

func (s *fetchScript) unknown(a *fetcher) {
	missing := func(batches ...ackRun) about { return about{id: [16]byte{1, 2, 3}, acks: batches} }
	a.say("a topic that is not there", a.fetch(1, missing()))
	a.say("a topic that is not there", a.fetch(1))
	a.say("a topic that is not there", a.acknowledge(missing(said(0, 0, 1))))
	a.say("a topic that is not there", a.fetch(1, missing(said(0, 0, 1))))
	a.ends()
	ninth := about{topic: "modes", partition: 9}
	a.say("a partition that is not there", a.fetch(1, ninth))
	a.say("a partition that is not there", a.fetch(1))
	a.say("a partition that is not there", a.acknowledge(about{topic: "modes", partition: 9, acks: []ackRun{said(0, 0, 1)}}))
	a.ends()
	a.waits("a partition, and one that is not there", a.fetch(1, ninth, about{topic: "modes"}))
	a.waits("a partition, and one that is not there", a.fetch(1))
	a.ends()
}

// deleted deletes a topic that the member fetches.
func (s *fetchScript) deleted(a *fetcher) {
	a.begins("doomed", 1)
	name := "doomed"
	remove := kmsg.NewPtrDeleteTopicsRequest()
	remove.TimeoutMillis, remove.Topics = 10_000, []kmsg.DeleteTopicsRequestTopic{{Topic: &name}}
	s.say("a topic", remove, 6)
	eventually(s.t, "the topic is gone", func() bool {
		c := s.dial()
		defer c.nc.Close()
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
		c.send(req, 12)
		return c.receive(req).(*kmsg.MetadataResponse).Topics[0].ErrorCode != 0
	})
	a.say("a topic that was deleted", a.acknowledge(acks("doomed", said(0, 0, 1))))
	require.Positive(s.t, a.epoch)
	a.ends()
}
