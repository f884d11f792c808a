package tests

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// letterTopic is the dead-letter topic of the checker's group.
const letterTopic = "dlq.t"

// letterOpen is the setting of a topic that lets dead letters in.
const letterOpen = "errors.deadletterqueue.group.enable"

// letterQueue is what that topic is like.
type letterQueue struct {
	partitions int32
	made       bool // by the broker, when it needs it
	shut       bool // until the workers are calm
	copies     bool // a letter holds its record
}

// prepare draws a dead-letter topic, and adds it to the settings of the group.
func (q *letterQueue) prepare(rng *rand.Rand, conn *wire.Conn, settings map[string]string) error {
	*q = letterQueue{partitions: 1 + rng.Int32N(3), shut: rng.IntN(3) == 0, copies: rng.IntN(2) == 0}
	settings["errors.deadletterqueue.topic.name"] = letterTopic
	settings["errors.deadletterqueue.copy.record.enable"] = strconv.FormatBool(q.copies)
	if q.made = !q.shut && rng.IntN(2) == 0; q.made {
		q.partitions = 1
		return nil
	}
	return conn.CreateTopic(letterTopic, q.partitions, map[string]string{letterOpen: strconv.FormatBool(!q.shut)})
}

// open lets dead letters in.
func (q *letterQueue) open(conn *wire.Conn) error {
	if !q.shut {
		return nil
	}
	return conn.Configure(kmsg.ConfigResourceTypeTopic, letterTopic, map[string]string{letterOpen: "true"})
}

// deadLetter is one that was read.
type deadLetter struct {
	partition  int32 // that it lies in
	about      shareOffset
	count      int
	headers    map[string]string
	key, value string
}

// The words of the headers (KIP-1191).
const (
	letterRejected  = "Offset rejected by client."
	letterExhausted = "Offset delivery count exceeded the threshold."
)

// read reads all dead letters.
func (q *letterQueue) read(conn *wire.Conn) (all []deadLetter, err error) {
	if _, err := conn.MakeTopic(letterTopic); err != nil { // perhaps there was nothing to write
		return nil, err
	}
	for p := range q.partitions {
		end, err := conn.EndOffset(letterTopic, p)
		if err != nil {
			return nil, err
		}
		for next := int64(0); next < end; {
			resp, err := conn.Do(wire.FetchRequest(letterTopic, p, next, 1<<20, 0))
			if err != nil {
				return nil, err
			}
			got, err := wire.Fetched(resp)
			if err != nil {
				return nil, err
			}
			err = wire.EachRecord(got.RecordBatches, func(r *protocol.Record) error {
				letter, err := parseLetter(p, r)
				if all = append(all, letter); r.Offset >= next {
					next = r.Offset + 1
				}
				return err
			})
			if err != nil {
				return nil, fmt.Errorf("dead letters of partition %d, from offset %d: %w", p, next, err)
			}
		}
	}
	return all, nil
}

func parseLetter(partition int32, r *protocol.Record) (deadLetter, error) {
	l := deadLetter{partition: partition, headers: make(map[string]string), key: string(r.Key), value: string(r.Value)}
	for it := protocol.IterateHeaders(r.Headers); it.Next(); {
		l.headers[string(it.Header().Key)] = string(it.Header().Value)
	}
	source, err := strconv.ParseInt(l.headers["__dlq.errors.partition"], 10, 32)
	if err != nil {
		return l, err
	}
	l.about.partition = int32(source)
	if l.about.offset, err = strconv.ParseInt(l.headers["__dlq.errors.offset"], 10, 64); err != nil {
		return l, err
	}
	l.count, err = strconv.Atoi(l.headers["__dlq.errors.delivery.count"])
	return l, err
}

// checkLetters looks whether there is a dead letter of each record that was rejected or
// archived at its limit, and of no other; more than one only where the broker crashed.
func (a *shareAccount) checkLetters(q *letterQueue, group, topic string, all []deadLetter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	written := make(map[shareOffset]int)
	for i := range all {
		l := &all[i]
		written[l.about]++
		r := a.mu.records[l.about]
		if r == nil || l.headers["__dlq.errors.group"] != group || l.headers["__dlq.errors.topic"] != topic || l.partition != l.about.partition%q.partitions {
			a.flaw("a dead letter about no record, or in the wrong place: %+v", l)
			continue
		}
		a.checkLetter(q, r, l)
	}
	for at, r := range a.mu.records {
		mayBeAccepted := r.done == ackNames[ackAccept] || r.done == "" && r.asked == ackAccept
		switch n := written[at]; {
		case n == 0 && !mayBeAccepted:
			a.flaw("%v has no dead letter, though it was not accepted: %+v", at, r)
		case n > 1+a.mu.life:
			a.flaw("%v has %d dead letters after %d crashes", at, n, a.mu.life)
		}
	}
}

// checkLetter looks whether there may be such a letter about a record.
func (a *shareAccount) checkLetter(q *letterQueue, r *shareRecord, l *deadLetter) {
	switch message := l.headers["__dlq.errors.message"]; {
	case r.done == ackNames[ackAccept]:
		a.flaw("%v was accepted, and has the dead letter %+v", r.shareOffset, l)
	case message == letterRejected && r.done != ackNames[ackReject] && r.asked != ackReject:
		a.flaw("%v was not rejected, and has the dead letter %+v", r.shareOffset, l)
	case message == letterRejected && l.count != r.count:
		a.flaw("%v was rejected at delivery %d, and has the dead letter %+v", r.shareOffset, r.count, l)
	case message == letterExhausted && (r.done != "" || l.count != a.limit):
		a.flaw("%v was %q and not archived at its limit, and has the dead letter %+v", r.shareOffset, r.done, l)
	case message == letterExhausted && !r.loose && a.highest(r, time.Now()) < a.limit:
		a.miscount("%v has had at most %d deliveries, and has the dead letter %+v", r.shareOffset, a.highest(r, time.Now()), l)
	case message != letterRejected && message != letterExhausted:
		a.flaw("%v: the dead letter %+v", r.shareOffset, l)
	case q.copies && (l.key != r.key || l.value != r.value) || !q.copies && (l.key != "" || l.value != ""):
		a.flaw("%v: %s=%s has the dead letter %+v", r.shareOffset, r.key, r.value, l)
	}
}
