package protocol

import "fmt"

// Picker makes batches of some records of others. It keeps its buffer, so it allocates
// nothing in steady state, and belongs to one user at a time. The zero value is ready.
type Picker struct {
	plain []byte // the records to compress
}

// keepPlainBytes is how large a buffer a Picker keeps.
const keepPlainBytes = 4 << 20

// Append appends to dst the batch without the records that are not in runs, which rise;
// records are its records, decompressed. Offsets, timestamps and the rest of the header
// stay as they are.
//
// A batch whose checksum is wrong, or whose records cannot be read, is an error, and dst is
// returned as it was: a new checksum must not make good what is damaged.
func (p *Picker) Append(dst []byte, h *BatchHeader, batch, records []byte, runs []Run) ([]byte, error) {
	if err := VerifyCRC(h, batch); err != nil {
		return dst, err
	}
	before := len(dst)
	picked := append(dst, batch[:BatchHeaderLen]...)
	compressed := h.Codec() != CodecNone
	if compressed {
		dst, picked = picked, p.plain[:0]
	}
	count := 0
	it := IterateRecords(h, records)
	for it.Next() {
		r := it.Record()
		for len(runs) > 0 && runs[0].End <= r.Offset {
			runs = runs[1:]
		}
		if len(runs) > 0 && runs[0].Start <= r.Offset {
			picked = append(picked, r.Raw...)
			count++
		}
	}
	if err := it.Err(); err != nil {
		return dst[:before], err
	}
	if compressed {
		if p.plain = picked; cap(picked) > keepPlainBytes {
			p.plain = nil
		}
		var err error
		if picked, err = CompressRecords(dst, h.Codec(), picked); err != nil {
			return dst[:before], fmt.Errorf("compress %d records: %w", count, err)
		}
	}
	SetRecords(picked[before:], count)
	return picked, nil
}
