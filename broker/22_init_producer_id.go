package broker

import (
	"context"
	"strings"
	"sync"

	"github.com/lacunamq/lacuna/broker/transaction"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// InitProducerId (22), versions 0 to 5: a producer id for an idempotent producer, or the
// id and next epoch of a transactional one, whose former holder is fenced.
//
// v2 added flexible versions, v3 the id and epoch that the producer had, v4
// PRODUCER_FENCED, v5 TRANSACTION_ABORTABLE (KIP-890). v6, of two-phase commits, is not
// served, as in Kafka without transaction.two.phase.commit.enable.
func (b *Broker) initProducerID(c *call, req *kmsg.InitProducerIDRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	given, err := b.giveProducerID(c.ctx, req)
	if err != nil {
		resp.ErrorCode = b.txnCode(err, c.version >= 4)
		return resp
	}
	resp.ProducerID, resp.ProducerEpoch = given.ID, given.Epoch
	return resp
}

func (b *Broker) giveProducerID(ctx context.Context, req *kmsg.InitProducerIDRequest) (transaction.Producer, error) {
	had := transaction.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}
	switch {
	case req.Version < 3:
		had = transaction.None
	case (had.ID < 0) != (had.Epoch < 0):
		return transaction.None, refusal(kerr.InvalidRequest, "producer id %d with epoch %d", had.ID, had.Epoch)
	}
	if req.TransactionalID == nil {
		id, err := b.producerIDs.next(ctx)
		return transaction.Producer{ID: id, Epoch: 0}, err
	}
	return b.transactions.InitProducerID(ctx, &transaction.InitRequest{
		TransactionalID: strings.Clone(*req.TransactionalID), TimeoutMs: req.TransactionTimeoutMillis, Expected: had,
	})
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
