package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ExtensionTag is the number of every tagged field of Lacuna's extension.
const ExtensionTag = 10000

// The features that ApiVersions lists, each with ExtensionVersion as min and max.
const (
	FeatureIndividualCommit    = "individual.commit.version"
	FeatureKeyFilter           = "key.filter.version"
	FeatureCooperativeDelivery = "cooperative.delivery.version"

	ExtensionVersion = 1
)

// The limits of one request, over all its fields of the extension.
const (
	MaxRuns          = 1_000_000
	MaxKeysAndRanges = 100_000
	MaxKeyBytes      = 65_535
)

// ErrInvalidExtension marks a malformed field of the extension; Kafka's error code for
// it is INVALID_REQUEST.
var ErrInvalidExtension = errors.New("invalid extension field")

// ErrOverLimit marks a field that takes more than its request may have in all; every
// partition of the request is then INVALID_REQUEST. It wraps ErrInvalidExtension.
var ErrOverLimit = fmt.Errorf("%w: over the limit of a request", ErrInvalidExtension)

// Budget is what is left of the limits of one request whose partitions have fields of
// their own. They take from it before anything is allocated for them.
type Budget struct {
	Runs int
}

// NewBudget is the budget of a whole request.
func NewBudget() Budget { return Budget{Runs: MaxRuns} }

func take(left *int, n int, what string) error {
	if n > *left {
		return fmt.Errorf("%w: %d %s, %d left", ErrOverLimit, n, what, *left)
	}
	*left -= n
	return nil
}

// fields reads the fields of a structure one by one; the first fault sticks, after
// which all reads give zero values.
type fields struct {
	b   []byte
	err error
}

func (f *fields) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: "+format, append([]any{ErrInvalidExtension}, args...)...)
	}
	f.b = nil
}

// bytes reads n bytes, which alias the field.
func (f *fields) bytes(n int, what string) []byte {
	if f.err != nil || n > len(f.b) {
		f.fail("%s does not fit", what)
		return nil
	}
	out := f.b[:n:n]
	f.b = f.b[n:]
	return out
}

func (f *fields) int64(what string) int64 {
	if b := f.bytes(8, what); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (f *fields) uint16(what string) uint16 {
	if b := f.bytes(2, what); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (f *fields) uvarint(what string) uint32 {
	v, next := uvarint32(f.b, 0)
	if f.err != nil || next < 0 {
		f.fail("%s does not fit", what)
		return 0
	}
	f.b = f.b[next:]
	return v
}

// arrayLen reads the length of a compact array whose elements take at least size bytes.
func (f *fields) arrayLen(size int, what string) int {
	n := f.uvarint(what)
	if f.err != nil {
		return 0
	}
	if n == 0 {
		f.fail("%s are null", what)
		return 0
	}
	if uint64(n-1)*uint64(size) > uint64(len(f.b)) {
		f.fail("%d %s in %d bytes", n-1, what, len(f.b))
		return 0
	}
	return int(n - 1)
}

// tags iterates over the tagged fields that end a structure.
type tags struct {
	left   uint32
	number int64 // of the tag that next moved to; they rise
	value  []byte
}

func (f *fields) tags() tags { return tags{left: f.uvarint("number of tags"), number: -1} }

// next moves to the next tag. It returns false at the end and at a fault.
func (t *tags) next(f *fields) bool {
	if t.left == 0 || f.err != nil {
		return false
	}
	t.left--
	number := int64(f.uvarint("tag"))
	size := f.uvarint("tag size")
	if f.err == nil && number <= t.number {
		f.fail("tag %d after tag %d", number, t.number)
	}
	if uint64(size) > uint64(len(f.b)) {
		f.fail("tag %d does not fit", number)
	}
	t.number, t.value = number, f.bytes(int(size), "tag")
	return f.err == nil
}

// fixed is the tag's value, which has to be of size bytes.
func (t *tags) fixed(f *fields, size int, what string) []byte {
	if len(t.value) != size {
		f.fail("%s of %d bytes", what, len(t.value))
		return nil
	}
	return t.value
}

// int64 is the tag's value as an INT64, 0 at a fault.
func (t *tags) int64(f *fields, what string) int64 {
	if b := t.fixed(f, 8, what); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// skipTags skips tagged fields none of which is known.
func (f *fields) skipTags() {
	for t := f.tags(); t.next(f); {
	}
}

// end checks that everything was read and returns the first fault.
func (f *fields) end() error {
	if f.err == nil && len(f.b) != 0 {
		f.fail("%d trailing bytes", len(f.b))
	}
	return f.err
}

// noTags is the end of a structure without tagged fields.
const noTags = 0

// appendTag64 appends a tagged INT64.
func appendTag64(dst []byte, tag uint64, v int64) []byte {
	dst = binary.AppendUvarint(dst, tag)
	dst = append(dst, 8)
	return binary.BigEndian.AppendUint64(dst, uint64(v))
}
