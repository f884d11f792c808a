package broker

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// InitProducerId (22), versions 0 to 5: a producer id for an idempotent producer.
//
// v2 added flexible versions, v3 the id and epoch that the producer had, v4 and v5 error
// codes of transactions. Transactional ids are refused: there are no transactions yet.
func (b *Broker) initProducerID(c *call, req *kmsg.InitProducerIDRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if req.TransactionalID != nil {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp
	}
	id, err := b.producerIDs.next(c.ctx)
	if err != nil {
		resp.ErrorCode, _ = b.errorCode(err)
		return resp
	}
	resp.ProducerID, resp.ProducerEpoch = id, 0
	return resp
}

// producerIDs hands out producer ids from blocks that are reserved durably, so that no
// id is given twice, also across crashes.
type producerIDs struct {
	// reserve gives the first id of a new block of n.
	reserve func(ctx context.Context, n int64) (int64, error)
	mu      struct {
		sync.Mutex
		next, end int64
	}
}

// producerIDBlock is how many ids one metadata record reserves.
const producerIDBlock = 1000

func (p *producerIDs) next(ctx context.Context) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.next == p.mu.end {
		first, err := p.reserve(ctx, producerIDBlock)
		if err != nil {
			return 0, err
		}
		p.mu.next, p.mu.end = first, first+producerIDBlock
	}
	id := p.mu.next
	p.mu.next++
	return id, nil
}
