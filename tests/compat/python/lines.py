"""Write and read lines with confluent-kafka, for the compatibility tests.

lines.py produce ADDR CODEC TOPIC            key<tab>value lines on stdin
lines.py consume ADDR TOPIC COUNT ...        topic, partition, offset, length, key, value on stdout
"""

import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition


def produce(addr, codec, topic):
    failures = []

    def delivered(error, _message):
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": addr,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 300_000,
        }
    )
    for line in sys.stdin.buffer:
        key, value = line[:-1].split(b"\t", 1)
        producer.produce(topic, key=key, value=value, on_delivery=delivered)
        producer.poll(0)
    left = producer.flush(60)
    if left or failures:
        sys.exit(f"{left} lines not delivered in time, {len(failures)} failed: {failures[:1]}")


def consume(addr, wanted):
    consumer = Consumer(
        {
            "bootstrap.servers": addr,
            "group.id": f"lines-{time.time_ns()}",
            "enable.auto.commit": False,
        }
    )
    metadata = consumer.list_topics(timeout=20)
    consumer.assign(
        [
            TopicPartition(topic, partition, OFFSET_BEGINNING)
            for topic in wanted
            for partition in metadata.topics[topic].partitions
        ]
    )
    left = sum(wanted.values())
    out = sys.stdout.buffer
    while left > 0:
        messages = consumer.consume(10_000, timeout=20)
        if not messages:
            sys.exit(f"nothing for 20 s, {left} records are missing")
        for m in messages:
            if m.error():
                raise KafkaException(m.error())
            value = m.value()
            size = -1 if value is None else len(value)
            out.write(
                b"%s\t%d\t%d\t%d\t%s\t%s\n" % (m.topic().encode(), m.partition(), m.offset(), size, m.key(), value)
            )
        left -= len(messages)
    out.flush()
    consumer.close()


if __name__ == "__main__":
    if sys.argv[1] == "produce":
        produce(*sys.argv[2:])
    else:
        names, counts = sys.argv[3::2], sys.argv[4::2]
        consume(sys.argv[2], dict(zip(names, map(int, counts))))
