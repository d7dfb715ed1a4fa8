"""``cykafka consume``: print topics' records."""

from __future__ import annotations

import os
import select
import stat
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter
from cyclopts.types import PositiveInt
from rich.console import Console

from cykafka import Consumer, KafkaError, MessageBatch, ShareConsumer
from cykafka.cli.cluster.connection import Brokers, Connection, ConnectionOptions
from cykafka.cli.cluster.registry import Registry, Url
from cykafka.cli.records import line_formats
from cykafka.cli.records.line_formats import Format
from cykafka.cli.records.places import Place, parse_place, spans
from cykafka.cli.records.reading import Member, ShareMember, follow, read_to_end
from cykafka.cli.records.value_formats import FORMATS_HELP, Decoder, ValueFormat, reader
from cykafka.cli.terminal.failures import EXIT_STATUS_HELP, BadRecords, Failed, Status, UsageError
from cykafka.cli.terminal.interrupts import Interrupts
from cykafka.cli.terminal.parameters import Names, delimiter, option, parse_numbers, plain
from cykafka.cli.terminal.progress import Meter
from cykafka.cli.terminal.texts import counted

__all__ = ["HELP_EPILOGUE", "consume"]

HELP_EPILOGUE = (
    "examples:\n\n"
    "* ``cykafka consume orders -e > orders.txt``\n"
    "* ``cykafka consume orders -o -10 -e``\n"
    "* ``cykafka consume orders -o @-1h --until @now --json``\n"
    "* ``cykafka consume orders -f '%p %o %k: %s\\n'``\n"
    "* ``cykafka consume orders payments -G billing``\n"
    "* ``cykafka consume jobs --share-group workers --json``\n"
    "* ``cykafka consume orders -e --value-format avro -r http://localhost:8081``\n\n"
    f"{FORMATS_HELP}\n\n"
    f"tokens of --format: {line_formats.TOKENS}\n\n" + EXIT_STATUS_HELP
)

_WHERE = Group("Where", sort_key=1)
_WHAT = Group("Output", sort_key=2)


@dataclass(frozen=True, kw_only=True)
class ConsumeOptions:
    """The options of ``cykafka consume``, with their help."""

    offset: Annotated[str | None, option("-o", group=_WHERE, metavar="PLACE")] = None
    """start here: beginning (default), end, stored, N, -N (N before the end), or @TIME"""
    until: Annotated[str | None, option(group=_WHERE, metavar="PLACE")] = None
    """end before this place and exit: end, N, -N or @TIME (default: wait for new records)"""
    exit: Annotated[bool, plain("-e", group=_WHERE)] = False
    """exit at the current ends; with -G, when all partitions are at their ends"""
    partition: Annotated[tuple[str, ...], option("-p", group=_WHERE, metavar="N,...")] = ()
    """only these partitions, such as 0,2-4; repeatable"""
    group: Annotated[str | None, option("-G", group=_WHERE, metavar="NAME")] = None
    """share the partitions with the group's other members, and commit what was printed"""
    share_group: Annotated[str | None, option(group=_WHERE, metavar="NAME")] = None
    """share the records with the share group's other members, and accept what was printed"""
    count: Annotated[PositiveInt | None, option("-c", group=_WHERE, metavar="N")] = None
    """exit after N records"""
    key: Annotated[str | None, option("-k", group=_WHERE, metavar="TEXT")] = None
    """only records with this key"""
    value_format: Annotated[str | None, option(group=_WHAT, metavar="FORMAT")] = None
    """decode values: avro, protobuf, json, string, bytes or such as '>q', see below"""
    key_format: Annotated[str | None, option(group=_WHAT, metavar="FORMAT")] = None
    """decode keys likewise"""
    skip_bad: Annotated[bool, plain(group=_WHAT)] = False
    """skip and count records that cannot be decoded (default: stop there)"""
    delimiter: Annotated[str | None, option("-D", group=_WHAT, metavar="TEXT")] = None
    r"""what ends a record; \\n, \\t, \\0 and \\xHH are escapes (default: \\n)"""
    key_delimiter: Annotated[str | None, option("-K", group=_WHAT, metavar="TEXT")] = None
    """print the key and this text before the value"""
    format: Annotated[str | None, option("-f", group=_WHAT, metavar="TEXT")] = None
    """print by a template with kcat's tokens, see below"""
    json: Annotated[bool, plain("-J", group=_WHAT)] = False
    """print one JSON object per line, which ``cykafka produce --json`` reads"""
    hex: Annotated[bool, plain(group=_WHAT)] = False
    """print a dump in hexadecimal"""
    null: Annotated[bool, plain("-Z", group=_WHAT)] = False
    """print NULL for null (default: nothing)"""
    quiet: Annotated[bool, plain("-q", group=_WHAT)] = False
    """show neither progress nor a summary; still show errors"""


