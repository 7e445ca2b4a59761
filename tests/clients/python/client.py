"""Drives Python's Kafka clients for the black-box suite: one command line for all clients, JSON lines as output
(tests/clients/README.md)."""

import argparse
import asyncio
import json
import logging
import os
import sys
import threading
import time
import traceback
from importlib.metadata import version

ADMIN_SECONDS = 20
# A new topic may take so long to be listed: where there are several connections, not all know it at once.
UNTIL_LISTED = 0.3


class Output:
    """Writes the JSON lines and counts them."""

    def __init__(self):
        self.lock = threading.Lock()
        self.done = 0
        self.failed = 0

    def line(self, **fields):
        print(json.dumps(fields), flush=True)

    def delivered(self, index, partition, offset):
        with self.lock:
            self.done += 1
            self.line(event="delivered", index=index, partition=partition, offset=offset)

    def failure(self, index, error):
        with self.lock:
            self.failed += 1
            self.line(event="failed", index=index, error=str(error) or repr(error))

    def record(self, partition, offset, key, value):
        with self.lock:
            self.done += 1
            self.line(event="record", partition=partition, offset=offset, key=key.decode(), value=value.decode())

    def answered(self, verb, **fields):
        with self.lock:
            self.line(event="admin", verb=verb, **fields)


class Job:
    """What the command line asks for."""

    def __init__(self, options):
        self.__dict__.update(vars(options))
        self.new_topic = f"{self.topic}.new"
        self.deadline = time.monotonic() + self.timeout_ms / 1000
        self.told_to_end = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        sys.stdin.buffer.read()
        self.told_to_end.set()

    def records(self):
        """Index, partition, key and value of each record."""
        for index in range(self.first, self.first + self.count):
            yield index, index % self.partitions, f"key-{index}".encode(), f"value-{index}".encode()

    def due(self, started, index):
        """Seconds until a record may be sent."""
        if not self.rate:
            return 0
        return max(0, started + (index - self.first) / self.rate - time.monotonic())

    def goes_on(self, out):
        return out.done < self.count and time.monotonic() < self.deadline and not self.told_to_end.is_set()


class Confluent:
    """confluent-kafka, which brings its own librdkafka."""

    def settings(self, job, **more):
        return {"bootstrap.servers": job.bootstrap, "client.id": "peer-confluent-kafka", **more}

    def produce(self, job, out):
        from confluent_kafka import Producer

        settings = self.settings(job, acks=job.acks)
        if job.idempotence == "off":
            settings["enable.idempotence"] = False
        if job.compression:
            settings["compression.type"] = job.compression
        if job.retries is not None:
            settings["message.send.max.retries"] = job.retries
        producer = Producer(settings)
        started = time.monotonic()
        for index, partition, key, value in job.records():
            time.sleep(job.due(started, index))

            def report(error, message, index=index):
                if error:
                    out.failure(index, error)
                else:
                    out.delivered(index, message.partition(), message.offset())

            producer.produce(job.topic, value, key, partition, on_delivery=report)
            producer.poll(0)
        producer.flush()

    def consume(self, job, out):
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        group = {"group.id": job.group or "peer-without-group", "auto.offset.reset": "earliest"}
        consumer = Consumer(self.settings(job, **group))
        if job.group:
            consumer.subscribe([job.topic])
        else:
            consumer.assign([TopicPartition(job.topic, p, OFFSET_BEGINNING) for p in range(job.partitions)])
        while job.goes_on(out):
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error():
                out.failure(-1, message.error())
            else:
                out.record(message.partition(), message.offset(), message.key(), message.value())
        consumer.close()

    def admin(self, job, out):
        from confluent_kafka import Consumer, TopicPartition
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient(self.settings(job))
        admin.create_topics([NewTopic(job.new_topic, job.partitions, 1)])[job.new_topic].result(ADMIN_SECONDS)
        out.answered("create-topic")
        time.sleep(UNTIL_LISTED)
        out.answered("list-topics", names=list(admin.list_topics(timeout=ADMIN_SECONDS).topics))
        admin.delete_topics([job.new_topic])[job.new_topic].result(ADMIN_SECONDS)
        out.answered("delete-topic")
        consumer = Consumer(self.settings(job, **{"group.id": "peer-offsets"}))
        offsets = [consumer.get_watermark_offsets(TopicPartition(job.topic, p), ADMIN_SECONDS) for p in range(job.partitions)]
        consumer.close()
        out.answered("offsets", first=[low for low, _ in offsets], last=[high for _, high in offsets])
        listed = admin.list_consumer_groups().result(ADMIN_SECONDS)
        if listed.errors:
            raise listed.errors[0]
        out.answered("list-groups", names=[group.group_id for group in listed.valid])
        described = admin.describe_consumer_groups([job.group])[job.group].result(ADMIN_SECONDS)
        state = described.state.name.title().replace("_", "")
        out.answered("describe-group", state=state, members=len(described.members))
        admin.delete_consumer_groups([job.group])[job.group].result(ADMIN_SECONDS)
        out.answered("delete-group")


