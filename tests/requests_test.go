package tests

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/protocol"
)

// prey is what the requests of a generator name, so that they get beyond the first check.
type prey struct {
	topics []string
	ids    [][16]byte
	groups []string
}

// generator makes well-formed requests with random content.
type generator struct {
	rng  *rand.Rand
	prey *prey
}

// request makes a request of an API at a version.
func (g *generator) request(key, version int16) kmsg.Request {
	req := kmsg.RequestForKey(key)
	setDefaults(reflect.ValueOf(req).Elem())
	g.fill(reflect.ValueOf(req).Elem(), key)
	req.SetVersion(version)
	return req
}

// setDefaults gives a kmsg structure its default values.
func setDefaults(v reflect.Value) {
	if m := v.Addr().MethodByName("Default"); m.IsValid() {
		m.Call(nil)
	}
}

var tagsType = reflect.TypeFor[kmsg.Tags]()

// fill gives each field of a structure a random value, or leaves it its default.
func (g *generator) fill(v reflect.Value, key int16) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() || f.Name == "Version" && f.Type.Kind() == reflect.Int16 {
			continue
		}
		if g.rng.IntN(8) > 0 {
			g.set(v.Field(i), f.Name, key)
		}
	}
}

func (g *generator) set(v reflect.Value, name string, key int16) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(g.text(name))
	case reflect.Bool:
		v.SetBool(g.rng.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(g.number(name, v.Type().Bits()))
	case reflect.Array: // a uuid
		id := g.prey.ids[g.rng.IntN(len(g.prey.ids))]
		if g.rng.IntN(4) == 0 {
			id[g.rng.IntN(len(id))]++
		}
		v.Set(reflect.ValueOf(id))
	case reflect.Pointer:
		if v.Set(reflect.Zero(v.Type())); g.rng.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			g.set(v.Elem(), name, key)
		}
	case reflect.Slice:
		g.setSlice(v, name, key)
	case reflect.Struct:
		if v.Type() == tagsType {
			g.setTags(v.Addr().Interface().(*kmsg.Tags))
			return
		}
		setDefaults(v)
		g.fill(v, key)
	}
}

func (g *generator) setSlice(v reflect.Value, name string, key int16) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		if strings.Contains(name, "Records") {
			v.SetBytes(g.batch())
		} else {
			v.SetBytes(g.bytes(40))
		}
		return
	}
	n := []int{0, 1, 1, 1, 2, 3}[g.rng.IntN(6)]
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	for i := range n {
		if v.Index(i).Kind() == reflect.Struct {
			setDefaults(v.Index(i))
		}
		g.set(v.Index(i), name, key)
	}
}

// text is a string that may well be right where it stands.
func (g *generator) text(field string) string {
	if g.rng.IntN(10) == 0 {
		return string(g.bytes(300))
	}
	switch {
	case strings.Contains(field, "Group") || field == "CoordinatorKey" || field == "CoordinatorKeys":
		return g.prey.groups[g.rng.IntN(len(g.prey.groups))]
	case strings.Contains(field, "Topic") || field == "ResourceName":
		return g.prey.topics[g.rng.IntN(len(g.prey.topics))]
	case strings.Contains(field, "Protocol"):
		return []string{"consumer", "range", "roundrobin"}[g.rng.IntN(3)]
	case strings.Contains(field, "Member") && g.rng.IntN(2) == 0:
		return ""
	case field == "Name":
		return []string{"retention.ms", "segment.bytes", "cleanup.policy", "flush.messages", "nonsense"}[g.rng.IntN(5)]
	case field == "Value":
		return []string{"-1", "0", "1048576", "compact", "delete", "99999999999999999999"}[g.rng.IntN(6)]
	}
	return fmt.Sprint("text-", g.rng.IntN(20))
}

