package statestore

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

func benchmarkStores(b *testing.B, run func(b *testing.B, s Store)) {
	for name, open := range openers() {
		b.Run("store="+name, func(b *testing.B) {
			s, err := open(vfs.Default, b.TempDir())
			require.NoError(b, err)
			key, value := make([]byte, 8), make([]byte, 100)
			for i := range uint64(10000) {
				binary.BigEndian.PutUint64(key, i)
				require.NoError(b, s.Put(key, value))
			}
			require.NoError(b, s.Commit())
			b.ReportAllocs()
			run(b, s)
			require.NoError(b, s.Close())
		})
	}
}

func BenchmarkGet(b *testing.B) {
	benchmarkStores(b, func(b *testing.B, s Store) {
		key := make([]byte, 8)
		for i := uint64(0); b.Loop(); i++ {
			binary.BigEndian.PutUint64(key, i%10000)
			if _, ok, err := s.Get(key); err != nil || !ok {
				b.Fatal(ok, err)
			}
		}
	})
}

// A record that is read, changed and written, with a commit of the offset each so many.
func BenchmarkUpdate(b *testing.B) {
	for _, every := range []uint64{1, 100, 10000} {
		b.Run(fmt.Sprintf("commit=%d", every), func(b *testing.B) {
			benchmarkStores(b, func(b *testing.B, s Store) {
				key, value := make([]byte, 8), make([]byte, 100)
				offset := Offset{Source: part("in", 0, 0, 0xffff)}
				for i := uint64(0); b.Loop(); i++ {
					binary.BigEndian.PutUint64(key, i*2654435761%10000)
					if _, _, err := s.Get(key); err != nil {
						b.Fatal(err)
					}
					if err := s.Put(key, value); err != nil {
						b.Fatal(err)
					}
					if i%every == every-1 {
						offset.Next = int64(i)
						if err := s.Commit(offset); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		})
	}
}

func BenchmarkScanOffsets(b *testing.B) {
	const stores = 1000
	b.Run(fmt.Sprintf("stores=%d", stores), func(b *testing.B) {
		root := b.TempDir()
		storesOnDisk(b, vfs.Default, root, stores)
		b.ReportAllocs()
		for b.Loop() {
			cache, err := ScanOffsets(ctx, vfs.Default, root, Pebble(), 4)
			if err != nil || len(cache.Tasks()) != stores {
				b.Fatal(err)
			}
		}
	})
}
