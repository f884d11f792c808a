package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// controller owns the cluster's metadata: an image for everybody to read, and the log
// that decides. Changes are made one at a time; each is durable before it shows.
type controller struct {
	b       *Broker
	log     *commitlog.Log
	journal *journal.Journal
	// checkpointer writes the view.
	checkpointer *journal.Checkpointer
	image        atomic.Pointer[metadata.Image]

	change sync.Mutex // held through a whole change
	// draft is what recovery applies to.
	draft *metadata.Draft
	// dirty says that the view lags behind; it is written whole, being small.
	dirty atomic.Bool
}

// metadataView names the controller's view in the state store, and its source.
const metadataView = "metadata"

// openController recovers the metadata.
func openController(ctx context.Context, b *Broker) (*controller, error) {
	options := b.logOptions("metadata", b.dir.join("metadata"))
	options.Config = commitlog.DefaultConfig()
	options.Config.Delete, options.Config.Compact = false, true
	view := b.store.View(metadataView)
	options.CleanUpTo = journal.CleanUpTo(view, metadataView)
	log, err := commitlog.Open(options)
	if err != nil {
		return nil, fmt.Errorf("open the metadata log: %w", err)
	}
	c := &controller{b: b, log: log, journal: journal.Open(log, metadataView)}
	c.Reset()
	recovered, err := journal.Recover(ctx, view, metadataView, log, c)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("recover the metadata: %w", err), log.Close())
	}
	if recovered.Dropped != "" {
		b.log.Warn("the view of the metadata was dropped and built anew", zap.String("why", recovered.Dropped))
	}
	c.image.Store(c.draft.Image())
	c.draft = nil
	c.checkpointer = journal.NewCheckpointer(view, metadataView, log)
	c.dirty.Store(recovered.Replayed > 0)
	return c, nil
}

// Reset begins recovery with nothing. It is part of journal.State.
func (c *controller) Reset() { c.draft = metadata.NewDraft(metadata.NewImage()) }

// Load takes in what the view holds. It is part of journal.State.
func (c *controller) Load(key, value []byte) error { return c.draft.Apply(key, value) }

// Apply takes in a record of the log. It is part of journal.State.
func (c *controller) Apply(_ int64, r journal.Record) error { return c.draft.Apply(r.Key, r.Value) }

// Checkpoint writes the image to the view. It is part of journal.State.
func (c *controller) Checkpoint(w journal.Writer) error {
	w.DeletePrefix(nil)
	for _, r := range c.image.Load().Snapshot() {
		w.Set(r.Key, r.Value)
	}
	return nil
}

// do makes one change: decide looks at the image and returns what to log. Readers see
// the new image when do returns.
func (c *controller) do(decide func(*metadata.Image) ([]metadata.Record, error)) error {
	c.change.Lock()
	defer c.change.Unlock()
	image := c.image.Load()
	decided, err := decide(image)
	if err != nil || len(decided) == 0 {
		return err
	}
	records := make([]journal.Record, len(decided))
	draft := metadata.NewDraft(image)
	for i, r := range decided {
		records[i] = journal.Record{Key: r.Key, Value: r.Value, TimestampMs: c.b.nowMs()}
		if err := draft.Apply(r.Key, r.Value); err != nil {
			return fmt.Errorf("decided metadata cannot be applied: %w", err)
		}
	}
	receipt, err := c.journal.Append(records)
	if err != nil {
		return fmt.Errorf("append to the metadata log: %w", err)
	}
	// No way back from here, so the caller's patience does not count.
	if err := receipt.Wait(context.Background()); err != nil {
		return fmt.Errorf("append to the metadata log: %w", err)
	}
	c.image.Store(draft.Image())
	c.dirty.Store(true)
	c.b.metadataChanged(c.image.Load())
	return nil
}

func newTopicID() metadata.TopicID { return metadata.NewTopicID(uuid.New()) }

// createTopic makes a topic and returns it.
func (c *controller) createTopic(t metadata.Topic) (*topic, error) {
	t.ID = newTopicID()
	err := c.do(func(image *metadata.Image) ([]metadata.Record, error) { return image.CreateTopic(&t) })
	if err != nil {
		return nil, err
	}
	c.b.log.Info("topic created", zap.String("topic", t.Name), zap.Stringer("id", t.ID), zap.Int32("partitions", t.Partitions))
	made, refused := c.b.topics.find("", t.ID, true)
	if refused != nil { // deleted again already
		return nil, refused
	}
	return made, nil
}

// deleteTopic removes a topic and all that is its own.
func (c *controller) deleteTopic(id metadata.TopicID) error {
	return c.do(func(image *metadata.Image) ([]metadata.Record, error) { return image.DeleteTopic(id) })
}

// reserveProducerIDs gives away n producer ids.
func (c *controller) reserveProducerIDs(_ context.Context, n int64) (first int64, err error) {
	err = c.do(func(image *metadata.Image) (records []metadata.Record, _ error) {
		first, records = image.ReserveProducerIDs(n)
		return records, nil
	})
	return first, err
}

// autoCreate makes a topic that a client asked for by name.
func (b *Broker) autoCreate(name string) (*topic, error) {
	t, err := b.controller.createTopic(metadata.Topic{Name: name, Partitions: b.settings().NumPartitions})
	if errors.Is(err, metadata.ErrTopicExists) {
		if t, refused := b.topics.find(name, metadata.TopicID{}, false); refused == nil {
			return t, nil
		}
		return nil, kerr.LeaderNotAvailable
	}
	return t, err
}

// close stops the controller; with a clean stop ahead the view is written first.
func (c *controller) close(ctx context.Context) error {
	return errors.Join(c.checkpoint(ctx), c.log.Close())
}

// checkpoint writes the view if there was a change.
func (c *controller) checkpoint(ctx context.Context) error {
	c.change.Lock()
	defer c.change.Unlock()
	if !c.dirty.Load() {
		return nil
	}
	if err := c.checkpointer.Stage(c, c.log.Bounds().HighWatermark); err != nil {
		return err
	}
	if err := c.checkpointer.Commit(ctx); err != nil {
		return err
	}
	c.dirty.Store(false)
	return nil
}
