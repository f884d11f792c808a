package commitlog

import (
	"fmt"
	"math"
)

// checkTimestamps is Kafka's check of what a producer claims. Times are those of the
// header: the first record's and the largest, so that nothing is decompressed here.
func checkTimestamps(e *entry, c *Config) error {
	if c.LogAppendTime {
		return nil
	}
	if e.h.LogAppendTime() {
		return fmt.Errorf("%w: a producer may not set the log append time", ErrInvalidTimestamp)
	}
	if err := checkTimestamp(e.h.MaxTimestamp, e.nowMs, c); err != nil {
		return err
	}
	return checkTimestamp(e.h.FirstTimestamp, e.nowMs, c)
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
