package main

import (
	"encoding/binary"

	"github.com/lacunamq/lacuna/bench/peers/load"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// batchHeader is the length of a record batch's header.
const batchHeader = 61

// appendAcquired walks record batches, which are uncompressed here, and appends the
// records that were acquired. Control batches are left out.
func appendAcquired(out []load.Msg, part int32, batches []byte, acquired []kmsg.ShareFetchResponseTopicPartitionAcquiredRecord) []load.Msg {
	for len(batches) >= batchHeader && len(acquired) > 0 {
		base := int64(binary.BigEndian.Uint64(batches))
		length := int(binary.BigEndian.Uint32(batches[8:])) + 12
		if length > len(batches) {
			break
		}
		attributes := binary.BigEndian.Uint16(batches[21:])
		count := int(binary.BigEndian.Uint32(batches[57:]))
		body := batches[batchHeader:length]
		batches = batches[length:]
		if attributes&0x27 != 0 { // a codec, or control
			continue
		}
		for range count {
			size, n := binary.Varint(body)
			if n <= 0 || int(size)+n > len(body) {
				break
			}
			m := parseRecord(body[n:n+int(size)], base)
			body = body[n+int(size):]
			for len(acquired) > 0 && acquired[0].LastOffset < m.Off {
				acquired = acquired[1:]
			}
			if len(acquired) == 0 {
				break
			}
			if m.Off >= acquired[0].FirstOffset {
				m.Part, m.Deliv = part, int32(acquired[0].DeliveryCount)
				out = append(out, m)
			}
		}
	}
	return out
}

// parseRecord reads offset, key and value of a record.
func parseRecord(rec []byte, base int64) load.Msg {
	rec = rec[1:] // attributes
	_, rec = varint(rec)
	delta, rec := varint(rec)
	m := load.Msg{Off: base + delta}
	size, rec := varint(rec)
	if size >= 0 {
		m.Key, rec = rec[:size], rec[size:]
	}
	if size, rec = varint(rec); size >= 0 {
		m.Val = rec[:size]
	}
	return m
}

func varint(b []byte) (int64, []byte) {
	v, n := binary.Varint(b)
	return v, b[n:]
}
