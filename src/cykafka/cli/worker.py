"""The writer and the reader of the demonstration, each a process of its own.

So that the CPU time of each direction can be told apart. Both talk to the parent over a pipe and
end when it closes, whatever happened to the parent.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any

from cykafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from cykafka.cli.counts import counted
from cykafka.cli.failures import UsageError
from cykafka.cli.source import Record, Source, SourceError, record_size
from cykafka.cli.verify import digest, sequence_of

# Both small beside what the writer may be ahead, so that neither side waits long for the other.
_CHUNK = 2_000
_CHUNK_BYTES = 1_000_000
_SLICE_S = 0.1
_READ_S = 0.02
# What goes wrong is reported once, through the callbacks, not also by the log of each process.
_LOG_LEVEL = 2


@dataclass(frozen=True)
class Job:
    """What both processes have to know.

    Parameters
    ----------
    config, reader_config : dict
        Settings of both clients, and those of the consumer alone.
    topic, group : str
        Where to write and how to read.
    ahead : int or None
        How many bytes the writer may be ahead of the reader; None for as many as it likes.
    timeout : float
        Seconds that a request may take.
    """

    config: dict[str, Any]
    reader_config: dict[str, Any]
    topic: str
    group: str
    ahead: int | None
    timeout: float


@dataclass(frozen=True)
class Ready:
    """The process can start; sent once."""


@dataclass(frozen=True)
class Progress:
    """What was done since the last message; a reader adds the proof of what it read."""

    records: int
    bytes: int
    sequences: array[int] | None = None
    digests: array[int] | None = None


@dataclass(frozen=True)
class Done:
    """The process has ended its work.

    Parameters
    ----------
    seconds : float
        Wall time from the first record to the last.
    cpu : float
        CPU time of the process during that, in s, all threads.
    own_cpu : float
        The part of it that went into reading the file or checking records, not into Kafka.
    """

    seconds: float
    cpu: float
    own_cpu: float


@dataclass(frozen=True)
class Heard:
    """Something the client said about its brokers; it goes on trying."""

    words: str


@dataclass(frozen=True)
class Failed:
    """The process gave up; `reason` is for the user."""

    reason: str


class _Clock:
    """Wall time and CPU time since `start`, and CPU time spent in `own` sections."""

    def __init__(self) -> None:
        self.start()
        self.stop()

    def start(self) -> None:
        self._started = time.perf_counter()
        self._cpu = time.process_time()
        self._own = 0.0

    def __enter__(self) -> None:
        self._section = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self._own += time.thread_time() - self._section

    def stop(self) -> None:
        self._ended = time.perf_counter()
        self._cpu_ended = time.process_time()

    def done(self) -> Done:
        return Done(self._ended - self._started, self._cpu_ended - self._cpu, self._own)


def check(job: Job) -> None:
    """Raise UsageError unless both clients take the job's settings.

    Neither has connected when it is closed again.
    """
    try:
        _producer(job).close()
        _consumer(job).close()
    except (KafkaException, ValueError) as error:
        raise UsageError(_reason(error)) from error


def _producer(job: Job, **callbacks: Callable[..., None]) -> Producer:
    config = {
        "enable.idempotence": True,
        "log_level": _LOG_LEVEL,
        "delivery.report.only.error": True,
        **job.config,
    }
    return Producer(config, **callbacks)


def _consumer(job: Job, **callbacks: Callable[..., None]) -> Consumer:
    config = {
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": _LOG_LEVEL,
        "fetch.queue.backoff.ms": 5,
        **job.reader_config,
        **job.config,
        "group.id": job.group,
    }
    return Consumer(config, **callbacks)


def write(connection: Connection, job: Job, source: Source) -> None:
    """Publish the source's records; a child process's main function."""
    _guarded(connection, lambda: _write(connection, job, source))


def read(connection: Connection, job: Job) -> None:
    """Read the topic to the end the broker names; a child process's main function."""
    _guarded(connection, lambda: _read(connection, job))


def _guarded(connection: Connection, work: Callable[[], Done]) -> None:
    try:
        try:
            result: Done | Failed = work()
        except (KafkaException, SourceError, _Failure) as error:
            result = Failed(_reason(error))
        connection.send(result)
        while True:  # the parent may still be sending; it closes the pipe when it has the result
            connection.recv()
    except (EOFError, OSError):
        os._exit(0)  # nothing is left to do, and nobody to tell


def _listener(connection: Connection) -> Callable[[KafkaError], None]:
    """An ``error_cb`` that tells the parent."""

    def on_error(error: KafkaError) -> None:
        # That all brokers are down says less than what was said of each of them.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            connection.send(Heard(error.str()))

    return on_error


class _Failure(Exception):
    pass


def _reason(error: Exception) -> str:
    cause = error.args[0] if error.args else error
    return cause.str() if isinstance(cause, KafkaError) else str(cause)


def _write(connection: Connection, job: Job, source: Source) -> Done:
    failures: list[KafkaError] = []
    on_error = _listener(connection)

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = _producer(job, error_cb=on_error, on_delivery=on_delivery)
    try:
        _await_topic(producer, job)
        connection.send(Ready())
        connection.recv()  # until the reader has its partitions
        return _publish(connection, job, source, producer, failures)
    except BaseException:
        producer.purge()  # or closing would wait for brokers that may not be there
        raise
    finally:
        producer.close()


