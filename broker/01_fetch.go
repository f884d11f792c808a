package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Fetch (1), versions 4 to 18.
//
// v4 added isolation levels, v5 the log start, v7 sessions (KIP-227), v9 the leader
// epoch, v11 rack ids, v12 flexible versions and the last fetched epoch, v13 topic ids,
// v16 node endpoints, v17 and v18 fields of replicas.
//
// From version 12 on the request may carry a KeyFilter and the answer then carries
// ScannedTo (docs/protocol.md).
func (b *Broker) fetch(c *call, req *kmsg.FetchRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	filter, err := keyFilterOf(req)
	if err != nil {
		resp.ErrorCode, _ = b.errorCode(err)
		return resp
	}
	if req.ReplicaID >= 0 || req.ReplicaState.ID >= 0 {
		resp.ErrorCode = kerr.InvalidRequest.Code // there are no followers
		return resp
	}
	f, refused := b.sessions.open(req)
	if refused != nil {
		resp.ErrorCode = refused.Code
		return resp
	}
	defer f.close()
	resp.SessionID = f.sessionID()
	r := newFetchRead(b, f, req, filter)
	c.release = r.release
	r.run(c.ctx)
	return r.answer(resp)
}
