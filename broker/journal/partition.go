package journal

import "github.com/lacunamq/lacuna/statestore"

// Partition is one partition of an internal topic with the view that is made of it.
type Partition struct {
	Log  Log
	View *statestore.View
	// Source names the log, so that one made anew has another name.
	Source string
}

// Mirror is what a view lags behind in that holds records as they are in the log: the last
// value of each key, nil for none. It keeps the values.
type Mirror map[string][]byte

// Note remembers the last value of a key.
func (m Mirror) Note(key, value []byte) { m[string(key)] = value }

// Checkpoint writes what the view lags behind in; see State.
func (m Mirror) Checkpoint(w Writer) {
	for key, value := range m {
		if value == nil {
			w.Delete([]byte(key))
		} else {
			w.Set([]byte(key), value)
		}
	}
	clear(m)
}
