package protocol

// Picker makes batches of some records of others. It keeps its buffers, so it allocates
// nothing in steady state, and belongs to one user at a time. The zero value is ready.
type Picker struct {
	codec Decompressor
	plain []byte // the records to compress
}

// Append appends to dst the batch, without the records that are not in runs, which rise.
// Offsets, timestamps and the rest of the header stay as they are. A batch that cannot be
// decompressed to limit bytes or read is appended whole.
//
// Where the checksum of the batch is wrong it is left wrong, since the records are.
func (p *Picker) Append(dst []byte, h *BatchHeader, batch []byte, runs []Run, limit int) []byte {
	if VerifyCRC(h, batch) != nil {
		return append(dst, batch...)
	}
	records, err := p.codec.Records(h, batch, limit)
	if err != nil {
		return append(dst, batch...)
	}
	before := len(dst)
	dst = append(dst, batch[:BatchHeaderLen]...)
	picked := dst
	if h.Codec() != CodecNone {
		picked = p.plain[:0]
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
	if it.Err() != nil {
		return append(dst[:before], batch...)
	}
	if h.Codec() != CodecNone {
		p.plain = picked
		if picked, err = CompressRecords(dst, h.Codec(), picked); err != nil {
			return append(dst[:before], batch...) // the codec could read it, so this does not happen
		}
	}
	SetRecords(picked[before:], count)
	return picked
}
