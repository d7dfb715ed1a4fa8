"""``cykafka produce``: send records from standard input or from files."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from cyclopts import Group, Parameter, validators
from cyclopts.types import NonNegativeInt, PositiveInt

from cykafka import Delivery, KafkaError, KafkaException, Producer
from cykafka.cli.chunks import STANDARD_INPUT, BadLines, Chunk, Input
from cykafka.cli.connection import Brokers, Connection, ConnectionOptions
from cykafka.cli.counts import counted
from cykafka.cli.delimiters import delimiter
from cykafka.cli.failures import EXIT_STATUS_HELP, Failed, Status, UsageError, reason
from cykafka.cli.interrupts import Interrupts
from cykafka.cli.json_record import Headers
from cykafka.cli.parameters import flag, option
from cykafka.cli.progress import Meter
from cykafka.cli.times import milliseconds
from cykafka.internal import pairs, publication

__all__ = ["HELP_EPILOGUE", "produce"]

HELP_EPILOGUE = (
    "examples:\n\n"
    "* ``cykafka produce orders < orders.txt``\n"
    "* ``cykafka produce orders -K : -z zstd orders.txt``\n"
    "* ``cykafka consume orders --json -e | cykafka produce copy --json``\n"
    "* ``cykafka produce orders --csv --key-column id orders.csv``\n\n" + EXIT_STATUS_HELP
)

_FORMAT = Group("Format", sort_key=1)
_RECORDS = Group("Records", sort_key=2)
_SENDING = Group("Sending", sort_key=3)
_TOPIC_WAIT_S = 3.0
_SLICE_S = 0.1
_SHOWN = 5
# How often a second `--rate` sends.
_BEATS = 20


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of ``cykafka produce``, with their help."""

    json: Annotated[bool, flag("--json", "-J", group=_FORMAT)] = False
    """each line is a record as ``cykafka consume --json`` prints it"""
    csv: Annotated[bool, flag("--csv", group=_FORMAT)] = False
    """each row is a record: a JSON object of texts, named by the file's first line"""
    whole: Annotated[bool, flag("--whole", group=_FORMAT)] = False
    """each file is a record"""
    delimiter: Annotated[
        str | None, option("--delimiter", "-D", group=_FORMAT, metavar="TEXT")
    ] = None
    r"""what ends a record; \\n, \\t, \\0 and \\xHH are escapes (default: \\n)"""
    key_delimiter: Annotated[
        str | None, option("--key-delimiter", "-K", group=_FORMAT, metavar="TEXT")
    ] = None
    """a line is a key, this text and the value"""
    header_delimiter: Annotated[
        str | None, option("--header-delimiter", group=_FORMAT, metavar="TEXT")
    ] = None
    """a line begins with headers NAME=VALUE,... and this text"""
    key_column: Annotated[str | None, option("--key-column", group=_FORMAT, metavar="NAME")] = None
    """the column of the key, with --csv"""
    value_column: Annotated[
        str | None, option("--value-column", group=_FORMAT, metavar="NAME")
    ] = None
    """the column that is the value, with --csv (default: the row as JSON)"""
    skip_bad: Annotated[bool, flag("--skip-bad", group=_FORMAT)] = False
    """skip and count lines that are no records (default: stop there)"""
    key: Annotated[str | None, option("--key", "-k", group=_RECORDS, metavar="TEXT")] = None
    """the key of all records"""
    header: Annotated[
        tuple[str, ...], option("--header", "-H", group=_RECORDS, metavar="NAME=VALUE")
    ] = ()
    """a header for all records; repeatable"""
    partition: Annotated[
        NonNegativeInt | None, option("--partition", "-p", group=_RECORDS, metavar="N")
    ] = None
    """the partition of all records (default: by the key, or by --json)"""
    any_partition: Annotated[bool, flag("--any-partition", group=_RECORDS)] = False
    """with --json: choose partitions by the key, whatever the line names"""
    keep_topic: Annotated[bool, flag("--keep-topic", group=_RECORDS)] = False
    """with --json: send records to the topic that the line names, if it names one"""
    timestamp: Annotated[str | None, option("--timestamp", group=_RECORDS, metavar="TIME")] = None
    """the timestamp of all records: ISO 8601, ms since the epoch, or -1h"""
    null: Annotated[bool, flag("--null", "-Z", group=_RECORDS)] = False
    """send empty values (tombstones) and empty keys as null"""
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"] | None,
        Parameter(name=("--compression", "-z"), group=_SENDING),
    ] = None
    """compression of batches"""
    count: Annotated[PositiveInt | None, option("--count", "-c", group=_SENDING, metavar="N")] = (
        None
    )
    """stop after N records"""
    rate: Annotated[
        float | None,
        Parameter(group=_SENDING, metavar="N", validator=validators.Number(gte=0.001, lte=1e9)),
    ] = None
    """send at most N records a second"""
    quiet: Annotated[bool, flag("--quiet", "-q", group=_SENDING)] = False
    """no progress and no summary; errors are still shown"""


