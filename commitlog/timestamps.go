package commitlog

import (
	"fmt"
	"math"

	"github.com/lacunamq/lacuna/protocol"
)

// checkTimestamps is Kafka's check of what a producer claims. The header has the first
// record's time and the largest; the others matter, and the batch is decoded, only to a
// topic that limits how old records may be.
func checkTimestamps(e *entry, c *Config, d *DecodeLimiter) error {
	if c.LogAppendTime {
		return nil
	}
	if e.h.LogAppendTime() {
		return fmt.Errorf("%w: a producer may not set the log append time", ErrInvalidTimestamp)
	}
	if err := checkTimestamp(e.h.MaxTimestamp, e.nowMs, c); err != nil {
		return err
	}
	if err := checkTimestamp(e.h.FirstTimestamp, e.nowMs, c); err != nil || c.TimestampBeforeMaxMs == math.MaxInt64 {
		return err
	}
	return d.Records(&e.h, e.bytes, func(records []byte) error {
		it := protocol.IterateRecords(&e.h, records)
		for it.Next() {
			if err := checkTimestamp(it.Record().TimestampMs, e.nowMs, c); err != nil {
				return err
			}
		}
		return it.Err()
	})
}

func checkTimestamp(ms, nowMs int64, c *Config) error {
	if ms < 0 {
		return nil // none
	}
	if c.TimestampAfterMaxMs < math.MaxInt64-nowMs && ms > nowMs+c.TimestampAfterMaxMs {
		return fmt.Errorf("%w: %d is more than message.timestamp.after.max.ms, %d, after %d", ErrInvalidTimestamp, ms, c.TimestampAfterMaxMs, nowMs)
	}
	if c.TimestampBeforeMaxMs < math.MaxInt64 && ms < nowMs-c.TimestampBeforeMaxMs {
		return fmt.Errorf("%w: %d is more than message.timestamp.before.max.ms, %d, before %d", ErrInvalidTimestamp, ms, c.TimestampBeforeMaxMs, nowMs)
	}
	return nil
}
