package tests

import (
	"reflect"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// swollen makes requests of at least size bytes that consist of as many and as small
// elements as an API's structures admit, one request for each place that can hold them.
// Decoded, they take many times the memory that they took on the wire.
func swollen(key, version int16, size int) []kmsg.Request {
	var all []kmsg.Request
	for _, p := range places(reflect.TypeOf(kmsg.RequestForKey(key)).Elem(), nil) {
		build := func(n int) kmsg.Request {
			req := kmsg.RequestForKey(key)
			setDefaults(reflect.ValueOf(req).Elem())
			req.SetVersion(version)
			if produce, ok := req.(*kmsg.ProduceRequest); ok {
				produce.Acks = 1 // otherwise it has no answer
			}
			p.fill(reflect.ValueOf(req).Elem(), n)
			return req
		}
		const few = 20_000
		each := (len(build(few).AppendTo(nil)) - len(build(0).AppendTo(nil))) / few
		if each > 0 { // the version has this place
			all = append(all, build(size/each))
		}
	}
	return all
}

// swollenExtension are requests with as many elements as the extension admits.
func swollenExtension() []kmsg.Request {
	runs := make([]protocol.Run, protocol.MaxRuns)
	for i := range runs {
		runs[i] = protocol.Run{Start: int64(2 * i), End: int64(2*i + 1)}
	}
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.SetVersion(9)
	commit.Group = "swollen"
	at := kmsg.NewOffsetCommitRequestTopicPartition()
	at.UnknownTags.Set(protocol.ExtensionTag, (&protocol.IndividualOffsets{Commit: runs, Origin: protocol.NoOrigin}).AppendTo(nil))
	commit.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "calm", Partitions: []kmsg.OffsetCommitRequestTopicPartition{at}}}

	fetch := wire.FetchRequest("calm", 0, 0, 1<<20, 0)
	filter := protocol.KeyFilter{Keys: make([][]byte, protocol.MaxKeysAndRanges)}
	for i := range filter.Keys {
		filter.Keys[i] = []byte(strconv.Itoa(i))
	}
	fetch.UnknownTags.Set(protocol.ExtensionTag, filter.AppendTo(nil))
	return []kmsg.Request{commit, fetch}
}

// place is where a structure holds elements: the indexes of the fields that lead there.
type place []int

func (p place) to(i int) place { return append(append(place{}, p...), i) }

// places are all of them below a structure that is itself at a place.
func places(t reflect.Type, at place) (all []place) {
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case !f.IsExported():
		case f.Type == tagsType:
			all = append(all, at.to(i))
		case f.Type.Kind() == reflect.Struct:
			all = append(all, places(f.Type, at.to(i))...)
		case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() != reflect.Uint8:
			all = append(all, at.to(i))
			if f.Type.Elem().Kind() == reflect.Struct {
				all = append(all, places(f.Type.Elem(), at.to(i))...)
			}
		}
	}
	return all
}

// fill puts n elements in the place, and one wherever the way there needs one.
func (p place) fill(v reflect.Value, n int) {
	f := v.Field(p[0])
	if f.Type() == tagsType {
		tags := f.Addr().Interface().(*kmsg.Tags)
		for i := range n {
			tags.Set(uint32(i), nil)
		}
		return
	}
	if f.Kind() == reflect.Struct {
		p[1:].fill(f, n)
		return
	}
	if len(p) > 1 {
		f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		setDefaults(f.Index(0))
		p[1:].fill(f.Index(0), n)
		return
	}
	f.Set(reflect.MakeSlice(f.Type(), n, n))
	if f.Type().Elem().Kind() == reflect.Struct {
		for i := range n {
			setDefaults(f.Index(i))
		}
	}
}
