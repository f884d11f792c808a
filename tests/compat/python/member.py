"""One member of a consumer group on confluent-kafka, for the compatibility tests.

member.py ADDR TOPIC GROUP ASSIGNOR

It prints what happens to it as JSON lines, in the words of Kafka's VerifiableConsumer,
commits after each poll and leaves the group when it gets SIGTERM.
"""

import json
import signal
import sys

from confluent_kafka import Consumer, KafkaException

stopping = False


def stop(_signal, _frame):
    global stopping
    stopping = True


def tell(name, **what):
    print(json.dumps({"name": name, **what}), flush=True)


def names(partitions):
    return [{"topic": p.topic, "partition": p.partition} for p in partitions]


def runs(messages):
    """The offsets read, as one run for each stretch of a partition without a hole."""
    out = []
    for m in messages:
        last = out[-1] if out else None
        if last and last["partition"] == m.partition() and last["maxOffset"] + 1 == m.offset():
            last["maxOffset"] = m.offset()
        else:
            out.append(
                {"topic": m.topic(), "partition": m.partition(), "minOffset": m.offset(), "maxOffset": m.offset()}
            )
    return out


def main(addr, topic, group, assignor):
    signal.signal(signal.SIGTERM, stop)
    consumer = Consumer(
        {
            "bootstrap.servers": addr,
            "group.id": group,
            "partition.assignment.strategy": assignor,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
        }
    )
    consumer.subscribe(
        [topic],
        on_assign=lambda _, p: tell("partitions_assigned", partitions=names(p)),
        on_revoke=lambda _, p: tell("partitions_revoked", partitions=names(p)),
        on_lost=lambda _, p: tell("partitions_lost", partitions=names(p)),
    )
    while not stopping:
        messages = consumer.consume(500, timeout=0.2)
        if not messages:
            continue
        for m in messages:
            if m.error():
                raise KafkaException(m.error())
        tell("records_consumed", partitions=runs(messages))
        consumer.commit(asynchronous=False)
    consumer.close()
    tell("shutdown_complete")


main(*sys.argv[1:])
