"""Use librdkafka's transactional API through confluent-kafka, for the compatibility tests.

transactions.py run ADDR [NAME ...]     the scenarios, one line each: "pass NAME" or "fail NAME why"
transactions.py open ADDR TOPIC ID      leave a transaction of one record open, and die
transactions.py copy ADDR SOURCE SINK   copy what is left of partition 0, in transactions of 25 records; after each
                                        it prints {"remaining": N} in the words of Kafka's TransactionalMessageCopier
"""

import json
import os
import signal
import subprocess
import sys
import time
import traceback

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

RUN = time.time_ns()
PATIENCE = 30  # seconds, for what a broker does by itself


class Scenario:
    """What a scenario works with: clients, and topics and ids of its own."""

    def __init__(self, addr, name):
        self.addr = addr
        self.name = f"{name}-{RUN}"
        self.admin = AdminClient({"bootstrap.servers": addr})

    def topic(self, suffix, partitions=1):
        name = f"{self.name}-{suffix}"
        for created in self.admin.create_topics([NewTopic(name, partitions, 1)]).values():
            created.result(PATIENCE)
        return name

    def producer(self, suffix="id", **settings):
        """A transactional producer that has its id."""
        producer = Producer(
            {"bootstrap.servers": self.addr, "transactional.id": f"{self.name}-{suffix}", "linger.ms": 0, **settings}
        )
        producer.init_transactions(PATIENCE)
        return producer

    def consumer(self, **settings):
        return Consumer(
            {
                "bootstrap.servers": self.addr,
                "group.id": self.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                **settings,
            }
        )

    def read(self, topic, isolation="read_committed", settled=True):
        """All values of a topic's partition 0. Kafka writes the markers of a transaction after it has said that it is
        over, so what is open is waited for, but not where a scenario holds it open."""
        if settled:
            self.await_end(topic, self.end(topic, IsolationLevel.READ_UNCOMMITTED))
        consumer = self.consumer(**{"isolation.level": isolation, "group.id": f"{self.name}-reading"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        values = []
        while (value := poll(consumer)) is not None:
            values.append(value.value())
        consumer.close()
        return values

    def end(self, topic, isolation=IsolationLevel.READ_COMMITTED):
        """The end of a topic's partition 0: the last stable offset for a reader of what is committed."""
        partition = TopicPartition(topic, 0)
        listed = self.admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=isolation)
        return listed[partition].result(PATIENCE).offset

    def await_end(self, topic, offset):
        """Wait until a reader of what is committed may read up to an offset."""
        deadline = time.monotonic() + PATIENCE
        while self.end(topic) < offset:
            assert time.monotonic() < deadline, "the transaction is still open"
            time.sleep(0.05)

    def committed(self, topic):
        consumer = self.consumer()
        (partition,) = consumer.committed([TopicPartition(topic, 0)], PATIENCE)
        consumer.close()
        return partition.offset


def poll(consumer):
    """The next message, None at the end."""
    message = consumer.poll(PATIENCE)
    assert message is not None, f"nothing for {PATIENCE} s"
    if not message.error():
        return message
    if message.error().code() == KafkaError._PARTITION_EOF:
        return None
    raise KafkaException(message.error())


def write(producer, topic, values):
    failures = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: error and failures.append(error))
    left = producer.flush(PATIENCE)
    assert not left and not failures, f"{left} not delivered, {failures[:1]}"


def numbers(first, end):
    return [b"%d" % n for n in range(first, end)]


def equal(got, want):
    assert got == want, f"{got} instead of {want}"


def refused(call, *args):
    """The error that a call has to end with."""
    try:
        call(*args)
    except KafkaException as e:
        return e.args[0]
    raise AssertionError(f"{call.__name__} was not refused")


def commit_and_abort(s):
    topic, producer = s.topic("out"), s.producer()
    for n in range(10):
        producer.begin_transaction()
        write(producer, topic, numbers(n * 100, n * 100 + 100))
        if n % 2 == 0:
            producer.commit_transaction(PATIENCE)
        else:
            producer.abort_transaction(PATIENCE)
    equal(s.read(topic), [v for n in range(0, 10, 2) for v in numbers(n * 100, n * 100 + 100)])
    equal(s.read(topic, "read_uncommitted"), numbers(0, 1000))


def empty_transactions(s):
    topic, producer = s.topic("out"), s.producer()
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        end(PATIENCE)
    producer.begin_transaction()
    write(producer, topic, [b"one"])
    producer.commit_transaction(PATIENCE)
    equal(s.read(topic), [b"one"])


