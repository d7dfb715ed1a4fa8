"""``cykafka produce``: send records from standard input or from files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter, validators
from cyclopts.types import NonNegativeInt, PositiveInt

from cykafka import KafkaException
from cykafka.cli.cluster.connection import Connection, ConnectionOptions
from cykafka.cli.cluster.registry import Registry, Url
from cykafka.cli.records.chunks import STANDARD_INPUT, Chunk, Input, limit_records
from cykafka.cli.records.json_record import Headers, Parts, Writers
from cykafka.cli.records.sending import ChunkSender, Overrides, await_topic
from cykafka.cli.records.value_formats import FORMATS_HELP, ValueFormat
from cykafka.cli.records.written_schemas import SchemaOptions, check_schemas, open_writers
from cykafka.cli.terminal.failures import (
    EXIT_STATUS_HELP,
    BadRecords,
    Failed,
    Status,
    UsageError,
    reason,
)
from cykafka.cli.terminal.interrupts import Interrupts
from cykafka.cli.terminal.parameters import delimiter, milliseconds, option, plain
from cykafka.cli.terminal.progress import Meter
from cykafka.cli.terminal.texts import counted
from cykafka.internal.command_lines import pairs

__all__ = ["HELP_EPILOGUE", "produce"]

HELP_EPILOGUE = (
    "examples:\n\n"
    "* ``cykafka produce orders < orders.txt``\n"
    "* ``cykafka produce orders -K : -z zstd orders.txt``\n"
    "* ``cykafka consume orders --json -e | cykafka produce copy --json``\n"
    "* ``cykafka produce orders --csv --key-column id orders.csv``\n"
    "* ``cykafka produce orders --value-format avro --schema order.avsc -r http://localhost:8081``"
    f"\n\n{FORMATS_HELP}\n\n" + EXIT_STATUS_HELP
)

_FORMAT = Group("Format", sort_key=1)
_RECORDS = Group("Records", sort_key=2)
_SENDING = Group("Sending", sort_key=3)
# How many times per second `--rate` sends.
_BEATS = 20


@dataclass(frozen=True, kw_only=True)
class ProduceOptions:
    """The options of ``cykafka produce``, with their help."""

    json: Annotated[bool, plain("-J", group=_FORMAT)] = False
    """each line is a record as ``cykafka consume --json`` prints it"""
    csv: Annotated[bool, plain(group=_FORMAT)] = False
    """each row is a record: a JSON object of texts, named by the file's first line"""
    whole: Annotated[bool, plain(group=_FORMAT)] = False
    """each file is a record"""
    value_format: Annotated[str | None, option(group=_FORMAT, metavar="FORMAT")] = None
    """values are JSON to encode as: avro, protobuf, json, or such as '>q', see below"""
    key_format: Annotated[str | None, option(group=_FORMAT, metavar="FORMAT")] = None
    """encode keys likewise"""
    delimiter: Annotated[str | None, option("-D", group=_FORMAT, metavar="TEXT")] = None
    r"""what ends a record; \\n, \\t, \\0 and \\xHH are escapes (default: \\n)"""
    key_delimiter: Annotated[str | None, option("-K", group=_FORMAT, metavar="TEXT")] = None
    """a line is a key, this text and the value"""
    header_delimiter: Annotated[str | None, option(group=_FORMAT, metavar="TEXT")] = None
    """a line begins with headers NAME=VALUE,... and this text"""
    key_column: Annotated[str | None, option(group=_FORMAT, metavar="NAME")] = None
    """the column of the key, with --csv"""
    value_column: Annotated[str | None, option(group=_FORMAT, metavar="NAME")] = None
    """the column that is the value, with --csv (default: the row as JSON)"""
    skip_bad: Annotated[bool, plain(group=_FORMAT)] = False
    """skip and count lines that are not records (default: stop there)"""
    key: Annotated[str | None, option("-k", group=_RECORDS, metavar="TEXT")] = None
    """the key of all records"""
    header: Annotated[tuple[str, ...], option("-H", group=_RECORDS, metavar="NAME=VALUE")] = ()
    """a header for all records; repeatable"""
    partition: Annotated[NonNegativeInt | None, option("-p", group=_RECORDS, metavar="N")] = None
    """the partition of all records (default: by the key, or by --json)"""
    any_partition: Annotated[bool, plain(group=_RECORDS)] = False
    """with --json: choose partitions by the key, whatever the line names"""
    keep_topic: Annotated[bool, plain(group=_RECORDS)] = False
    """with --json: send records to the topic that the line names, if it names one"""
    timestamp: Annotated[str | None, option(group=_RECORDS, metavar="TIME")] = None
    """the timestamp of all records: ISO 8601, ms since the epoch, or -1h"""
    null: Annotated[bool, plain("-Z", group=_RECORDS)] = False
    """send empty values (tombstones) and empty keys as null"""
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"] | None,
        Parameter(alias="-z", group=_SENDING),
    ] = None
    """compression of batches"""
    count: Annotated[PositiveInt | None, option("-c", group=_SENDING, metavar="N")] = None
    """stop after N records"""
    rate: Annotated[
        float | None,
        Parameter(group=_SENDING, metavar="N", validator=validators.Number(gte=0.001, lte=1e9)),
    ] = None
    """send at most N records a second"""
    quiet: Annotated[bool, plain("-q", group=_SENDING)] = False
    """show neither progress nor a summary; still show errors"""