// number is a small number, or one at the edge of what its bits hold.
func (g *generator) number(field string, bits int) int64 {
	switch field {
	case "MaxWaitMillis", "TimeoutMillis", "RebalanceTimeoutMillis":
		return g.rng.Int64N(3) // the attackers have no time
	case "ResourceType":
		// Topics and groups. Settings of the broker are everybody's, so that changing them
		// would disturb others rightly.
		return []int64{2, 32}[g.rng.IntN(2)]
	case "NumPartitions", "Count":
		return []int64{-1, 0, 1, 3, 20, math.MaxInt32}[g.rng.IntN(6)]
	case "SessionTimeoutMillis":
		return 6000 + g.rng.Int64N(1000)
	}
	most := int64(1)<<(bits-1) - 1
	switch g.rng.IntN(10) {
	case 0:
		return most - g.rng.Int64N(3)
	case 1:
		return -most - 1 + g.rng.Int64N(3)
	case 2:
		return -1 - g.rng.Int64N(3)
	case 3:
		return g.rng.Int64N(most)
	default:
		return g.rng.Int64N(4)
	}
}

func (g *generator) bytes(most int) []byte {
	b := make([]byte, g.rng.IntN(most))
	for i := range b {
		b[i] = byte(g.rng.Uint32())
	}
	return b
}

// batch is a good record batch, a damaged one, or something else.
func (g *generator) batch() []byte {
	o := protocol.PlainBatch(0)
	if g.rng.IntN(3) == 0 {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = g.rng.Int64N(5), int16(g.rng.IntN(2)), g.rng.Int32N(3)
	}
	o.Codec = protocol.Codec(g.rng.IntN(5))
	var b protocol.BatchBuilder
	b.Reset(o)
	for range 1 + g.rng.IntN(20) {
		b.Append(fmt.Appendf(nil, "key-%d", g.rng.IntN(50)), g.bytes(100), nil, g.rng.Int64N(3))
	}
	batch, err := b.Build(nil)
	if err != nil {
		panic(err) // the builder refused what it was given
	}
	switch g.rng.IntN(6) {
	case 0:
		return g.mutateBytes(batch)
	case 1:
		batch = g.mutateBytes(batch)
		if len(batch) >= protocol.BatchHeaderLen {
			protocol.RenewCRC(batch)
		}
	case 2:
		return g.bytes(200)
	}
	return batch
}

// setTags sets a field of the extension where it may belong, right, damaged or made up.
func (g *generator) setTags(tags *kmsg.Tags) {
	if g.rng.IntN(3) > 0 {
		return
	}
	field := g.extension()
	if g.rng.IntN(3) == 0 {
		field = g.mutateBytes(field)
	}
	tags.Set(protocol.ExtensionTag, field)
	if g.rng.IntN(4) == 0 {
		tags.Set(g.rng.Uint32N(20_000), g.bytes(20))
	}
}

func (g *generator) extension() []byte {
	switch g.rng.IntN(4) {
	case 0:
		return (&protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: 0, Hi: uint16(g.rng.Uint32())}}, Keys: [][]byte{g.bytes(20)}}).AppendTo(nil)
	case 1:
		o := protocol.IndividualOffsets{Commit: g.runs(), Origin: protocol.NoOrigin}
		if g.rng.IntN(2) == 0 {
			o.Commit, o.Reopen = nil, o.Commit
		}
		return o.AppendTo(nil)
	case 2:
		return (&protocol.GapsRequest{From: g.number("", 64), MaxRuns: int32(g.number("", 32)), MaxPending: int32(g.number("", 32))}).AppendTo(nil)
	default:
		return g.bytes(60)
	}
}

func (g *generator) runs() []protocol.Run {
	at := g.rng.Int64N(10)
	runs := make([]protocol.Run, g.rng.IntN(5))
	for i := range runs {
		start := at + 1 + g.rng.Int64N(3)
		at = start + 1 + g.rng.Int64N(4)
		runs[i] = protocol.Run{Start: start, End: at}
	}
	return runs
}