class Aiokafka:
    """aiokafka."""

    def settings(self, job, **more):
        return {"bootstrap_servers": job.bootstrap, "client_id": "peer-aiokafka", **more}

    def produce(self, job, out):
        asyncio.run(self._produce(job, out))

    async def _produce(self, job, out):
        from aiokafka import AIOKafkaProducer

        settings = self.settings(job, acks="all" if job.acks == "all" else int(job.acks))
        if job.idempotence == "off":
            settings["enable_idempotence"] = False
        if job.compression:
            settings["compression_type"] = None if job.compression == "none" else job.compression
        producer = AIOKafkaProducer(**settings)
        await producer.start()
        started = time.monotonic()
        waiting = []

        async def report(index, sent):
            try:
                metadata = await sent
                out.delivered(index, metadata.partition, metadata.offset)
            except Exception as error:
                out.failure(index, error)

        for index, partition, key, value in job.records():
            await asyncio.sleep(job.due(started, index))
            sent = await producer.send(job.topic, value, key, partition)
            waiting.append(asyncio.create_task(report(index, sent)))
        await asyncio.gather(*waiting)
        await producer.stop()

    def consume(self, job, out):
        asyncio.run(self._consume(job, out))

    async def _consume(self, job, out):
        from aiokafka import AIOKafkaConsumer, TopicPartition

        settings = self.settings(job, group_id=job.group or None, auto_offset_reset="earliest")
        consumer = AIOKafkaConsumer(job.topic, **settings) if job.group else AIOKafkaConsumer(**settings)
        await consumer.start()
        if not job.group:
            all_partitions = [TopicPartition(job.topic, p) for p in range(job.partitions)]
            consumer.assign(all_partitions)
            await consumer.seek_to_beginning(*all_partitions)
        while job.goes_on(out):
            for messages in (await consumer.getmany(timeout_ms=200)).values():
                for message in messages:
                    out.record(message.partition, message.offset, message.key, message.value)
        await consumer.stop()

    def admin(self, job, out):
        asyncio.run(self._admin(job, out))

    async def _admin(self, job, out):
        from aiokafka import AIOKafkaConsumer, TopicPartition
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic

        admin = AIOKafkaAdminClient(**self.settings(job))
        await admin.start()
        created = await admin.create_topics([NewTopic(job.new_topic, job.partitions, 1)])
        refuse_errors("create-topic", created.topic_errors)
        out.answered("create-topic")
        time.sleep(UNTIL_LISTED)
        out.answered("list-topics", names=list(await admin.list_topics()))
        deleted = await admin.delete_topics([job.new_topic])
        refuse_errors("delete-topic", deleted.topic_error_codes)
        out.answered("delete-topic")
        consumer = AIOKafkaConsumer(**self.settings(job))
        await consumer.start()
        partitions = [TopicPartition(job.topic, p) for p in range(job.partitions)]
        first, last = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
        await consumer.stop()
        out.answered("offsets", first=[first[p] for p in partitions], last=[last[p] for p in partitions])
        out.answered("list-groups", names=[group[0] for group in await admin.list_consumer_groups()])
        answers = await admin.describe_consumer_groups([job.group])
        error, _, state, _, _, members, *_ = answers[0].groups[0]
        refuse_errors("describe-group", [(job.group, error)])
        out.answered("describe-group", state=state, members=len(members))
        await admin.close()