def _publish(
    connection: Connection,
    job: Job,
    source: Source,
    producer: Producer,
    failures: list[KafkaError],
) -> Done:
    clock = _Clock()
    records = iter(source)
    written = allowed = 0
    while True:
        with clock:
            chunk, size = _take(records)
        if not chunk:
            break
        allowed = _read_so_far(connection, allowed, 0)
        while job.ahead is not None and allowed < written > allowed + job.ahead - size:
            producer.poll(0)
            allowed = _read_so_far(connection, allowed, _SLICE_S)
        for record in chunk:
            _produce(producer, job.topic, record)
        producer.poll(0)
        written += size
        _check_delivered(failures)
        connection.send(Progress(len(chunk), size))
    deadline = time.monotonic() + job.timeout
    while left := producer.flush(_SLICE_S):
        if time.monotonic() >= deadline:
            raise _Failure(f"{counted(left, 'record')} not delivered within {job.timeout:g} s")
        allowed = _read_so_far(connection, allowed, 0)
    _check_delivered(failures)
    clock.stop()
    return clock.done()


def _take(records: Iterator[Record]) -> tuple[list[Record], int]:
    """The next few records and their bytes."""
    chunk = []
    size = 0
    for record in islice(records, _CHUNK):
        chunk.append(record)
        size += record.size
        if size >= _CHUNK_BYTES:
            break
    return chunk, size


def _produce(producer: Producer, topic: str, record: Record) -> None:
    while True:
        try:
            producer.produce(topic, record.value, record.key, headers=record.headers)
            return
        except BufferError:
            producer.poll(_SLICE_S)
        except KafkaException as error:
            raise _Failure(f"record {record.sequence}: {_reason(error)}") from error


def _read_so_far(connection: Connection, known: int, timeout: float) -> int:
    """How many bytes the reader has; takes every message, or the parent could block on a pipe."""
    while connection.poll(timeout):
        known = connection.recv()
        timeout = 0
    return known


def _check_delivered(failures: list[KafkaError]) -> None:
    if failures:
        raise _Failure(f"{counted(len(failures), 'record')} not delivered: {failures[0].str()}")


def _await_topic(producer: Producer, job: Job) -> None:
    """Wait until the topic is there; asking for it creates it, where brokers allow that."""
    deadline = time.monotonic() + job.timeout
    while True:
        try:
            topic = producer.list_topics(job.topic, job.timeout).topics[job.topic]
        except KafkaException as error:
            producer.poll(0)  # what the brokers said
            if error.args[0] not in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
                raise
            raise _Failure(
                f"no answer from {job.config['bootstrap.servers']} within {job.timeout:g} s"
            ) from error
        if topic.error is None and topic.partitions:
            return
        if time.monotonic() >= deadline:
            raise _Failure(
                f"topic {job.topic!r} is not there and was not created: {topic.error}; "
                "create it and name it with --topic"
            )
        producer.poll(_SLICE_S)


def _read(connection: Connection, job: Job) -> Done:
    connection.recv()  # until the topic is there
    on_error = _listener(connection)
    consumer = _consumer(job, error_cb=on_error)
    try:
        return _consume(connection, job, consumer, on_error)
    finally:
        consumer.close()


def _consume(
    connection: Connection,
    job: Job,
    consumer: Consumer,
    on_error: Callable[[KafkaError], None],
) -> Done:
    assigned: list[TopicPartition] = []

    def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
        assigned[:] = partitions
        connection.send(Ready())

    consumer.subscribe([job.topic], on_assign=on_assign)
    clock = _Clock()
    begun = False
    next_offset: dict[int, int] = {}
    ends: dict[int, tuple[int, int]] | None = None
    while True:
        messages = consumer.consume(_CHUNK, _READ_S)
        if messages and not begun:
            clock.start()
            begun = True
        with clock:
            progress = _prove(messages, next_offset, on_error)
        if progress.records:
            clock.stop()
            connection.send(progress)
        if ends is None and connection.poll():
            connection.recv()  # the writer has ended
            ends = {}
            for partition in assigned:
                watermarks = consumer.get_watermark_offsets(partition, job.timeout)
                if watermarks is None:
                    raise _Failure(f"no answer where partition {partition.partition} ends")
                ends[partition.partition] = watermarks
        if ends is not None and all(
            next_offset.get(number, low) >= high for number, (low, high) in ends.items()
        ):
            break
    clock.stop()
    if next_offset:
        consumer.commit(asynchronous=False)
    return clock.done()


def _prove(
    messages: list[Message], next_offset: dict[int, int], on_error: Callable[[KafkaError], None]
) -> Progress:
    sequences = array("q")
    digests = array("Q")
    size = 0
    for message in messages:
        error = message.error()
        if error is not None:
            if error.code() not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._TRANSPORT):
                raise KafkaException(error)
            on_error(error)  # it passes, or the parent's patience ends
            continue
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        next_offset[partition] = offset + 1
        key, value, headers = message.key(), message.value(), message.headers()
        sequences.append(sequence_of(headers))
        digests.append(digest(key, value, headers))
        size += record_size(key, value, headers or [])
    return Progress(len(sequences), size, sequences, digests)