def open_until_ended(s):
    topic, producer = s.topic("out"), s.producer()
    write_plain(s, topic, [b"before"])
    producer.begin_transaction()
    write(producer, topic, [b"inside"])
    write_plain(s, topic, [b"after"])
    equal(s.read(topic, settled=False), [b"before"])
    equal(s.end(topic), 1)
    equal(s.end(topic, IsolationLevel.READ_UNCOMMITTED), 3)
    producer.commit_transaction(PATIENCE)
    equal(s.read(topic), [b"before", b"inside", b"after"])


def write_plain(s, topic, values):
    write(Producer({"bootstrap.servers": s.addr}), topic, values)


def consume_transform_produce(s):
    source, sink = s.topic("in"), s.topic("out")
    write_plain(s, source, numbers(0, 1000))
    producer, consumer = s.producer(), s.consumer()
    consumer.subscribe([source])
    round = done = 0
    while done < 1000:
        producer.begin_transaction()
        taken = []
        while len(taken) < 50 and (message := poll(consumer)) is not None:
            taken.append(message.value())
            producer.produce(sink, b"<%s>" % message.value(), partition=0)
        producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), PATIENCE)
        round += 1
        if round % 3 == 0:
            producer.abort_transaction(PATIENCE)
            for partition in consumer.committed(consumer.assignment(), PATIENCE):
                equal(partition.offset, done)
                consumer.seek(partition)
        else:
            producer.commit_transaction(PATIENCE)
            done += len(taken)
    consumer.close()
    equal(s.read(sink), [b"<%s>" % v for v in numbers(0, 1000)])
    equal(s.committed(source), 1000)


