package compat

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
)

// confluentPython is confluent-kafka for Python, on a recent librdkafka.
type confluentPython struct{}

func (confluentPython) produce(ctx context.Context, addr string, x text) error {
	return run(ctx, bytes.NewReader(x.keyed()), ignore, python(), "python/lines.py", "produce", addr, x.codec, x.topic)
}

func (confluentPython) consume(ctx context.Context, addr string, readings []*reading) error {
	byTopic := map[string]*reading{}
	args := []string{"python/lines.py", "consume", addr}
	for _, r := range readings {
		byTopic[r.topic] = r
		args = append(args, r.topic, strconv.Itoa(len(r.lines)))
	}
	return run(ctx, nil, func(line []byte) error {
		topic, rest, _ := bytes.Cut(line, []byte("\t"))
		it, err := parseItem(rest)
		if err != nil {
			return err
		}
		r := byTopic[string(topic)]
		if r == nil {
			return fmt.Errorf("a record of %q, which was not asked for", topic)
		}
		return r.add(it)
	}, python(), args...)
}
