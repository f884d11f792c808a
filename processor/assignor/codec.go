package assignor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/lacunamq/lacuna/keyfilter"
)

// What members and their leader tell each other, as bytes. All numbers are UVARINT, lists and
// strings begin with their length:
//
//	claim      => version name initial known(0/1) [group generation+1 holders idle] tasks onDisk
//	assignment => version group holders idle tasks
//	group      => initial topics; topic => name id(16 bytes) partitions fold grown; grown => ends; ends => offsets
//	onDisk     => stored; stored => bucket lag+1
//	task       => bucket active rebuild (ready lag reached, in a claim)
//	reached    => ranges; range => topic partition first last next
//	area => spans; span => from length
const codecVersion = 2

// ErrMalformed marks bytes that are not a claim or an assignment.
var ErrMalformed = errors.New("malformed data of a processor group")

// maxPartitions bounds what a group may claim that a topic has.
const maxPartitions = 1 << 20

// AppendClaim appends a claim.
func AppendClaim(b []byte, c *Claim) []byte {
	b = appendString(append(b, codecVersion), c.Name)
	b = binary.AppendUvarint(b, uint64(c.Initial))
	if c.Group == nil {
		b = append(b, 0)
	} else {
		b = appendGroup(append(b, 1), c.Group)
		b = binary.AppendUvarint(b, uint64(c.Generation+1))
		b = appendStrings(appendStrings(b, c.Holders), c.Idle)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Tasks)))
	for i := range c.Tasks {
		t := &c.Tasks[i]
		b = binary.AppendUvarint(b, uint64(t.Bucket))
		b = appendArea(appendArea(appendArea(b, t.Active), t.Rebuild), t.Ready)
		b = binary.AppendUvarint(b, uint64(t.Lag))
		b = appendReached(b, t.Reached)
	}
	b = binary.AppendUvarint(b, uint64(len(c.OnDisk)))
	for _, s := range c.OnDisk {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(s.Bucket)), uint64(s.Lag+1))
	}
	return b
}

func appendReached(b []byte, all []Reached) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	for i := range all {
		b = appendString(b, all[i].Topic)
		for _, n := range []uint64{uint64(all[i].Partition), uint64(all[i].Lo), uint64(all[i].Hi), uint64(all[i].Next)} {
			b = binary.AppendUvarint(b, n)
		}
	}
	return b
}

// AppendAssignment appends an assignment.
func AppendAssignment(b []byte, a *Assignment) []byte {
	b = appendGroup(append(b, codecVersion), &a.Group)
	b = appendStrings(appendStrings(b, a.Holders), a.Idle)
	b = binary.AppendUvarint(b, uint64(len(a.Tasks)))
	for i := range a.Tasks {
		b = binary.AppendUvarint(b, uint64(a.Tasks[i].Bucket))
		b = appendArea(appendArea(b, a.Tasks[i].Active), a.Tasks[i].Rebuild)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendStrings(b []byte, all []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, s := range all {
		b = appendString(b, s)
	}
	return b
}

func appendGroup(b []byte, g *Group) []byte {
	b = binary.AppendUvarint(b, uint64(g.Initial))
	b = binary.AppendUvarint(b, uint64(len(g.Topics)))
	for _, name := range slices.Sorted(maps.Keys(g.Topics)) {
		t := g.Topics[name]
		b = append(appendString(b, name), t.ID[:]...)
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(t.Partitions)), uint64(t.Fold))
		b = binary.AppendUvarint(b, uint64(len(t.Grown)))
		for _, ends := range t.Grown {
			b = binary.AppendUvarint(b, uint64(len(ends)))
			for _, end := range ends {
				b = binary.AppendUvarint(b, uint64(end))
			}
		}
	}
	return b
}

// AppendMeasure appends what of a group its units depend on.
func AppendMeasure(b []byte, g *Group) []byte {
	measure := Group{Initial: g.Initial, Topics: make(map[string]Topic, len(g.Topics))}
	for name, t := range g.Topics {
		measure.Topics[name] = Topic{Partitions: t.Fold, Fold: t.Fold}
	}
	return appendGroup(append(b, codecVersion), &measure)
}

// DecodeMeasure reads what AppendMeasure wrote, all of b, as a Group that measures as that one
// did. Errors wrap ErrMalformed.
func DecodeMeasure(b []byte) (g Group, err error) {
	r := reader{b: b}
	r.version()
	g = r.group()
	return g, r.end("measure")
}

func appendArea(b []byte, a Area) []byte {
	b = binary.AppendUvarint(b, uint64(len(a)))
	for _, s := range a {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(s.From)), uint64(s.To-s.From))
	}
	return b
}

