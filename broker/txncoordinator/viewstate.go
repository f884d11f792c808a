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
	unseen journal.Mirror // by the view
}

// Reset is part of journal.State.
func (v *viewState) Reset() {
	v.state = transaction.NewState(v.config)
	v.unseen = make(journal.Mirror)
}

// Load is part of journal.State.
func (v *viewState) Load(key, value []byte) error {
	v.apply(key, value)
	return nil
}

// Apply is part of journal.State.
func (v *viewState) Apply(_ int64, r journal.Record) error {
	v.apply(r.Key, r.Value)
	v.unseen.Note(r.Key, bytes.Clone(r.Value))
	return nil
}

// apply goes on without a record that cannot be read: it concerns one transactional id.
func (v *viewState) apply(key, value []byte) {
	if err := v.state.Apply(key, value); err != nil {
		v.log.Error("a record of __transaction_state cannot be read and is ignored", zap.Error(err))
	}
}

// Lost is part of journal.Tolerant: what a damaged batch held falls back to what was
// before it.
func (v *viewState) Lost(e *journal.CorruptError) error {
	v.log.Error("transactions of a damaged batch are lost; their ids go on from what was before, "+
		"and what they left open is to be aborted by an operator", zap.Error(e))
	return nil
}

// Checkpoint is part of journal.State.
func (v *viewState) Checkpoint(w journal.Writer) error {
	v.unseen.Checkpoint(w)
	return nil
}