def pending_offsets(s):
    """Offsets of an open transaction: who asks for stable ones has to wait for its end."""
    source, producer, consumer = s.topic("in"), s.producer(), s.consumer()
    write_plain(s, source, numbers(0, 10))
    partition = TopicPartition(source, 0, 5)
    for end, wanted in ((producer.abort_transaction, -1001), (producer.commit_transaction, 5)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([partition], consumer.consumer_group_metadata(), PATIENCE)
        equal(refused(consumer.committed, [partition], 1).code(), KafkaError._TIMED_OUT)
        end(PATIENCE)
        equal(s.committed(source), wanted)
    consumer.close()


def fenced_producer(s):
    topic, first = s.topic("out"), s.producer()
    first.begin_transaction()
    write(first, topic, [b"of the first"])
    second = s.producer()
    error = refused(first.commit_transaction, PATIENCE)
    assert error.fatal() and error.code() == KafkaError._FENCED, error
    second.begin_transaction()
    write(second, topic, [b"of the second"])
    second.commit_transaction(PATIENCE)
    equal(s.read(topic), [b"of the second"])
    equal(s.read(topic, "read_uncommitted"), [b"of the first", b"of the second"])


def fenced_while_producing(s):
    topic, first = s.topic("out"), s.producer()
    first.begin_transaction()
    write(first, topic, [b"of the first"])
    second = s.producer()
    first.produce(topic, b"too late", partition=0)
    error = refused(first.commit_transaction, PATIENCE)
    assert error.fatal() and error.code() == KafkaError._FENCED, error
    second.begin_transaction()
    second.commit_transaction(PATIENCE)
    equal(s.read(topic, "read_uncommitted"), [b"of the first"])


def fenced_member(s):
    """A member that its group no longer knows cannot commit in a transaction (KIP-447)."""
    source, sink = s.topic("in"), s.topic("out")
    write_plain(s, source, numbers(0, 10))
    producer, consumer = s.producer(), s.consumer()
    consumer.subscribe([source])
    poll(consumer)
    was = consumer.consumer_group_metadata()
    consumer.close()
    producer.begin_transaction()
    write(producer, sink, [b"of a zombie"])
    error = refused(producer.send_offsets_to_transaction, [TopicPartition(source, 0, 1)], was, PATIENCE)
    assert error.txn_requires_abort(), error
    producer.abort_transaction(PATIENCE)
    producer.begin_transaction()
    write(producer, sink, [b"of the living"])
    producer.commit_transaction(PATIENCE)
    equal(s.read(sink), [b"of the living"])
    equal(s.committed(source), -1001)


def timed_out(s):
    """The broker aborts what is open for longer than the producer said, and fences it."""
    topic = s.topic("out")
    producer = s.producer(**{"transaction.timeout.ms": 1500})
    producer.begin_transaction()
    write(producer, topic, [b"too slow"])
    s.await_end(topic, 2)
    refused(producer.commit_transaction, PATIENCE)
    again = s.producer()
    again.begin_transaction()
    write(again, topic, [b"in time"])
    again.commit_transaction(PATIENCE)
    equal(s.read(topic), [b"in time"])


def killed_producer(s):
    topic = s.topic("out")
    child = subprocess.run([sys.executable, __file__, "open", s.addr, topic, f"{s.name}-id"], timeout=2 * PATIENCE)
    equal(child.returncode, -signal.SIGKILL)
    equal(s.end(topic), 0)
    equal(s.end(topic, IsolationLevel.READ_UNCOMMITTED), 1)
    producer = s.producer()  # ends what its predecessor has left
    producer.begin_transaction()
    write(producer, topic, [b"of the next"])
    producer.commit_transaction(PATIENCE)
    equal(s.read(topic), [b"of the next"])


def many_producers(s):
    """Twenty producers take turns in one partition, with their transactions interleaved."""
    topic = s.topic("out")
    producers = [s.producer(f"id-{i}") for i in range(20)]
    for p in producers:
        p.begin_transaction()
    for n in range(5):
        for i, p in enumerate(producers):
            write(p, topic, [b"%d of %d" % (n, i)])
    for i, p in enumerate(producers):
        (p.commit_transaction if i % 3 else p.abort_transaction)(PATIENCE)
    equal(s.read(topic), [b"%d of %d" % (n, i) for n in range(5) for i in range(20) if i % 3])


SCENARIOS = [
    commit_and_abort,
    empty_transactions,
    open_until_ended,
    consume_transform_produce,
    pending_offsets,
    fenced_producer,
    fenced_while_producing,
    fenced_member,
    timed_out,
    killed_producer,
    many_producers,
]


def run(addr, names):
    for scenario in SCENARIOS:
        name = scenario.__name__
        if names and name not in names:
            continue
        try:
            scenario(Scenario(addr, name.replace("_", "-")))
            print("pass", name, flush=True)
        except Exception as e:
            traceback.print_exc()
            print("fail", name, type(e).__name__, *str(e).split(), flush=True)


def leave_open(addr, topic, transactional_id):
    producer = Producer(
        {"bootstrap.servers": addr, "transactional.id": transactional_id, "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    write(producer, topic, [b"left open"])
    os.kill(os.getpid(), signal.SIGKILL)


def insist(call, *args):
    """Call until it is known how it ends, as librdkafka wants it: an error that is retriable says that it goes on."""
    while True:
        try:
            return call(*args, 1)
        except KafkaException as e:
            if not (e.args[0].retriable() or e.args[0].code() == KafkaError._TIMED_OUT):
                raise


def copy(addr, source, sink):
    # When librdkafka loses all brokers it begins anew with the first ones that it was told of, and a request that waits
    # for the broker as it knew it before waits for ever. One broker is all of them, so it is told to stay with it.
    settings = {"bootstrap.servers": addr, "reconnect.backoff.max.ms": 500, "metadata.recovery.strategy": "none"}
    producer = Producer({**settings, "transactional.id": sink, "linger.ms": 0})
    insist(producer.init_transactions)  # ends what a predecessor has left
    consumer = Consumer({**settings, "group.id": sink, "enable.auto.commit": False})
    partition = TopicPartition(source, 0)
    _, end = insist(consumer.get_watermark_offsets, partition)
    done = max(0, insist(consumer.committed, [partition])[0].offset)
    consumer.assign([TopicPartition(source, 0, done)])
    while done < end:
        producer.begin_transaction()
        taken = 0
        while taken < min(25, end - done):
            message = consumer.poll(1)
            if message and not message.error():
                producer.produce(sink, message.value(), partition=0)
                taken += 1
        try:
            insist(producer.send_offsets_to_transaction, [TopicPartition(source, 0, done + taken)], consumer.consumer_group_metadata())
            insist(producer.commit_transaction)
            done += taken
        except KafkaException as e:
            if not e.args[0].txn_requires_abort():
                raise
            insist(producer.abort_transaction)
            consumer.seek(TopicPartition(source, 0, done))
        print(json.dumps({"remaining": end - done}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(sys.argv[2], sys.argv[3:])
    else:
        {"open": leave_open, "copy": copy}[sys.argv[1]](*sys.argv[2:])
