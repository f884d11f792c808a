package tests

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/protocol"
)

// batchOf is a batch of records with these values and no keys.
func batchOf(t *testing.T, values ...[]byte) []byte {
	t.Helper()
	var b protocol.BatchBuilder
	b.Reset(protocol.PlainBatch(0))
	for _, v := range values {
		b.Append(nil, v, nil, 1)
	}
	batch, err := b.Build(nil)
	require.NoError(t, err)
	return batch
}
