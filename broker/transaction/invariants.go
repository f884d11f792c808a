package transaction

import (
	"fmt"
	"reflect"
)

// CheckInvariants tells what is wrong with the state, for tests: nil is well.
func (s *State) CheckInvariants() error {
	queued := 0
	for id, e := range s.ids {
		if e.id != id {
			return fmt.Errorf("transactional id %q is filed under %q", e.id, id)
		}
		if err := s.checkEntry(e); err != nil {
			return fmt.Errorf("transactional id %q in %s: %w", id, e.status, err)
		}
		if e.deadline.IsSet() {
			queued++
		}
	}
	if queued != s.deadlines.Len() {
		return fmt.Errorf("%d ids are due some time, %d are queued", queued, s.deadlines.Len())
	}
	return s.deadlines.CheckInvariants()
}

func (s *State) checkEntry(e *entry) error {
	at, waits := s.due(&e.value)
	switch {
	case waits != e.deadline.IsSet() || waits && at != e.deadline.At():
		return fmt.Errorf("due at %v (%v), queued for %v (%v)", at, waits, e.deadline.At(), e.deadline.IsSet())
	case e.producer.ID < 0 || e.producer.Epoch < 0:
		return fmt.Errorf("producer id %d, epoch %d", e.producer.ID, e.producer.Epoch)
	case e.nextID != noID && !e.status.ending():
		return fmt.Errorf("producer id %d is still to come", e.nextID)
	case len(e.partitions) > 0 && (e.status == Empty || e.status.complete()):
		return fmt.Errorf("%d partitions", len(e.partitions))
	}
	r := encodeRecord(e.id, &e.value)
	_, back, err := decodeRecord(r.Key, r.Value)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(*back, e.value) {
		return fmt.Errorf("logged as %+v, which is read as %+v", e.value, *back)
	}
	return nil
}
