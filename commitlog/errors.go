package commitlog

import "errors"

// Errors of a Log. They come wrapped with the log's name and the offset; compare with
// errors.Is.
var (
	// ErrOffsetOutOfRange: the offset is below the log start or above the high watermark.
	ErrOffsetOutOfRange = errors.New("offset out of range")

	// ErrOutOfOrderSequence: an idempotent producer's batch does not follow its last one.
	ErrOutOfOrderSequence = errors.New("out of order sequence number")

	// ErrInvalidProducerEpoch: a newer producer with the same id has written since.
	ErrInvalidProducerEpoch = errors.New("invalid producer epoch")

	// ErrInvalidTxnState: a batch outside a transaction from a producer that is in one.
	ErrInvalidTxnState = errors.New("invalid transaction state")

	// ErrCoordinatorFenced: a transaction marker of an older transaction coordinator.
	ErrCoordinatorFenced = errors.New("transaction coordinator fenced")

	// ErrReadOnly: a write or fsync failed earlier, or now; it wraps the cause. The log
	// still serves what was durable. Only a restart, with its recovery, ends this state.
	ErrReadOnly = errors.New("log is read-only after a storage failure")

	// ErrNoSpace: the disk is full. Nothing was appended; a later append may succeed.
	ErrNoSpace = errors.New("no space left for the log")

	// ErrTooLarge: the batch is larger than max.message.bytes or than a segment.
	ErrTooLarge = errors.New("record batch too large")

	// ErrInvalidTimestamp: a timestamp outside message.timestamp.before/after.max.ms.
	ErrInvalidTimestamp = errors.New("invalid timestamp")

	// ErrSegmentGone: the segment was deleted or compacted since its SegmentInfo was made.
	ErrSegmentGone = errors.New("segment is gone")

	// ErrClosed: the log was closed or removed.
	ErrClosed = errors.New("log is closed")
)

// errCorruptFile marks a file of ours, other than a segment, that cannot be believed.
// It never leaves the package: such files are rebuilt.
var errCorruptFile = errors.New("corrupt file")

// errSync marks a failed fsync of a segment or of the directory. After one, nobody knows
// what is on the disk, and a second that succeeds proves nothing.
var errSync = errors.New("fsync failed")
