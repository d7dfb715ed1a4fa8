"""``cykafka consume``: print records of topics."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from cyclopts import Group, Parameter
from cyclopts.types import PositiveInt
from rich.console import Console

from cykafka import Consumer, KafkaError, KafkaException, MessageBatch, TopicPartition
from cykafka.cli import line_formats
from cykafka.cli.connection import Brokers, Connection, ConnectionOptions
from cykafka.cli.delimiters import unescape
from cykafka.cli.failures import EXIT_STATUS_HELP, Failed, Status, UsageError
from cykafka.cli.interrupts import Interrupts
from cykafka.cli.line_formats import Format
from cykafka.cli.offsets import Place, Span, parse_place, spans
from cykafka.cli.progress import Meter
from cykafka.internal import Ranges, consume_ranges

__all__ = ["HELP_EPILOGUE", "consume"]

HELP_EPILOGUE = (
    "examples:\n\n"
    "* ``cykafka consume orders -e > orders.txt``\n"
    "* ``cykafka consume orders -o -10 -e``\n"
    "* ``cykafka consume orders -o @-1h --until @now --json``\n"
    "* ``cykafka consume orders -f '%p %o %k: %s\\n'``\n"
    "* ``cykafka consume orders payments -G billing``\n\n"
    f"tokens of --format: {line_formats.TOKENS}\n\n" + EXIT_STATUS_HELP
)

_WHERE = Group("Where", sort_key=1)
_WHAT = Group("Output", sort_key=2)
_BATCH = 10_000
_BATCH_BYTES = 16 << 20
# The longest time that a record waits for others.
_WAIT_S = 0.1
_COMMIT_EVERY_S = 1.0
# Errors of connections: librdkafka connects again.
_PASSING = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._MAX_POLL_EXCEEDED,
)


def _flag(*names: str, group: Group) -> Parameter:
    return Parameter(name=names, group=group, negative=(), show_default=False)


def _option(*names: str, group: Group, metavar: str) -> Parameter:
    return Parameter(
        name=names,
        group=group,
        metavar=metavar,
        negative=(),
        show_default=False,
        allow_leading_hyphen=True,
    )


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of ``cykafka consume``, with their help."""

    offset: Annotated[str | None, _option("--offset", "-o", group=_WHERE, metavar="PLACE")] = None
    """begin here: beginning (default), end, stored, N, -N (N before the end), or @TIME"""
    until: Annotated[str | None, _option("--until", group=_WHERE, metavar="PLACE")] = None
    """end before this place and exit: end, N, -N or @TIME (default: wait for new records)"""
    exit: Annotated[bool, _flag("--exit", "-e", group=_WHERE)] = False
    """exit at the end, as it is at the start; the same as --until end"""
    partition: Annotated[
        tuple[str, ...], _option("--partition", "-p", group=_WHERE, metavar="N,...")
    ] = ()
    """only these partitions; repeatable"""
    group: Annotated[str | None, _option("--group", "-G", group=_WHERE, metavar="NAME")] = None
    """share the partitions with the group's other members, and commit what was printed"""
    count: Annotated[PositiveInt | None, _option("--count", "-c", group=_WHERE, metavar="N")] = (
        None
    )
    """exit after N records"""
    key: Annotated[str | None, _option("--key", "-k", group=_WHERE, metavar="TEXT")] = None
    """only records with this key"""
    delimiter: Annotated[str | None, _option("--delimiter", "-D", group=_WHAT, metavar="TEXT")] = (
        None
    )
    r"""what ends a record; \\n, \\t, \\0 and \\xHH are escapes (default: \\n)"""
    key_delimiter: Annotated[
        str | None, _option("--key-delimiter", "-K", group=_WHAT, metavar="TEXT")
    ] = None
    """print the key and this text before the value"""
    format: Annotated[str | None, _option("--format", "-f", group=_WHAT, metavar="TEXT")] = None
    """print by a template with kcat's tokens, see below"""
    json: Annotated[bool, _flag("--json", "-J", group=_WHAT)] = False
    """print a JSON object a line, which ``cykafka produce --json`` reads"""
    hex: Annotated[bool, _flag("--hex", group=_WHAT)] = False
    """print a dump in hexadecimal"""
    null: Annotated[bool, _flag("--null", "-Z", group=_WHAT)] = False
    """print NULL for null (default: nothing)"""
    quiet: Annotated[bool, _flag("--quiet", "-q", group=_WHAT)] = False
    """no progress and no summary; errors are still shown"""