class _Constants(NamedTuple):
    """What all records have in common."""

    key: bytes | None
    headers: Headers
    partition: int | None
    timestamp: int | None


def produce(
    topic: str,
    /,
    *files: Path,
    options: Annotated[Options | None, Parameter(name="*")] = None,
    connection: ConnectionOptions = None,
) -> int:
    """Send records from files or standard input.

    Each line is the value of a record, unless options say otherwise. At the end a line on standard
    error sums up. Ctrl-C ends the reading; what was read is still sent.

    Parameters
    ----------
    topic : str
        the topic
    files : Path
        files to read in turn; - is standard input (default: standard input)
    """
    options = options or Options()
    _check(options)
    constants = _constants(options)
    compression = {} if options.compression is None else {"compression.type": options.compression}
    brokers = (connection or Connection()).brokers()
    if brokers.config.get("transactional.id"):
        raise UsageError("transactional.id: the command has no transactions; leave it out")
    interrupts = Interrupts()
    bad = BadLines(options.skip_bad, lambda text: meter.warn(text))
    source = Input(
        files or (STANDARD_INPUT,),
        bad,
        interrupts,
        _delimiter("-D", options.delimiter) or b"\n",
        _delimiter("-K", options.key_delimiter),
        _delimiter("--header-delimiter", options.header_delimiter),
        options.key_column,
        options.value_column,
    )
    # A bar would disturb a user who types the records.
    typed = STANDARD_INPUT in source.files and os.isatty(0)
    meter = Meter(topic, source.check(), shown=not options.quiet and not typed)
    producer = brokers.producer(**compression)
    try:
        _await_topic(brokers, producer, topic, options.partition)
        brokers.tell = meter.warn
        sender = _Sender(producer, topic, options, constants, meter, interrupts)
        source.meanwhile = sender.settle
        with interrupts, meter:
            try:
                status = _send_all(sender, _chunks(source, options), interrupts)
            except KeyboardInterrupt:
                producer.purge()  # the records fail, so their lines are reported
                sender.finish()
                status = Status.INTERRUPTED
        _sum_up(sender, bad, options.quiet)
        return status
    except BaseException:
        producer.purge()  # or the close would wait for the records
        raise
    finally:
        producer.close()


def _check(options: Options) -> None:
    if options.json + options.csv + options.whole > 1:
        raise UsageError("--json, --csv and --whole exclude each other")
    lines = not (options.json or options.csv or options.whole)
    for name, value, fits in (
        ("-D", options.delimiter, lines),
        ("-K", options.key_delimiter, lines),
        ("--header-delimiter", options.header_delimiter, lines),
        ("--key-column", options.key_column, options.csv),
        ("--value-column", options.value_column, options.csv),
        ("--any-partition", options.any_partition or None, options.json),
        ("--keep-topic", options.keep_topic or None, options.json),
    ):
        if value is not None and not fits:
            raise UsageError(f"{name} does not go with this format; see cykafka produce --help")
    if options.key is not None and (options.key_delimiter or options.key_column):
        raise UsageError("-k is the key of all records; leave out the other source of keys")


