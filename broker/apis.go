package broker

import (
	"context"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// api describes how one API of Kafka's protocol is served. The table of them feeds
// dispatch and ApiVersions alike.
type api struct {
	key      int16
	min, max int16 // the versions served
	// flexibleFrom is the first version whose header has tagged fields.
	flexibleFrom int16
	// newRequest makes what a frame is decoded into. (kmsg.RequestForKey brings the code of
	// all requests that Kafka knows into the program, half a megabyte more than that of these.)
	newRequest func() kmsg.Request
	// weight is how many bytes of memory a byte of the request may take when it is decoded
	// and answered.
	weight int
	// shape is set for requests that may be large; they have weight 1, and elementBytes for
	// each of their elements. A byte of their tags takes tagWeight bytes when it is decoded,
	// all of them tagMost.
	shape              shape
	tagWeight, tagMost int
	// quick says that an answer never waits for other clients, so that it may be given
	// by the goroutine that reads.
	quick bool
	// run serves a request of one stage. It may wait on the call's context. Without an
	// answer it returns nil.
	run func(*Broker, *call, kmsg.Request) kmsg.Response
	// begin is set instead of run for a request of two stages: it does what has to be
	// done in the order of the connection, and returns what waits for the answer. When
	// there is nothing to wait for it returns nil and leaves the answer, if there is one,
	// in the call.
	begin func(*Broker, *call, kmsg.Request) func(context.Context) kmsg.Response
}

const (
	// plainWeight is the weight of most requests: the decoder takes up to 41 bytes for one
	// of a tag, and the answer names again what the request named.
	plainWeight = 64
	// namesWeight is the weight of requests in which a byte or two may ask for a whole
	// description.
	namesWeight = 320
	// elementBytes is what an element of a request with a shape takes at most, with its
	// part of the answer.
	elementBytes = 320
	// maxCommitBytes is the largest commit or fetch. A commit of a million runs takes up
	// to 20 MB.
	maxCommitBytes = 32 << 20
)

// maxBytes is how large a request may be, given the memory for all.
func (a *api) maxBytes(memory int64) int {
	if a.shape != nil && a.key != int16(kmsg.Produce) {
		memory = min(memory, maxCommitBytes)
	}
	return int(memory) / a.weight
}

// decodedBytes is what a request with a shape takes besides its frame, 0 for any other.
func (a *api) decodedBytes(req kmsg.Request, body []byte) int {
	if a.shape == nil {
		return 0
	}
	elements, tagBytes := a.shape.measure(req, body)
	return elements*elementBytes + min(tagBytes*a.tagWeight, a.tagMost)
}

// apiTable finds APIs by their key.
type apiTable []*api

func (t apiTable) find(key int16) *api {
	if key < 0 || int(key) >= len(t) {
		return nil
	}
	return t[key]
}

// newAPITable lists what the broker serves, at the version ranges of Apache Kafka 4.4.
func newAPITable() apiTable {
	var table apiTable
	for _, a := range []*api{
		large(produceShape, twoStage(0, 13, (*Broker).produce)),
		extended(100, 100*protocol.MaxKeysAndRanges, large(fetchShape, one(4, 18, (*Broker).fetch))),
		quick(1, 11, (*Broker).listOffsets),
		one(0, 13, (*Broker).metadata),
		quick(0, 5, (*Broker).apiVersions),
		one(0, 5, (*Broker).initProducerID),
		extended(16, 32*protocol.MaxRuns, large(offsetCommitShape, twoStage(2, 10, (*Broker).offsetCommit))),
		one(1, 10, (*Broker).offsetFetch),
		names(quick(0, 6, (*Broker).findCoordinator)),
		one(0, 9, (*Broker).joinGroup),
		one(0, 4, (*Broker).heartbeat),
		one(0, 5, (*Broker).leaveGroup),
		one(0, 5, (*Broker).syncGroup),
		names(one(0, 6, (*Broker).describeGroups)),
		one(0, 5, (*Broker).listGroups),
		one(0, 5, (*Broker).addPartitionsToTxn),
		one(0, 4, (*Broker).addOffsetsToTxn),
		one(0, 5, (*Broker).endTxn),
		one(1, 2, (*Broker).writeTxnMarkers),
		extended(16, 32*protocol.MaxRuns, large(txnOffsetCommitShape, one(0, 6, (*Broker).txnOffsetCommit))),
		names(one(0, 0, (*Broker).describeProducers)),
		names(one(0, 0, (*Broker).describeTransactions)),
		one(0, 2, (*Broker).listTransactions),
		one(2, 7, (*Broker).createTopics),
		one(1, 6, (*Broker).deleteTopics),
		one(0, 2, (*Broker).deleteRecords),
		quick(2, 4, (*Broker).offsetForLeaderEpoch),
		one(1, 4, (*Broker).describeConfigs),
		one(0, 2, (*Broker).alterConfigs),
		one(1, 5, (*Broker).describeLogDirs),
		one(0, 3, (*Broker).createPartitions),
		one(0, 3, (*Broker).deleteGroups),
		one(0, 1, (*Broker).incrementalAlterConfigs),
		one(0, 0, (*Broker).offsetDelete),
		quick(0, 2, (*Broker).describeCluster),
		quick(0, 1, (*Broker).listConfigResources),
		quick(0, 0, (*Broker).describeTopicPartitions),
		one(1, 1, (*Broker).shareGroupHeartbeat),
		names(one(1, 1, (*Broker).shareGroupDescribe)),
		one(1, 2, (*Broker).shareFetch),
		twoStage(1, 2, (*Broker).shareAcknowledge),
		names(one(0, 1, (*Broker).describeShareGroupOffsets)),
		one(0, 0, (*Broker).alterShareGroupOffsets),
		one(0, 0, (*Broker).deleteShareGroupOffsets),
	} {
		for int(a.key) >= len(table) {
			table = append(table, nil)
		}
		table[a.key] = a
	}
	return table
}

// request is a request of kmsg, of the struct T.
type request[T any] interface {
	*T
	kmsg.Request
	Default() // sets what an older version does not say
}

// newAPI is an API of requests R without what serves it.
func newAPI[T any, R request[T]](min, max int16) *api {
	newRequest := func() kmsg.Request {
		req := R(new(T))
		req.Default()
		return req
	}
	req := newRequest()
	return &api{
		key: req.Key(), min: min, max: max, flexibleFrom: protocol.FlexibleFrom(req), newRequest: newRequest, weight: plainWeight,
	}
}

// one serves an API in the connection's turn.
func one[T any, R request[T]](min, max int16, handle func(*Broker, *call, R) kmsg.Response) *api {
	a := newAPI[T, R](min, max)
	a.run = func(b *Broker, c *call, req kmsg.Request) kmsg.Response { return handle(b, c, req.(R)) }
	return a
}

// quick is one for an API that never waits for other clients.
func quick[T any, R request[T]](min, max int16, handle func(*Broker, *call, R) kmsg.Response) *api {
	a := one(min, max, handle)
	a.quick = true
	return a
}

// twoStage serves an API that begins in the order of the connection while earlier
// requests still wait.
func twoStage[T any, R request[T]](min, max int16, begin func(*Broker, *call, R) func(context.Context) kmsg.Response) *api {
	a := newAPI[T, R](min, max)
	a.begin = func(b *Broker, c *call, req kmsg.Request) func(context.Context) kmsg.Response {
		return begin(b, c, req.(R))
	}
	return a
}

// large marks an API whose requests may be large, with their shape.
func large(s shape, a *api) *api {
	a.weight, a.shape = 1, s
	return a
}

// extended marks an API with fields of the extension: a byte of them takes weight bytes
// when it is decoded, all of them at most so many.
func extended(weight, most int, a *api) *api {
	a.tagWeight, a.tagMost = weight, most
	return a
}

// names marks an API that describes what a request merely names.
func names(a *api) *api {
	a.weight = namesWeight
	return a
}
