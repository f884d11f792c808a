package txncoordinator

import (
	"bytes"

	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/broker/transaction"
	"go.uber.org/zap"
)

// viewState is the state of a shard as its log and its view see it. The view keeps
// records as they are in the log, those of later versions too.
type viewState struct {
	state  *transaction.State
	config transaction.Config
	log    *zap.Logger
	// dirty holds the last value, nil for none, of the keys that the view lags behind in.
	dirty map[string][]byte
}

// Reset is part of journal.State.
func (v *viewState) Reset() {
	v.state = transaction.NewState(v.config)
	v.dirty = make(map[string][]byte)
}

// Load is part of journal.State.
func (v *viewState) Load(key, value []byte) error {
	v.apply(key, value)
	return nil
}

// Apply is part of journal.State.
func (v *viewState) Apply(_ int64, r journal.Record) error {
	v.apply(r.Key, r.Value)
	v.note(r.Key, bytes.Clone(r.Value))
	return nil
}

// apply goes on without a record that cannot be read: it concerns one transactional id.
func (v *viewState) apply(key, value []byte) {
	if err := v.state.Apply(key, value); err != nil {
		v.log.Error("a record of __transaction_state cannot be read and is ignored", zap.Error(err))
	}
}

// note remembers what the view is to hold; the value is kept.
func (v *viewState) note(key, value []byte) { v.dirty[string(key)] = value }

// Lost is part of journal.Tolerant: what a damaged batch held falls back to what was
// before it.
func (v *viewState) Lost(e *journal.CorruptError) error {
	v.log.Error("transactions of a damaged batch are lost; their ids go on from what was before, "+
		"and what they left open is to be aborted by an operator", zap.Error(e))
	return nil
}

// Checkpoint is part of journal.State.
func (v *viewState) Checkpoint(w journal.Writer) error {
	for key, value := range v.dirty {
		if value == nil {
			w.Delete([]byte(key))
		} else {
			w.Set([]byte(key), value)
		}
	}
	clear(v.dirty)
	return nil
}
