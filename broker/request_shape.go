package broker

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// shape is the outline of a request on the wire: enough to count its elements without
// decoding it. It is for requests that may be large. The decoder allocates for each
// element and each tag before it knows what is in them, which for a request made of
// nothing else is many times its size.
type shape []field

// field is one field of a shape, in the versions from since on, before until (0: all).
type field struct {
	kind         fieldKind
	since, until int16
	size         int   // of a fixed one
	of           shape // the elements of an array, or the content of tag 1
}

type fieldKind int8

const (
	fixedField  fieldKind = iota
	stringField           // its length in two bytes, or compact
	bytesField            // its length in four bytes, or compact
	arrayField
	tagsField
)

func fixed(size int) field    { return field{kind: fixedField, size: size} }
func text() field             { return field{kind: stringField} }
func content() field          { return field{kind: bytesField} }
func array(of ...field) field { return field{kind: arrayField, of: of} }

// tags are the tagged fields of a structure; the content of tag 1 may have a shape.
func tags(tag1 ...field) field { return field{kind: tagsField, of: tag1} }

func (f field) from(version int16) field   { f.since = version; return f }
func (f field) before(version int16) field { f.until = version; return f }

// The requests that may be large. Topics are named by name before the version given, by
// id from it on.
var (
	produceShape = shape{
		text().from(3), fixed(2 + 4),
		array(text().before(13), fixed(16).from(13), array(fixed(4), content(), tags()), tags()),
		tags(),
	}
	fetchShape = shape{
		fixed(4).before(15), fixed(4 + 4), fixed(4).from(3), fixed(1).from(4), fixed(4 + 4).from(7),
		array(text().before(13), fixed(16).from(13),
			array(fixed(4), fixed(4).from(9), fixed(8), fixed(4).from(12), fixed(8).from(5), fixed(4), tags()), tags()),
		array(text().before(13), fixed(16).from(13), array(fixed(4)), tags()).from(7),
		text().from(11), tags(fixed(4+8), tags()),
	}
	offsetCommitShape = shape{
		text(), fixed(4).from(1), text().from(1), text().from(7), fixed(8).from(2).before(5),
		array(text().before(10), fixed(16).from(10),
			array(fixed(4+8), fixed(8).from(1).before(2), fixed(4).from(6), text(), tags()), tags()),
		tags(),
	}
	txnOffsetCommitShape = shape{
		text(), text(), fixed(8 + 2), fixed(4).from(3), text().from(3), text().from(3),
		array(text().before(6), fixed(16).from(6),
			array(fixed(4+8), fixed(4).from(2), text(), tags()), tags()),
		tags(),
	}
)

// measure counts the elements of arrays and the tags in the body of a request, and the
// bytes in those tags. It stops where the body makes no sense, which the decoder then
// finds out, too.
func (s shape) measure(req kmsg.Request, body []byte) (elements, tagBytes int) {
	w := shapeWalk{rest: body, version: req.GetVersion(), flexible: req.IsFlexible()}
	w.walk(s)
	return w.count, w.tagBytes
}

// shapeWalk is a walk over a body along its shape. After a fault nothing is left.
type shapeWalk struct {
	rest     []byte
	version  int16
	flexible bool
	count    int // of elements and tags
	tagBytes int
}

func (w *shapeWalk) walk(s shape) {
	for i := range s {
		f := &s[i]
		if w.version < f.since || f.until > 0 && w.version >= f.until {
			continue
		}
		switch f.kind {
		case fixedField:
			w.skip(f.size)
		case stringField:
			w.skip(w.length(2))
		case bytesField:
			w.skip(w.length(4))
		case arrayField:
			w.array(f.of)
		case tagsField:
			w.tags(f.of)
		}
	}
}

// array counts the elements that are announced, since the decoder makes them all before it
// reads the first. It refuses more than there are bytes.
func (w *shapeWalk) array(of shape) {
	n := w.length(4)
	if n > len(w.rest) {
		w.rest = nil
		return
	}
	w.count += max(n, 0)
	for ; n > 0 && len(w.rest) > 0; n-- {
		w.walk(of)
	}
}

func (w *shapeWalk) tags(tag1 shape) {
	if !w.flexible {
		return
	}
	for n := w.uvarint(); n > 0 && len(w.rest) > 0; n-- {
		w.count++
		number, size := w.uvarint(), w.uvarint()
		if number == 1 && tag1 != nil && uint64(size) <= uint64(len(w.rest)) {
			inner := shapeWalk{rest: w.rest[:size], version: w.version, flexible: true}
			inner.walk(tag1)
			w.count += inner.count
		}
		size = min(size, uint32(len(w.rest)))
		w.tagBytes += int(size)
		w.skip(int(size))
	}
}

// length reads the length of a string, bytes or an array, a null one's being 0.
func (w *shapeWalk) length(size int) int {
	if w.flexible {
		return int(w.uvarint()) - 1
	}
	b := w.rest
	w.skip(size)
	switch {
	case len(b) < size:
		return 0
	case size == 2:
		return int(int16(binary.BigEndian.Uint16(b)))
	default:
		return int(int32(binary.BigEndian.Uint32(b)))
	}
}

func (w *shapeWalk) skip(n int) {
	if n > len(w.rest) {
		n = len(w.rest)
	}
	w.rest = w.rest[max(n, 0):]
}

func (w *shapeWalk) uvarint() uint32 {
	v, n := binary.Uvarint(w.rest)
	if n <= 0 || v > 1<<32-1 {
		w.rest = nil
		return 0
	}
	w.rest = w.rest[n:]
	return uint32(v)
}