def _delimiter(name: str, text: str | None) -> bytes | None:
    found = delimiter(name, text)
    if found is not None and not found:
        raise UsageError(f"{name}: the delimiter is empty")
    return found


def _constants(options: Options) -> _Constants:
    try:
        headers: Headers = [
            (name, value.encode("utf-8", "surrogateescape"))
            for name, value in pairs(options.header)
        ]
    except ValueError as error:
        raise UsageError(f"-H: {error}") from None
    try:
        timestamp = None if options.timestamp is None else milliseconds(options.timestamp)
    except ValueError as error:
        raise UsageError(f"--timestamp: {error}") from None
    if timestamp == 0:
        raise UsageError("--timestamp: librdkafka cannot send 0; the earliest is 1 ms later")
    key = None if options.key is None else options.key.encode("utf-8", "surrogateescape")
    return _Constants(key, headers, options.partition, timestamp)


def _chunks(source: Input, options: Options) -> Iterator[Chunk]:
    if options.json:
        return source.ndjson()
    if options.csv:
        return source.csv()
    return source.whole() if options.whole else source.lines()


def _await_topic(
    brokers: Brokers,
    producer: Producer,
    topic: str,
    partition: int | None,
) -> None:
    """Wait until the topic is there; asking for it creates it, where brokers allow that."""
    deadline = time.monotonic() + min(brokers.timeout, _TOPIC_WAIT_S)
    while True:
        found = brokers.metadata(producer, topic).topics[topic]
        if found.error is None and found.partitions:
            break
        if found.error is not None and found.error.code() not in (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError.LEADER_NOT_AVAILABLE,
        ):
            raise Failed(f"topic {topic!r}: {found.error.str()}")
        if time.monotonic() >= deadline:
            raise Failed(
                f"there is no topic {topic!r}, and the brokers did not create it; "
                f"create it: cykafka topics create {topic}"
            )
        time.sleep(_SLICE_S)
    if partition is not None and partition not in found.partitions:
        last = max(found.partitions)
        raise UsageError(f"-p: topic {topic!r} has no partition {partition}; the last is {last}")


class _Flight(NamedTuple):
    """Records that were sent, and where they came from."""

    delivery: Delivery
    source: str
    lines: Sequence[int]
    size: int