class _Limits(NamedTuple):
    """Which records to print."""

    count: int | None
    key: bytes | None


def consume(
    topics: Annotated[tuple[str, ...], Parameter(negative=())],
    /,
    *,
    options: Annotated[Options | None, Parameter(name="*")] = None,
    connection: ConnectionOptions = None,
) -> int:
    """Print records of topics to standard output.

    A record is its value and a newline; on a terminal also its place, its time and its key. The
    command waits for new records until Ctrl-C, unless -e, --until or -c ends it.

    Parameters
    ----------
    topics : str
        the topics; with -G, one that begins with ^ is a regular expression
    """
    options = options or Options()
    start, until = _places(options)
    form, terminator = _format(options)
    wanted = _partitions(options)
    brokers = (connection or Connection()).brokers({"auto.offset.reset": "earliest"})
    limits = _Limits(
        options.count,
        None if options.key is None else options.key.encode("utf-8", "surrogateescape"),
    )
    with Interrupts() as interrupts:
        if options.group is None and start.kind != "stored":
            group = str(brokers.config.get("group.id", "cykafka-consume"))
        else:
            group = options.group or str(brokers.config.get("group.id", ""))
            if not group:
                raise UsageError("-o stored needs the group: -X group.id=NAME")
        reset = {"auto.offset.reset": "latest"} if options.group and start.kind == "end" else {}
        consumer = brokers.consumer(
            **{
                "group.id": group,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                **reset,
            }
        )
        try:
            partitions = _known(brokers, consumer, topics, wanted, options.group is not None)
            if options.group is not None:
                reader: _Reader = _GroupReader(
                    consumer, list(topics), options.exit, brokers.timeout
                )
            else:
                parts = spans(consumer, partitions, start, until, brokers.timeout, _warn)
                reader = (_Follow if until is None else _Bounded)(consumer, parts)
            shown = not options.quiet and not sys.stdout.isatty()
            meter = Meter(", ".join(topics), reader.total, shown)
            brokers.tell = meter.warn
            with meter:
                _print_all(reader, form, terminator, limits, meter, interrupts)
            reader.finish()
        finally:
            consumer.close(brokers.timeout)
        if not options.quiet and not (sys.stdout.isatty() and interrupts.requested):
            meter.say(meter.summary())
        return Status.INTERRUPTED if interrupts.requested else Status.OK


def _warn(text: str) -> None:
    print(f"cykafka: {text}", file=sys.stderr)


# -- options


def _places(options: Options) -> tuple[Place, Place | None]:
    try:
        default = "beginning" if options.group is None else "stored"
        start = parse_place(default if options.offset is None else options.offset)
    except ValueError as error:
        raise UsageError(f"-o: {error}") from None
    if options.exit and options.until is not None:
        raise UsageError("-e and --until exclude each other")
    try:
        until = None if options.until is None else parse_place(options.until)
    except ValueError as error:
        raise UsageError(f"--until: {error}") from None
    if until is not None and until.kind in ("beginning", "stored"):
        raise UsageError(f"--until: {until.kind} is no end; use end, N, -N or @TIME")
    if options.group is not None:
        if start.kind not in ("beginning", "end", "stored"):
            raise UsageError("-o: with -G the group's offsets decide; use beginning or end")
        if until is not None or options.partition:
            raise UsageError("-G does not go with -p and --until: the group assigns partitions")
    return start, Place("end") if options.exit else until


def _partitions(options: Options) -> set[int] | None:
    texts = [text.strip() for each in options.partition for text in each.split(",")]
    if not all(text.isascii() and text.isdigit() for text in texts):
        raise UsageError("-p: expected numbers of partitions, such as -p 0,2")
    return {int(text) for text in texts} or None


