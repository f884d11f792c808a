package protocol

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSmoke(t *testing.T) {
	for c := CodecNone; c <= CodecZstd; c++ {
		var b BatchBuilder
		o := PlainBatch(0)
		o.Codec = c
		b.Reset(o)
		for i := range 1000 {
			b.Append([]byte(fmt.Sprint("key", i)), bytes.Repeat([]byte("hello "), 20), []Header{{"a", nil}, {"b", []byte{}}}, int64(100+i))
		}
		batch, err := b.Build(nil)
		require.NoError(t, err)
		h, err := CheckProduced(batch, CheckOptions{})
		require.NoError(t, err)
		var d Decompressor
		rec, err := d.Records(&h, batch, 1<<20)
		require.NoError(t, err, c.String())
		it := IterateRecords(&h, rec)
		n := 0
		for it.Next() {
			require.Equal(t, fmt.Sprint("key", n), string(it.Record().Key))
			n++
		}
		require.NoError(t, it.Err())
		require.Equal(t, 1000, n)
		_, err = d.Records(&h, batch, len(rec)-1)
		if c != CodecNone {
			require.ErrorIs(t, err, ErrTooLarge)
			_, err = d.Records(&h, batch, len(rec))
			require.NoError(t, err)
		}
	}
}