def consume(
    topics: Names,
    /,
    *,
    options: Annotated[ConsumeOptions | None, Parameter(name="*")] = None,
    schema_registry: Url = None,
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
    options, connection = options or ConsumeOptions(), connection or Connection()
    _check_groups(options)
    _check_formats(options, schema_registry)
    with Registry(connection, schema_registry) as registry:
        return _consume(topics, options, connection, registry)


def _consume(
    topics: Sequence[str], options: ConsumeOptions, connection: Connection, registry: Registry
) -> int:
    start, until = _places(options)
    form, terminator = _format(options)
    decoder = _decoder(options, registry)
    wanted = _partitions(options)
    defaults = {} if options.share_group else {"auto.offset.reset": "earliest"}
    brokers = connection.brokers(defaults)
    key = None if options.key is None else options.key.encode("utf-8", "surrogateescape")
    interrupts = Interrupts()
    finished_at: float | None = None
    failure: Failed | None = None
    consumer: Consumer | ShareConsumer
    if options.share_group is not None:
        consumer = brokers.share_consumer(**{
            "group.id": options.share_group, "share.acknowledgement.mode": "explicit",
        })  # fmt: skip
    else:
        consumer = brokers.consumer(**_properties(options, start, brokers))
    try:
        partitions = _find_partitions(brokers, consumer, topics, wanted, options.group is not None)
        member: Member | ShareMember | None = None
        total = None
        if isinstance(consumer, ShareConsumer):
            member = ShareMember(consumer, list(dict.fromkeys(topics)), brokers.timeout, _warn)
            batches = member.batches()
        elif options.group is not None:
            member = Member(consumer, list(dict.fromkeys(topics)), options.exit, brokers.timeout)
            batches = member.batches()
        else:
            parts = spans(consumer, partitions, start, until, brokers.timeout, _warn)
            if until is not None:
                total = sum(part.end - part.start for part in parts)
            batches = (follow if until is None else read_to_end)(consumer, parts)
        # A pipe may lead to a program that prints to the same terminal.
        to_a_file = stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
        meter = Meter(", ".join(topics), total, shown=to_a_file and not options.quiet)
        brokers.tell = meter.warn
        decoder.bad.report = meter.warn
        with interrupts, meter:
            failure = _print_all(
                batches, member, decoder, form, terminator, key, options.count, meter, interrupts
            )
            finished_at = time.monotonic()
            if member is not None:
                member.finish()
    finally:
        # The last commit and the close share the timeout.
        spent = 0 if finished_at is None else time.monotonic() - finished_at
        consumer.close(max(brokers.timeout - spent, 0))
    if not options.quiet:
        bad = decoder.bad.count
        skipped = f"; {counted(bad, 'bad record')} skipped" if bad else ""
        meter.say(meter.summary() + skipped)
    if failure is not None:
        raise failure
    return Status.INTERRUPTED if interrupts.requested else Status.OK


def _warn(text: str) -> None:
    print(f"cykafka: {text}", file=sys.stderr)


# -- options


def _check_groups(options: ConsumeOptions) -> None:
    """Refuse options that have no meaning with a group."""
    for flag, name in (("-G", options.group), ("--share-group", options.share_group)):
        if name is not None and not name.strip():
            raise UsageError(f"{flag}: the group name must not be blank")
    if options.share_group is None:
        return
    if options.group is not None:
        raise UsageError("-G and --share-group cannot be combined")
    if options.offset is not None:
        raise UsageError(
            "-o cannot be combined with --share-group: cykafka configs alter group "
            f"{options.share_group} --set share.auto.offset.reset=earliest sets where it begins"
        )
    if options.until is not None or options.exit or options.partition:
        raise UsageError(
            "--share-group cannot be combined with -e, --until or -p: the group decides which "
            "records it delivers; -c ends after a number of records"
        )
    if options.key is not None:
        raise UsageError(
            "--share-group cannot be combined with -k: the group would lose the other records"
        )


def _check_formats(options: ConsumeOptions, url: str | None) -> None:
    """Refuse options that have no meaning with the formats of keys and values."""
    names = {form.name for form in _forms(options) if form is not None}
    if options.skip_bad and not names:
        raise UsageError("--skip-bad needs --value-format or --key-format")
    if url is not None and names.isdisjoint(("avro", "protobuf", "json")):
        raise UsageError(
            "--schema-registry needs --value-format or --key-format avro, protobuf or json"
        )
    if options.hex and names:
        raise UsageError("--hex shows bytes: remove --value-format and --key-format")


def _places(options: ConsumeOptions) -> tuple[Place, Place | None]:
    try:
        default = "beginning" if options.group is None else "stored"
        start = parse_place(default if options.offset is None else options.offset)
    except ValueError as error:
        raise UsageError(f"-o: {error}") from None
    if options.exit and options.until is not None:
        raise UsageError("-e and --until cannot be combined")
    try:
        until = None if options.until is None else parse_place(options.until)
    except ValueError as error:
        raise UsageError(f"--until: {error}") from None
    if until is not None and until.kind in ("beginning", "stored"):
        raise UsageError(f"--until: expected end, N, -N or @TIME, got {until.kind}")
    if options.group is not None:
        if start.kind not in ("beginning", "end", "stored"):
            raise UsageError("-o: with -G the group's offsets decide; use beginning or end")
        if until is not None or options.partition:
            raise UsageError(
                "-G cannot be combined with -p or --until: the group assigns partitions"
            )
    return start, Place("end") if options.exit else until


def _properties(options: ConsumeOptions, start: Place, brokers: Brokers) -> dict[str, object]:
    group = options.group or brokers.config.get("group.id")
    if not group and start.kind == "stored":
        raise UsageError("-o stored needs a group: -X group.id=NAME, or -G NAME to join it")
    properties: dict[str, object] = {
        # librdkafka requires a group even if the command commits nothing.
        "group.id": group or "cykafka-consume",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    if options.group is not None and start.kind != "stored":
        properties["auto.offset.reset"] = "latest" if start.kind == "end" else "earliest"
    return properties


def _partitions(options: ConsumeOptions) -> set[int] | None:
    try:
        return {number for text in options.partition for number in parse_numbers(text)} or None
    except ValueError as error:
        raise UsageError(f"-p: {error}") from None


def _format(options: ConsumeOptions) -> tuple[Format, bytes]:
    """Return how to print a record, and what ends it."""
    null = b"NULL" if options.null else b""
    on_terminal = sys.stdout.isatty()
    if options.json + options.hex + (options.format is not None) > 1:
        raise UsageError("use only one of --json, --hex and --format")
    plain = options.delimiter is None and options.key_delimiter is None
    if options.json or options.hex or options.format is not None:
        if not plain:
            raise UsageError("-D and -K cannot be combined with --json, --hex or --format")
        if options.format is not None:
            try:
                return line_formats.template(options.format, null, escaped=on_terminal), b""
            except ValueError as error:
                raise UsageError(f"-f: {error}") from None
        if options.hex:
            return line_formats.dump, b"\n"
        keys, values = ("text" if form is None else form.kind for form in _forms(options))
        return line_formats.json_lines(keys, values, escaped=on_terminal), b"\n"
    if plain and on_terminal:
        console = Console()
        return line_formats.pretty(not console.no_color and console.is_terminal), b"\n"
    end = delimiter("-D", options.delimiter)
    key_delimiter = delimiter("-K", options.key_delimiter)
    form = line_formats.values(null, key_delimiter, escaped=on_terminal)
    return form, b"\n" if end is None else end


def _forms(options: ConsumeOptions) -> tuple[ValueFormat | None, ValueFormat | None]:
    key, value = options.key_format, options.value_format
    return ValueFormat.parse("key", key), ValueFormat.parse("value", value)


def _decoder(options: ConsumeOptions, registry: Registry) -> Decoder:
    """Return what decodes the records. This does not connect to the registry yet."""
    bad = BadRecords(options.skip_bad, _warn, "; --skip-bad skips such records")
    key, value = (form and reader(form, registry) for form in _forms(options))
    return Decoder(key, value, bad)


def _find_partitions(
    brokers: Brokers,
    consumer: Consumer | ShareConsumer,
    topics: Iterable[str],
    wanted: set[int] | None,
    in_group: bool,
) -> list[tuple[str, int]]:
    """Return the partitions to read.

    Raises
    ------
    Failed
        A topic or a partition does not exist.
    """
    found = []
    for topic in dict.fromkeys(topics):
        if topic.startswith("^"):
            if isinstance(consumer, ShareConsumer):
                raise UsageError(f"{topic!r}: share groups have no regular expressions")
            if not in_group:
                raise UsageError(f"{topic!r}: regular expressions need a group: -G NAME")
            continue
        metadata = brokers.metadata(consumer, topic).topics[topic]
        if metadata.error is not None:
            if metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise Failed(f"topic {topic!r} does not exist")
            raise Failed(f"topic {topic!r}: {metadata.error.str()}")
        missing = (wanted or set()) - metadata.partitions.keys()
        if missing:
            raise Failed(
                f"topic {topic!r} has no partition {min(missing)}; "
                f"the last is {max(metadata.partitions)}"
            )
        found += [(topic, number) for number in sorted(wanted or metadata.partitions)]
    return found


# -- printing


def _print_all(
    batches: Iterable[MessageBatch],
    member: Member | ShareMember | None,
    decoder: Decoder,
    form: Format,
    terminator: bytes,
    key: bytes | None,
    left: int | None,
    meter: Meter,
    interrupts: Interrupts,
) -> Failed | None:
    """Print all records; return the one that could not be decoded, if that ends the work."""
    done = 0
    for batch in batches:
        if len(batch):
            with batch:
                failure = None
                if decoder.is_needed:
                    decoded = decoder.decode(batch, key, left)
                    lines, used, failure = form(decoded), decoded.used, decoded.failure
                else:
                    lines, used = _lines(batch, form, key, left)
                count = len(lines)
                size = _write(lines, terminator)
                if member is not None and used:
                    member.note_printed(batch if used == len(batch) else batch[:used])
                done += used
                meter.add(count, size, done)
                if failure is not None:
                    return failure
            if left is not None:
                left -= count
                if not left:
                    return None
        if interrupts.requested:
            return None
    return None


def _lines(
    batch: MessageBatch, form: Format, key: bytes | None, left: int | None
) -> tuple[list[bytes], int]:
    """Return the lines to print, and how many of the batch's records they use."""
    lines = form(batch)
    used = len(batch)
    if key is not None or (left is not None and used > left):
        keys = enumerate(batch.keys())
        chosen = [at for at, found in keys if key is None or found == key][:left]
        if left is not None and len(chosen) == left:
            used = chosen[-1] + 1
        lines = [lines[at] for at in chosen]
    return lines, used


def _write(lines: list[bytes], terminator: bytes) -> int:
    """Write all lines to standard output at once; return their size in bytes."""
    if not lines:
        return 0
    lines.append(b"")  # the last line also gets a terminator
    data = memoryview(terminator.join(lines))
    size = len(data)
    file = sys.stdout.fileno()
    while data:
        try:
            data = data[os.write(file, data) :]
        except BlockingIOError:  # another process has made the pipe non-blocking
            select.select([], [file], [])
    return size
