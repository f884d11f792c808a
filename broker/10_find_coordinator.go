package broker

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The types of coordinators.
const (
	groupCoordinator       = 0
	transactionCoordinator = 1
	shareCoordinator       = 2
)

// FindCoordinator (10), versions 0 to 6. The one node coordinates everything.
//
// v1 added types, v3 flexible versions, v4 many keys at once, v6 share coordinators
// (KIP-932).
func (b *Broker) findCoordinator(c *call, req *kmsg.FindCoordinatorRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	keys := req.CoordinatorKeys
	if c.version < 4 {
		keys = []string{req.CoordinatorKey}
	}
	for _, key := range keys {
		found := kmsg.NewFindCoordinatorResponseCoordinator()
		found.ErrorMessage = kmsg.StringPtr("")
		found.Key, found.NodeID, found.Host, found.Port = key, b.nodeID, c.conn.listener.host, c.conn.listener.port
		if !knownCoordinator(req.CoordinatorType, c.version) || req.CoordinatorType == shareCoordinator && !sharePartitionKey(key) {
			found.ErrorCode = kerr.InvalidRequest.Code
			found.ErrorMessage = kmsg.StringPtr("there is no such type of coordinator, or no such key of a share partition")
			found.NodeID, found.Host, found.Port = -1, "", -1
		}
		if c.version < 4 {
			resp.ErrorCode, resp.ErrorMessage = found.ErrorCode, found.ErrorMessage
			if resp.ErrorCode == 0 {
				resp.ErrorMessage = kmsg.StringPtr("NONE") // as Kafka says in these versions
			}
			resp.NodeID, resp.Host, resp.Port = found.NodeID, found.Host, found.Port
			return resp
		}
		resp.Coordinators = append(resp.Coordinators, found)
	}
	return resp
}

// sharePartitionKey tells whether a key is GROUP:TOPIC-ID:PARTITION, by which Kafka finds
// share coordinators.
func sharePartitionKey(key string) bool {
	rest, partition, ok := cutLast(key)
	if _, err := strconv.ParseInt(partition, 10, 32); !ok || err != nil {
		return false
	}
	group, topic, ok := cutLast(rest)
	id, err := base64.RawURLEncoding.DecodeString(topic)
	return ok && group != "" && err == nil && len(id) == len(metadata.TopicID{})
}

// cutLast cuts a key at its last colon.
func cutLast(key string) (before, after string, ok bool) {
	at := strings.LastIndexByte(key, ':')
	if at < 0 {
		return key, "", false
	}
	return key[:at], key[at+1:], true
}

func knownCoordinator(kind int8, version int16) bool {
	switch kind {
	case groupCoordinator, transactionCoordinator:
		return true
	case shareCoordinator:
		return version >= 6
	}
	return false
}
