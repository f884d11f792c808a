package compat

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// javaConsole is Kafka's own console producer and consumer, on kafka-clients.
type javaConsole struct{}

const toolsPackage = "org.apache.kafka.tools."

func (javaConsole) produce(ctx context.Context, addr string, x text) error {
	return run(ctx, bytes.NewReader(x.keyed()), ignore, kafkaScript, "run", kafkaDir(), toolsPackage+"ConsoleProducer",
		"--bootstrap-server", addr, "--topic", x.topic, "--reader-property", "parse.key=true",
		"--command-property", "acks=all", "--command-property", "enable.idempotence=true",
		"--compression-codec", x.codec)
}

// consume reads all topics with one consumer, since a Java process takes its time to
// start. It does not print the topic; the key names it.
func (javaConsole) consume(ctx context.Context, addr string, readings []*reading) error {
	byTopic := map[string]*reading{}
	var topics []string
	var records int
	for _, r := range readings {
		byTopic[r.topic] = r
		topics = append(topics, r.topic)
		records += len(r.lines)
	}
	return run(ctx, nil, func(line []byte) error {
		it, err := parseConsoleItem(line)
		if err != nil {
			return err
		}
		topic, _, _ := bytes.Cut(it.key, []byte(":"))
		r := byTopic[string(topic)]
		if r == nil {
			return fmt.Errorf("a record of %q, which was not asked for", topic)
		}
		return r.add(it)
	}, kafkaScript, "run", kafkaDir(), toolsPackage+"consumer.ConsoleConsumer",
		"--bootstrap-server", addr, "--include", strings.Join(topics, "|"),
		"--group", fmt.Sprintf("console-%d", time.Now().UnixNano()),
		"--from-beginning", "--max-messages", strconv.Itoa(records), "--timeout-ms", "60000",
		"--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true",
		"--formatter-property", "print.key=true", "--formatter-property", "null.literal=(null)")
}

// parseConsoleItem reads a line such as "Partition:0<tab>Offset:12<tab>key<tab>value".
func parseConsoleItem(line []byte) (item, error) {
	fields := bytes.SplitN(line, []byte("\t"), 4)
	if len(fields) != 4 {
		return item{}, fmt.Errorf("not a record: %q", line)
	}
	partition, ok1 := bytes.CutPrefix(fields[0], []byte("Partition:"))
	offset, ok2 := bytes.CutPrefix(fields[1], []byte("Offset:"))
	p, err1 := strconv.ParseInt(string(partition), 10, 32)
	o, err2 := strconv.ParseInt(string(offset), 10, 64)
	if !ok1 || !ok2 || err1 != nil || err2 != nil {
		return item{}, fmt.Errorf("not a record: %q", line)
	}
	return item{partition: int32(p), offset: o, key: fields[2], value: fields[3]}, nil
}