class _Sender:
    """Publishes chunks, and counts the outcomes."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        options: Options,
        constants: _Constants,
        meter: Meter,
        interrupts: Interrupts,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self.options = options
        self._constants = constants
        self.meter = meter
        self._interrupts = interrupts
        self._flying: deque[_Flight] = deque()
        self._read = 0  # bytes
        self.shown = 0
        """how many failed records were reported"""
        self._told = False
        self.last = ""
        """where the last record came from"""

    @property
    def waiting(self) -> int:
        """How many records have no outcome."""
        return sum(len(flight.lines) for flight in self._flying)

    def send(self, chunk: Chunk) -> None:
        """Queue records, waiting for room."""
        columns = self._columns(chunk)
        topics: Any = self._topic
        if self.options.keep_topic and chunk.topics is not None:
            topics = [each or self._topic for each in chunk.topics]
        sending = publication(self._producer, topics, **columns)
        self._flying.append(_Flight(sending.delivery, chunk.source, chunk.lines, chunk.size))
        self.last = f"{chunk.source}, line {chunk.lines[-1]}"
        try:
            while not (done := sending.step()):
                if done is False:  # the queue is full
                    self._wait()
        finally:
            sending.end()
        self.settle()

    def settle(self) -> None:
        """Count outcomes that have arrived."""
        self._producer.poll(0)
        while self._flying and self._flying[0].delivery.done:
            self._settle_first()

    def pause(self, seconds: float) -> bool:
        """Wait, counting outcomes; False if a signal ended the wait."""
        return self._interrupts.pause(seconds, self.settle)

    def finish(self) -> None:
        """Wait for the outcomes of all records."""
        while self._flying:
            self._wait()

    def _wait(self) -> None:
        """Count outcomes, waiting for the next; after a signal, say what the command waits for."""
        self._producer.poll(_SLICE_S)
        self.settle()
        late = time.monotonic() > self._interrupts.since + _SLICE_S
        if self._flying and late and not self._told:
            self._told = True
            waiting = counted(self.waiting, "record")
            self.meter.warn(f"interrupted; waiting for {waiting}, Ctrl-C drops them")

    def _settle_first(self) -> None:
        delivery, source, lines, size = self._flying.popleft()
        failed = delivery.failed
        self.meter.errors += failed
        if failed and self.shown < _SHOWN:
            for index, error in islice(delivery.errors.items(), _SHOWN - self.shown):
                self.shown += 1
                self.meter.warn(f"{source}, line {lines[index]}: {error.str()}")
        self._read += size
        delivered = len(delivery) - failed
        # Of lines of different lengths, the bytes of the failed ones are an estimate.
        self.meter.add(delivered, size * delivered // len(delivery), self._read)

    def _columns(self, chunk: Chunk) -> dict[str, Any]:
        key, headers, partition, timestamp = self._constants
        keys, values = chunk.keys, chunk.values
        if self.options.null:
            values = [each or None for each in values]
            keys = keys and [each or None for each in keys]
        if key is not None:
            keys = [key] * len(values)
        columns: dict[str, Any] = {"values": values, "keys": keys}
        if chunk.headers is not None:
            columns["headers"] = [[*(each or ()), *headers] for each in chunk.headers]
        elif headers:
            mapping = dict(headers)
            unique = len(mapping) == len(headers)
            columns["headers"] = mapping if unique else [headers] * len(values)
        if partition is not None:
            columns["partitions"] = partition
        elif chunk.partitions is not None and not self.options.any_partition:
            columns["partitions"] = chunk.partitions
        columns["timestamps"] = chunk.timestamps if timestamp is None else timestamp
        return columns


def _send_all(sender: _Sender, chunks: Iterator[Chunk], interrupts: Interrupts) -> int:
    """Send everything; the status of the command so far."""
    options = sender.options
    failure: Failed | KafkaException | None = None
    chunks = _limited(chunks, options.count)
    if options.rate is not None:
        chunks = _paced(chunks, options.rate, sender.pause)
    try:
        for chunk in chunks:
            sender.send(chunk)
            if interrupts.requested:
                break
    except (Failed, KafkaException) as error:
        failure = error  # what was read before it is still sent
    sender.finish()
    if interrupts.requested:
        sender.meter.warn(f"interrupted after {sender.last or 'no record'}")
        return Status.INTERRUPTED
    if failure is not None:
        sender.meter.warn(reason(failure))
        return failure.status if isinstance(failure, Failed) else Status.FAILED
    return Status.FAILED if sender.meter.errors else Status.OK


def _limited(chunks: Iterator[Chunk], count: int | None) -> Iterator[Chunk]:
    left = count
    for chunk in chunks:
        if left is None:
            yield chunk
            continue
        size = len(chunk.lines)
        yield chunk if size <= left else chunk.part(0, left)
        left -= min(size, left)
        if not left:
            return


def _paced(
    chunks: Iterator[Chunk], rate: float, pause: Callable[[float], bool]
) -> Iterator[Chunk]:
    step = max(int(rate / _BEATS), 1)
    due = time.monotonic()
    for chunk in chunks:
        for start in range(0, len(chunk.lines), step):
            part = chunk.part(start, start + step)
            due = max(due, time.monotonic() - 1 / _BEATS)  # no burst after a pause of the input
            if not pause(due - time.monotonic()):
                return
            yield part
            due += len(part.lines) / rate


def _sum_up(sender: _Sender, bad: BadLines, quiet: bool) -> None:
    meter = sender.meter
    if meter.errors > sender.shown:
        meter.warn(f"and {counted(meter.errors - sender.shown, 'more record')} failed")
    if quiet:
        return
    notes = [meter.summary()]
    if meter.errors:
        notes.append(f"{meter.errors:,} failed")
    if bad.count:
        notes.append(f"{counted(bad.count, 'bad line')} skipped")
    meter.say("; ".join(notes))