class KafkaPython:
    """kafka-python."""

    def settings(self, job, **more):
        return {"bootstrap_servers": job.bootstrap, "client_id": "peer-kafka-python", **more}

    def produce(self, job, out):
        from kafka import KafkaProducer

        settings = self.settings(job, acks="all" if job.acks == "all" else int(job.acks))
        if job.idempotence == "off":
            settings["enable_idempotence"] = False
        if job.compression:
            settings["compression_type"] = None if job.compression == "none" else job.compression
        if job.retries is not None:
            settings["retries"] = job.retries
        producer = KafkaProducer(**settings)
        started = time.monotonic()
        for index, partition, key, value in job.records():
            time.sleep(job.due(started, index))
            sent = producer.send(job.topic, value, key, partition=partition)
            sent.add_callback(lambda metadata, index=index: out.delivered(index, metadata.partition, metadata.offset))
            sent.add_errback(lambda error, index=index: out.failure(index, error))
        producer.flush()
        producer.close()

    def consume(self, job, out):
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(**self.settings(job, group_id=job.group or None, auto_offset_reset="earliest"))
        if job.group:
            consumer.subscribe([job.topic])
        else:
            all_partitions = [TopicPartition(job.topic, p) for p in range(job.partitions)]
            consumer.assign(all_partitions)
            consumer.seek_to_beginning(*all_partitions)
        while job.goes_on(out):
            # Short polls meet a fault of version 3.0.12 (docs/clients.md).
            for messages in consumer.poll(timeout_ms=2000).values():
                for message in messages:
                    out.record(message.partition, message.offset, message.key, message.value)
        consumer.close()

    def admin(self, job, out):
        from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
        from kafka.admin import NewTopic

        admin = KafkaAdminClient(**self.settings(job))
        admin.create_topics([NewTopic(job.new_topic, job.partitions, 1)])
        out.answered("create-topic")
        time.sleep(UNTIL_LISTED)
        out.answered("list-topics", names=list(admin.list_topics()))
        admin.delete_topics([job.new_topic])
        out.answered("delete-topic")
        consumer = KafkaConsumer(**self.settings(job))
        partitions = [TopicPartition(job.topic, p) for p in range(job.partitions)]
        first, last = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        consumer.close()
        out.answered("offsets", first=[first[p] for p in partitions], last=[last[p] for p in partitions])
        out.answered("list-groups", names=[group_name(group) for group in admin.list_groups()])
        described = admin.describe_groups([job.group])
        group = described[job.group] if isinstance(described, dict) else described[0]
        out.answered("describe-group", state=group["group_state"], members=len(group["members"]))
        admin.delete_groups([job.group])
        out.answered("delete-group")
        admin.close()


def group_name(group):
    return group["group_id"] if isinstance(group, dict) else group[0]


def refuse_errors(verb, items):
    """Items are answers of the protocol: a name, a code, and more in later versions."""
    for name, code, *_ in items:
        if code:
            raise RuntimeError(f"{verb}: {name}: error {code}")


LIBRARIES = {"aiokafka": Aiokafka, "confluent-kafka": Confluent, "kafka-python": KafkaPython}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("verb", choices=["produce", "consume", "admin"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--retries", type=int)
    parser.add_argument("--acks", default="all")
    parser.add_argument("--compression")
    parser.add_argument("--idempotence", default="off")
    parser.add_argument("--group", default="")
    parser.add_argument("--timeout-ms", type=int, default=60000)
    options = parser.parse_args()
    # Whoever reads a failure needs to know what the library did before it.
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    out = Output()
    out.line(event="client", library=options.library, version=library_version(options.library))
    job = Job(options)
    try:
        getattr(LIBRARIES[options.library](), options.verb)(job, out)
    except Exception as error:
        traceback.print_exc()
        out.failure(-1, f"{type(error).__name__}: {error}")
    out.line(event="end", done=out.done, failed=out.failed)
    sys.stdout.flush()
    # The thread that waits for the end of standard input is in nobody's way.
    os._exit(1 if out.failed or (options.verb != "admin" and out.done < options.count) else 0)


def library_version(library):
    if library == "confluent-kafka":
        from confluent_kafka import libversion

        return f"{version(library)}, librdkafka {libversion()[0]}"
    return version(library)


main()
