package client

import (
	"context"
	"sync"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Admin looks at the ledgers of groups and changes them. It is for operators and tools; a
// consumer uses a [Reader]. For all that stock Kafka has a word for, such as topics and
// members, use package kadm.
//
// An Admin is safe for concurrent use.
type Admin struct {
	cl  *kgo.Client
	kad *kadm.Client

	mu struct {
		sync.Mutex
		checked bool // the broker offers individual commits
	}
}

// AdminOpt is an option of [NewAdmin].
type AdminOpt interface{ applyAdmin(*adminConfig) }

type adminConfig struct {
	kafka []kgo.Opt
}

// Opt is an option of [NewAdmin], [OpenReader] and [OpenWorker].
type Opt struct{ kafka []kgo.Opt }

func (o Opt) applyAdmin(cfg *adminConfig)   { cfg.kafka = append(cfg.kafka, o.kafka...) }
func (o Opt) applyReader(cfg *readerConfig) { cfg.kafka = append(cfg.kafka, o.kafka...) }
func (o Opt) applyWorker(cfg *workerConfig) { cfg.kafka = append(cfg.kafka, o.kafka...) }

// KafkaOpts passes options to the kgo client below: brokers, TLS, SASL, dialer, logger,
// client id. Options about kgo's own consuming and producing have no effect.
func KafkaOpts(opts ...kgo.Opt) Opt { return Opt{kafka: opts} }

// SeedBrokers are the HOST:PORT of brokers to connect to first; short for
// KafkaOpts(kgo.SeedBrokers(...)).
func SeedBrokers(hostPorts ...string) Opt { return KafkaOpts(kgo.SeedBrokers(hostPorts...)) }

// NewAdmin makes an Admin. Nothing is dialled before its first call.
func NewAdmin(opts ...AdminOpt) (*Admin, error) {
	var cfg adminConfig
	for _, o := range opts {
		o.applyAdmin(&cfg)
	}
	cl, err := kgo.NewClient(cfg.kafka...)
	if err != nil {
		return nil, err
	}
	return &Admin{cl: cl, kad: kadm.NewClient(cl)}, nil
}

// Kafka is the kgo client below, for what this package has no word for. It is closed with
// the Admin.
func (a *Admin) Kafka() *kgo.Client { return a.cl }

// Close ends the Admin and its connections.
func (a *Admin) Close() { a.cl.Close() }

// ready checks once that the broker knows individual commits.
func (a *Admin) ready(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.checked {
		return nil
	}
	if err := requireFeatures(ctx, a.cl, protocol.FeatureIndividualCommit); err != nil {
		return err
	}
	a.mu.checked = true
	return nil
}

// find looks up one partition by its topic's id, which a request must carry.
func (a *Admin) find(ctx context.Context, tp TopicPartition) (topicInfo, error) {
	topics, err := findTopics(ctx, a.cl, tp.Topic)
	if err != nil {
		return topicInfo{}, err
	}
	t := topics[tp.Topic]
	if _, ok := t.partitions[tp.Partition]; !ok {
		return topicInfo{}, noSuchPartition(tp, t)
	}
	return t, nil
}