// DecodeClaim reads a claim, all of b. Errors wrap ErrMalformed.
func DecodeClaim(b []byte) (c Claim, err error) {
	r := reader{b: b}
	r.version()
	c.Name, c.Initial, c.Generation = r.string(), r.int32(), -1
	if r.number(1) == 1 {
		group := r.group()
		c.Group, c.Generation = &group, int32(r.number(1<<31)-1)
		c.Holders, c.Idle = r.strings(), r.strings()
	}
	for range r.count() {
		t := TaskState{Bucket: r.int32()}
		t.Active, t.Rebuild, t.Ready = r.area(), r.area(), r.area()
		t.Lag = int64(r.number(1<<63 - 1))
		for range r.count() {
			t.Reached = append(t.Reached, r.reached())
		}
		c.Tasks = append(c.Tasks, t)
	}
	for range r.count() {
		c.OnDisk = append(c.OnDisk, Stored{Bucket: r.int32(), Lag: int64(r.number(1<<62)) - 1})
	}
	return c, r.end("claim")
}

// DecodeAssignment reads an assignment, all of b. Errors wrap ErrMalformed.
func DecodeAssignment(b []byte) (a Assignment, err error) {
	r := reader{b: b}
	r.version()
	a.Group = r.group()
	a.Holders, a.Idle = r.strings(), r.strings()
	for range r.count() {
		t := Task{Bucket: r.int32()}
		t.Active, t.Rebuild = r.area(), r.area()
		a.Tasks = append(a.Tasks, t)
	}
	return a, r.end("assignment")
}

// reader reads from bytes until something is wrong.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) end(what string) error {
	if r.bad || len(r.b) > 0 {
		return fmt.Errorf("%w: %s", ErrMalformed, what)
	}
	return nil
}

func (r *reader) fail() { r.bad, r.b = true, nil }

func (r *reader) version() {
	if len(r.b) == 0 || r.b[0] != codecVersion {
		r.fail()
		return
	}
	r.b = r.b[1:]
}

// number reads one of 0 to most.
func (r *reader) number(most uint64) uint64 {
	n, size := binary.Uvarint(r.b)
	if r.bad || size <= 0 || n > most {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) int32() int32 { return int32(r.number(1<<31 - 1)) }

// count reads the length of a list, each entry of which takes a byte at least.
func (r *reader) count() int { return int(r.number(uint64(len(r.b)))) }

func (r *reader) string() string {
	n := r.count()
	if n > len(r.b) {
		r.fail()
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) strings() (all []string) {
	for range r.count() {
		all = append(all, r.string())
	}
	return all
}

func (r *reader) group() (g Group) {
	if g.Initial = int32(r.number(keyfilter.Slots)); g.Initial == 0 {
		r.fail()
	}
	n := r.count()
	g.Topics = make(map[string]Topic, n)
	for range n {
		name := r.string()
		t := r.topic()
		if _, twice := g.Topics[name]; twice {
			r.fail()
		}
		g.Topics[name] = t
	}
	return g
}

func (r *reader) topic() (t Topic) {
	if len(r.b) < len(t.ID) {
		r.fail()
		return t
	}
	t.ID = [16]byte(r.b)
	r.b = r.b[len(t.ID):]
	t.Partitions, t.Fold = int32(r.number(maxPartitions)), int32(r.number(maxPartitions))
	if t.Fold == 0 || t.Partitions == 0 || t.Partitions%t.Fold != 0 {
		r.fail()
		return t
	}
	for range r.number(maxGrown) {
		ends := make([]int64, r.count())
		if len(ends) == 0 || len(ends) >= int(t.Partitions) {
			r.fail()
		}
		for i := range ends {
			ends[i] = int64(r.number(math.MaxInt64))
		}
		t.Grown = append(t.Grown, ends)
	}
	return t
}

func (r *reader) reached() (n Reached) {
	n.Topic = r.string()
	n.Partition = int32(r.number(maxPartitions))
	n.Lo, n.Hi = uint16(r.number(keyfilter.Slots-1)), uint16(r.number(keyfilter.Slots-1))
	if n.Lo > n.Hi {
		r.fail()
	}
	n.Next = int64(r.number(math.MaxInt64))
	return n
}

// area reads spans, which stand in order and do not touch.
func (r *reader) area() (a Area) {
	const most = keyfilter.Slots * UnitsPerBucket
	for range r.count() {
		s := Span{From: int64(r.number(most))}
		s.To = s.From + int64(r.number(most))
		if s.To == s.From || len(a) > 0 && s.From <= a[len(a)-1].To {
			r.fail()
			return nil
		}
		a = append(a, s)
	}
	return a
}
