// Package processortest has what processors of tests do alike.
package processortest

import (
	"bytes"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/processor"
)

// Count adds one to the count that a store keeps of a key, and returns what it was before.
func Count(c *processor.Context, store string, key []byte) (before int, err error) {
	counts, err := c.Store(store)
	if err != nil {
		return 0, err
	}
	value, found, err := counts.Get(key)
	if err != nil {
		return 0, err
	}
	if found {
		if before, err = strconv.Atoi(string(value)); err != nil {
			return 0, err
		}
	}
	return before, counts.Put(key, strconv.AppendInt(nil, int64(before+1), 10))
}

// Drain forwards all entries of a store and deletes them, and asks for the commit: what a
// punctuation does that emits everything.
func Drain(c *processor.Context, s *processor.Store) error {
	for e, err := range s.Prefix(nil) {
		if err != nil {
			return err
		}
		key := bytes.Clone(e.Key)
		if err := c.Forward(&kgo.Record{Key: key, Value: bytes.Clone(e.Value)}); err != nil {
			return err
		}
		if err := s.Delete(key); err != nil {
			return err
		}
	}
	c.RequestCommit()
	return nil
}