def produce(
    topic: str,
    /,
    *files: Path,
    options: Annotated[ProduceOptions | None, Parameter(name="*")] = None,
    schemas: Annotated[SchemaOptions | None, Parameter(name="*")] = None,
    schema_registry: Url = None,
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
    options, connection = options or ProduceOptions(), connection or Connection()
    schemas = schemas or SchemaOptions()
    _check(options)
    _check_formats(options, schemas, schema_registry)
    with Registry(connection, schema_registry) as registry:
        return _produce(topic, files, options, schemas, connection, registry)


def _produce(
    topic: str,
    files: tuple[Path, ...],
    options: ProduceOptions,
    schemas: SchemaOptions,
    connection: Connection,
    registry: Registry,
) -> int:
    forms = _forms(options)
    check_schemas(forms, schemas, registry)
    overrides = _overrides(options)
    compression = {} if options.compression is None else {"compression.type": options.compression}
    brokers = connection.brokers()
    if brokers.config.get("transactional.id"):
        raise UsageError(
            "transactional.id: this command does not use transactions; remove the property"
        )
    interrupts = Interrupts()
    bad = BadRecords(
        options.skip_bad, lambda text: meter.warn(text), "; --skip-bad skips such lines"
    )
    source = Input(
        files or (STANDARD_INPUT,),
        bad,
        interrupts,
        _delimiter("-D", options.delimiter) or b"\n",
        _delimiter("-K", options.key_delimiter),
        _delimiter("--header-delimiter", options.header_delimiter),
        options.key_column,
        options.value_column,
        skips_empty=options.null,
    )
    # A bar would disturb a user who types the records.
    typed = STANDARD_INPUT in source.files and os.isatty(0)
    meter = Meter(topic, source.check(), shown=not options.quiet and not typed)
    producer = brokers.producer(**compression)
    try:
        partitions = await_topic(brokers, producer, topic)
        if options.partition is not None and options.partition not in partitions:
            raise UsageError(
                f"-p: topic {topic!r} has no partition {options.partition}; "
                f"the last is {partitions[-1]}"
            )
        # After all checks, because this may register schemas.
        source.writers = open_writers(topic, forms, schemas, registry)
        if source.writers is not None:
            overrides = overrides._replace(key=_encoded(overrides.key, source.writers, options))
        brokers.tell = meter.warn
        sender = ChunkSender(producer, topic, meter, interrupts, overrides)
        source.meanwhile = sender.settle
        with interrupts, meter:
            try:
                status = _send_all(sender, _chunks(source, options), options, interrupts)
            except KeyboardInterrupt:
                producer.purge()  # fails the records, so that their lines are reported
                sender.finish()
                status = Status.INTERRUPTED
        _sum_up(sender, bad, options.quiet)
        return status
    except BaseException:
        producer.purge()  # or the close would wait for the records
        raise
    finally:
        producer.close()


def _check(options: ProduceOptions) -> None:
    if options.json + options.csv + options.whole > 1:
        raise UsageError("use only one of --json, --csv and --whole")
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
            raise UsageError(
                f"{name} cannot be combined with this format; see cykafka produce --help"
            )
    if options.key is not None and (options.key_delimiter or options.key_column):
        raise UsageError("-k is the key of all records; remove --key-delimiter or --key-column")


def _check_formats(options: ProduceOptions, schemas: SchemaOptions, url: str | None) -> None:
    forms = [form for form in _forms(options) if form is not None]
    if options.csv and forms:
        raise UsageError("--csv has only texts: remove --value-format and --key-format")
    if url is not None and not any(schemas.needs_registry(form) for form in forms):
        raise UsageError(
            "--schema-registry needs --value-format or --key-format avro or protobuf, or json "
            "with --schema or --subject"
        )


def _forms(options: ProduceOptions) -> tuple[ValueFormat | None, ValueFormat | None]:
    key, value = options.key_format, options.value_format
    return ValueFormat.parse("key", key), ValueFormat.parse("value", value)


def _delimiter(name: str, text: str | None) -> bytes | None:
    found = delimiter(name, text)
    if found is not None and not found:
        raise UsageError(f"{name}: the delimiter is empty")
    return found


def _overrides(options: ProduceOptions) -> Overrides:
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
    return Overrides(
        key,
        headers,
        options.partition,
        timestamp,
        options.null,
        options.any_partition,
        options.keep_topic,
    )


def _encoded(key: bytes | None, writers: Writers, options: ProduceOptions) -> bytes | None:
    """Return the key of all records."""
    try:
        return writers.encode(Parts(key), skips_empty=options.null).key
    except ValueError as error:
        raise UsageError(f"-k: {error}") from None


def _chunks(source: Input, options: ProduceOptions) -> Iterator[Chunk]:
    if options.json:
        return source.ndjson()
    if options.csv:
        return source.csv()
    return source.whole() if options.whole else source.lines()


def _send_all(
    sender: ChunkSender, chunks: Iterator[Chunk], options: ProduceOptions, interrupts: Interrupts
) -> int:
    """Send everything; return the command's status so far."""
    failure: Failed | KafkaException | None = None
    chunks = limit_records(chunks, options.count)
    if options.rate is not None:
        chunks = _paced(chunks, options.rate, sender.pause)
    try:
        for chunk in chunks:
            sender.send(chunk)
            if interrupts.requested:
                break
    except (Failed, KafkaException) as error:
        failure = error  # still send the records read before it
    sender.finish()
    if interrupts.requested:
        sender.meter.warn(f"interrupted after {sender.last or 'no record'}")
        return Status.INTERRUPTED
    if failure is not None:
        sender.meter.warn(reason(failure))
        return failure.status if isinstance(failure, Failed) else Status.FAILED
    return Status.FAILED if sender.meter.errors else Status.OK


def _paced(
    chunks: Iterator[Chunk], rate: float, pause: Callable[[float], bool]
) -> Iterator[Chunk]:
    step = max(int(rate / _BEATS), 1)
    due = time.monotonic()
    for chunk in chunks:
        for start in range(0, len(chunk.lines), step):
            part = chunk.part(start, start + step)
            due = max(due, time.monotonic() - 1 / _BEATS)  # no burst after the input paused
            if not pause(due - time.monotonic()):
                return
            yield part
            due += len(part.lines) / rate


def _sum_up(sender: ChunkSender, bad: BadRecords, quiet: bool) -> None:
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
