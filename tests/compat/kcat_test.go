package compat

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
)

// kcat is Debian's kcat, a command line on librdkafka 2.0.
type kcat struct{}

func (kcat) produce(ctx context.Context, addr string, x text) error {
	return run(ctx, bytes.NewReader(x.keyed()), ignore, "kcat", "-P", "-b", addr, "-t", x.topic,
		"-K", "\t", "-z", x.codec, "-X", "enable.idempotence=true")
}

func (kcat) consume(ctx context.Context, addr string, readings []*reading) error {
	for _, r := range readings {
		// %S is the value's length: it tells an empty value from a null one.
		err := run(ctx, nil, func(line []byte) error {
			it, err := parseItem(line)
			if err != nil {
				return err
			}
			return r.add(it)
		}, "kcat", "-C", "-b", addr, "-t", r.topic, "-o", "beginning", "-e", "-q",
			"-f", `%p\t%o\t%S\t%k\t%s\n`)
		if err != nil {
			return err
		}
	}
	return nil
}

// parseItem reads a record printed as partition, offset, length of the value, key and
// value, with tabs between them.
func parseItem(line []byte) (item, error) {
	fields := bytes.SplitN(line, []byte("\t"), 5)
	if len(fields) != 5 {
		return item{}, fmt.Errorf("not a record: %q", line)
	}
	partition, err1 := strconv.ParseInt(string(fields[0]), 10, 32)
	offset, err2 := strconv.ParseInt(string(fields[1]), 10, 64)
	length, err3 := strconv.Atoi(string(fields[2]))
	if err1 != nil || err2 != nil || err3 != nil || length != len(fields[4]) {
		return item{}, fmt.Errorf("not a record, or a null value: %q", line)
	}
	return item{partition: int32(partition), offset: offset, key: fields[3], value: fields[4]}, nil
}