def _format(options: Options) -> tuple[Format, bytes]:
    """How to print a record, and what ends it."""
    null = b"NULL" if options.null else b""
    if options.json + options.hex + (options.format is not None) > 1:
        raise UsageError("--json, --hex and --format exclude each other")
    plain = options.delimiter is None and options.key_delimiter is None
    if options.json or options.hex or options.format is not None:
        if not plain:
            raise UsageError("-D and -K do not go with --json, --hex and --format")
        if options.format is not None:
            try:
                return line_formats.template(options.format, null), b""
            except ValueError as error:
                raise UsageError(f"-f: {error}") from None
        return line_formats.json_lines if options.json else line_formats.dump, b"\n"
    if plain and sys.stdout.isatty():
        console = Console()
        return line_formats.pretty(not console.no_color and console.is_terminal), b"\n"
    try:
        delimiter = unescape("\\n" if options.delimiter is None else options.delimiter)
        of_key = None if options.key_delimiter is None else unescape(options.key_delimiter)
    except ValueError as error:
        raise UsageError(f"-D, -K: {error}") from None
    return line_formats.values(null, of_key), delimiter


def _known(
    brokers: Brokers,
    consumer: Consumer,
    topics: Iterable[str],
    wanted: set[int] | None,
    in_group: bool,
) -> list[tuple[str, int]]:
    """The partitions to read.

    Raises
    ------
    Failed
        A topic or a partition does not exist.
    """
    found = []
    for topic in dict.fromkeys(topics):
        if topic.startswith("^"):
            if not in_group:
                raise UsageError(f"{topic!r}: regular expressions need a group: -G NAME")
            continue
        metadata = brokers.metadata(consumer, topic).topics[topic]
        if metadata.error is not None:
            if metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise Failed(f"there is no topic {topic!r}")
            raise Failed(f"topic {topic!r}: {metadata.error.str()}")
        missing = (wanted or set()) - metadata.partitions.keys()
        if missing:
            raise Failed(
                f"topic {topic!r} has no partition {min(missing)}; "
                f"the last is {max(metadata.partitions)}"
            )
        found += [(topic, number) for number in sorted(wanted or metadata.partitions)]
    return found


# -- reading


class _Reader:
    """Yields batches of records; each kind ends in its own way."""

    total: int | None = None
    """how many offsets there are to read, if that is known"""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    def batches(self) -> Iterator[MessageBatch]:
        """Batches, also empty ones, at least every 0.1 s."""
        raise NotImplementedError

    def printed(self, batch: MessageBatch) -> None:
        """The records of a batch, or of its beginning, were printed."""

    def finish(self) -> None:
        """All output was written."""


class _Bounded(_Reader):
    """Reads parts of partitions to their ends."""

    def __init__(self, consumer: Consumer, parts: list[Span]) -> None:
        super().__init__(consumer)
        self._parts = [each for each in parts if each.start < each.end]
        self.total = sum(each.end - each.start for each in self._parts)

    def batches(self) -> Iterator[MessageBatch]:
        ranges = Ranges((each.topic, each.partition, each.start, each.end) for each in self._parts)
        _assign(self.consumer, self._parts)
        while len(ranges):
            batch = consume_ranges(self.consumer, ranges, _BATCH, _BATCH_BYTES, _WAIT_S)
            for _ in _events(batch):
                pass  # the ranges know their ends
            yield batch


class _Follow(_Reader):
    """Reads partitions on and on."""

    def __init__(self, consumer: Consumer, parts: list[Span]) -> None:
        super().__init__(consumer)
        self._parts = parts

    def batches(self) -> Iterator[MessageBatch]:
        _assign(self.consumer, self._parts)
        while True:
            batch = self.consumer.consume_batch(_BATCH, _WAIT_S)
            for _ in _events(batch):
                pass
            yield batch


class _GroupReader(_Reader):
    """Reads as a member of a group, and commits what was printed."""

    def __init__(
        self, consumer: Consumer, topics: list[str], to_end: bool, timeout: float
    ) -> None:
        super().__init__(consumer)
        self._topics = topics
        self._to_end = to_end
        self._timeout = timeout
        self._assigned: set[tuple[str, int]] | None = None
        self._ended: set[tuple[str, int]] = set()
        self._positions: dict[tuple[str, int], TopicPartition] = {}
        self._commit_at = time.monotonic() + _COMMIT_EVERY_S

    def batches(self) -> Iterator[MessageBatch]:
        self.consumer.subscribe(
            self._topics,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        while not self._at_end():
            batch = self.consumer.consume_batch(_BATCH, _WAIT_S)
            for topic, partition in _events(batch):
                self._ended.add((topic, partition))
            yield batch

    def _at_end(self) -> bool:
        return self._to_end and self._assigned is not None and self._assigned <= self._ended

    def printed(self, batch: MessageBatch) -> None:
        for each in batch.positions():
            self._positions[each.topic, each.partition] = each
        if time.monotonic() >= self._commit_at and self._positions:
            self.consumer.commit(offsets=list(self._positions.values()))
            self._positions.clear()
            self._commit_at = time.monotonic() + _COMMIT_EVERY_S

    def finish(self) -> None:
        self._commit(list(self._positions))

    def _commit(self, keys: Iterable[tuple[str, int]]) -> None:
        offsets = [self._positions.pop(key) for key in keys if key in self._positions]
        if offsets:
            self.consumer.commit(offsets=offsets, asynchronous=False)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        added = {(each.topic, each.partition) for each in partitions}
        self._assigned = (self._assigned or set()) | added
        self._ended -= added

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit([(each.topic, each.partition) for each in partitions])
        self._on_lost(consumer, partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        lost = {(each.topic, each.partition) for each in partitions}
        self._assigned = (self._assigned or set()) - lost
        for key in lost:
            self._positions.pop(key, None)


def _assign(consumer: Consumer, parts: Iterable[Span]) -> None:
    consumer.assign([TopicPartition(each.topic, each.partition, each.start) for each in parts])


def _events(batch: MessageBatch) -> Iterator[tuple[str, int]]:
    """The partitions whose ends were reached.

    Raises
    ------
    Failed
        An error that waiting does not cure.
    """
    for message in batch.errors:
        error = message.error()
        assert error is not None
        topic, partition = message.topic(), message.partition()
        if error.code() == KafkaError._PARTITION_EOF:
            assert topic is not None
            assert partition is not None
            yield topic, partition
        elif error.code() not in _PASSING:
            place = f"{topic}[{partition}]: " if topic else ""
            raise Failed(f"{place}{error.str()}") from KafkaException(error)


# -- printing


def _print_all(
    reader: _Reader,
    form: Format,
    terminator: bytes,
    limits: _Limits,
    meter: Meter,
    interrupts: Interrupts,
) -> None:
    left = limits.count
    done = 0
    for batch in reader.batches():
        if len(batch):
            with batch:
                lines = form(batch)
                used = len(batch)
                if limits.key is not None or (left is not None and used > left):
                    chosen = _chosen(batch, limits.key, left)
                    if left is not None and len(chosen) == left:
                        used = chosen[-1] + 1
                    lines = [lines[at] for at in chosen]
                count = len(lines)
                size = _write(lines, terminator)
                reader.printed(batch if used == len(batch) else batch[:used])
                done += used
                meter.add(count, size, done)
            if left is not None:
                left -= count
                if not left:
                    return
        if interrupts.requested:
            return


def _chosen(batch: MessageBatch, key: bytes | None, left: int | None) -> list[int]:
    """The indexes of the records to print, at most `left`."""
    if key is None:
        return list(range(len(batch)))[:left]
    return [at for at, each in enumerate(batch.keys()) if each == key][:left]


def _write(lines: list[bytes], terminator: bytes) -> int:
    """Write all lines to standard output at once; how many bytes they have."""
    if not lines:
        return 0
    lines.append(b"")  # so that the last line has its terminator
    data = memoryview(terminator.join(lines))
    size = len(data)
    file = sys.stdout.fileno()
    while data:
        data = data[os.write(file, data) :]
    return size
