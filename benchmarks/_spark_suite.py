"""The cases of the Spark benchmark: their contenders, settings and targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from _figures import Result, Spread, differences, ratios

JVM, OURS = "kafka", "cykafka"
TCP, UNIX, DAEMON, ONE, NONE = "TCP", "Unix sockets", "cykafka.spark.daemon", "one core", "none"
SESSIONS: dict[str, dict[str, str]] = {
    TCP: {"spark.master": "local[2]", "spark.python.unix.domain.socket.enabled": "false"},
    UNIX: {"spark.master": "local[2]", "spark.python.unix.domain.socket.enabled": "true"},
    DAEMON: {
        "spark.master": "local[2]",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.daemon.module": "cykafka.spark.daemon",
    },
    ONE: {"spark.master": "local[1]", "spark.python.unix.domain.socket.enabled": "true"},
}
"""The settings of each session. All sessions live during the whole run; one works at a time."""

BASE = {
    "spark.app.name": "cykafka-benchmark",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Longer than the start of a process on a busy machine.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}

WARM_UPS = 3
"""Unmeasured rounds. Java is slow until it has compiled hot code."""
PARTITIONS = 8
"""Partitions of the topics to read and to write."""
SCALE_PARTITIONS = (1, 2, 8, 32, 128)
SHARED = {"maxRecordsPerSharedTask": "60000"}
"""Options for many partitions. The JVM connector ignores them."""
PLANNED_PARTITIONS = (100, 1_000, 10_000)
VALUE_SIZE, KEY_SIZE = 100, 8
JOB_OFFSETS = 2_000_000
"""The default of the jobs for maxOffsetsPerTrigger."""
CODEC = "zstd"
"""The codec of the Parquet files; the default of the job `archive`."""
STREAM_BATCHES = 40
"""Micro-batches of a run. The first ten are not counted."""
BATCH_ROWS = 2
"""Rows of a micro-batch."""
ACTIONS = ("isEmpty()", "count()", "write")
"""The actions of a foreachBatch."""
ACTION_ROWS = (BATCH_ROWS, 5_000, 100_000)
"""Rows of its micro-batches; more than two rows come from all partitions."""
WITH_ACTIONS: dict[str, tuple[str, str, dict[str, str], bool]] = {
    "JVM connector": (UNIX, JVM, {}, False),
    "JVM connector, persist()": (UNIX, JVM, {}, True),
    "cykafka": (UNIX, OURS, {}, False),
    "cykafka with its daemon": (DAEMON, OURS, {}, False),
    "cykafka, persist()": (UNIX, OURS, {}, True),
    "cykafka, readOn=driver": (UNIX, OURS, {"readOn": "driver"}, False),
}
"""By name: session, source, options, and whether the function of foreachBatch persists."""

VALUE_ONLY = "value binary"
NEW_TOPIC = "TOPIC"
"""In a command: the name of a new topic."""

# Settings that give Java's producer batches like librdkafka's. Its defaults for the first two are
# 0 and 16,384.
# The settings of the cases that give both connectors the same.
SAME = {"kafka.linger.ms": "5", "kafka.batch.size": "262144"}

TUNED = {"kafka.linger.ms": "5", "kafka.batch.size": "1000000", "kafka.buffer.memory": "268435456"}


@dataclass(frozen=True)
class Place:
    """The topics and amounts of the cases.

    Attributes
    ----------
    servers : str
    topics : dict of int to str
        Topics to read, by their number of partitions.
    stream_topic : str
        A topic with one partition and enough records for a stream.
    rows : int
        Rows in each of `topics`.
    batches : int
        Micro-batches of a run.
    """

    servers: str
    topics: dict[int, str]
    stream_topic: str
    rows: int
    batches: int


Command = dict[str, Any]


@dataclass(frozen=True)
class Contender:
    """One line of a case's table.

    Attributes
    ----------
    name : str
    session : str
        A key of SESSIONS, or NONE.
    command : callable
        Returns the session's command. NEW_TOPIC in it becomes the name of a new topic.
    source : str
        JVM, OURS, or another label. It sets the color.
    """

    name: str
    session: str
    command: Callable[[Place], Command]
    source: str


@dataclass(frozen=True)
class Target:
    """A figure that compares two contenders in the same round, and its limit."""

    text: str
    own: str
    other: str
    compute: Callable[[list[float], list[float]], list[float]]
    limit: float
    least: bool
    unit: str = ""
    judged: bool = True

    def figure(self, values: dict[str, list[float]]) -> Spread:
        return Spread.of(self.compute(values[self.own], values[self.other]))

    def verdict(self, figure: Spread) -> str:
        if not self.judged:
            return "not judged"
        good = figure.median >= self.limit if self.least else figure.median <= self.limit
        met = "met" if good else "MISSED"
        close = figure.lower < self.limit < figure.upper
        return f"{met}, within the noise" if close else met

    @property
    def goal(self) -> str:
        return f"{'at least' if self.least else 'at most'} {self.limit:g}{self.unit}"


@dataclass(frozen=True)
class Case:
    """A case: a table and a panel of the chart."""

    name: str
    title: str
    unit: str
    contenders: tuple[Contender, ...]
    value: Callable[[Result], float]
    targets: tuple[Target, ...] = ()
    quick: bool = True
    curve: bool = field(default=False)
    """Whether the chart draws lines over the number of partitions."""
    partitions: int = PARTITIONS
    """Partitions of the topics that it writes."""


def rate(result: Result) -> float:
    """Thousands of rows per s."""
    return result["rows"] / result["wall"] / 1000


def batch_ms(result: Result) -> float:
    return result["batch_ms"]


def plan_ms(result: Result) -> float:
    return result["plan_ms"]


def times(text: str, own: str, other: str, limit: float, judged: bool = True) -> Target:
    return Target(text, own, other, ratios, limit, least=True, unit="x", judged=judged)


def _to_jvm(limit: float) -> tuple[Target, Target]:
    """The ratio to the JVM connector's rate, by Unix domain sockets and by TCP."""
    return (
        times("rate to the JVM connector's", "cykafka", "JVM connector", limit),
        times("the same by TCP", "cykafka, TCP", "JVM connector", limit, judged=False),
    )


def _source(place: Place, topic: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": place.servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }


def _read(
    what: str,
    source: str,
    partitions: int = PARTITIONS,
    given: dict[str, str] | None = None,
    **more: Any,
) -> Any:
    def command(place: Place) -> Command:
        options = {**_source(place, place.topics[partitions]), **(given or {})}
        return {"do": what, "source": source, "options": options, **more}

    return command


def _sink(
    source: str, tuned: dict[str, str] | None = None, tasks: int = 2, **records: Any
) -> Callable[[Place], Command]:
    def command(place: Place) -> Command:
        options = {"kafka.bootstrap.servers": place.servers, "topic": NEW_TOPIC, **(tuned or {})}
        rows = {"rows": place.rows, "tasks": tasks, **records}
        return {"do": "sink", "source": source, "options": options, **rows}

    return command


def _rows_alone(tasks: int = 2, sink: str = "noop", **records: Any) -> Callable[[Place], Command]:
    return lambda place: {
        "do": "rows_alone",
        "sink": sink,
        "rows": place.rows,
        "tasks": tasks,
        **records,
    }


def _sink_of_texts(name: str, title: str, partitions: int = 1, **records: Any) -> Case:
    """Four tasks on two cores, the same settings for both."""
    records = {"tasks": 4, **records}
    return Case(
        name,
        title,
        "thousand rows/s",
        (
            *_three(lambda source: _sink(source, SAME, **records)),
            Contender("the rows alone", UNIX, _rows_alone(**records), "spark"),
            Contender("rows to Python", UNIX, _rows_alone(sink="empty", **records), "empty"),
        ),
        rate,
        _to_jvm(1.3),
        quick=False,
        partitions=partitions,
    )


def _archive_job(names: str = "spark") -> Callable[[Place], Command]:
    def command(place: Place) -> Command:
        keys = {**_job_keys(place), "compression": CODEC, "file_names": names}
        return {"do": "archive_job", "keys": keys}

    return command


def _job_keys(place: Place) -> dict[str, str]:
    return {"kafka.bootstrap.servers": place.servers, "topics": place.topics[PARTITIONS]}


def _job(name: str, **keys: str) -> Callable[[Place], Command]:
    return lambda place: {"do": "job", "name": name, "keys": {**_job_keys(place), **keys}}


def _replay_job(place: Place) -> Command:
    keys = {"kafka.bootstrap.servers": place.servers, "to": NEW_TOPIC}
    return {"do": "replay_job", "options": _source(place, place.topics[PARTITIONS]), "keys": keys}


def _copy(do: str, source: str) -> Callable[[Place], Command]:
    """A connector's source and sink together."""

    def command(place: Place) -> Command:
        options = {**_source(place, place.topics[PARTITIONS]), "includeHeaders": "true"}
        if do == "mirror":
            options["maxOffsetsPerTrigger"] = str(JOB_OFFSETS)
        sink = {
            "kafka.bootstrap.servers": place.servers,
            "topic": NEW_TOPIC,
            "includeHeaders": "true",
        }
        return {"do": do, "source": source, "options": options, "sink": sink}

    return command


def _archive_stream(source: str) -> Callable[[Place], Command]:
    def command(place: Place) -> Command:
        options = {
            **_source(place, place.topics[PARTITIONS]),
            "includeHeaders": "true",
            "maxOffsetsPerTrigger": str(JOB_OFFSETS),
        }
        return {"do": "archive_stream", "source": source, "options": options, "codec": CODEC}

    return command


def _stream(
    source: str,
    *actions: str,
    rows: int = BATCH_ROWS,
    more: dict[str, str] | None = None,
    persist: bool = False,
) -> Callable[[Place], Command]:
    def command(place: Place) -> Command:
        topic, batches = place.stream_topic, place.batches
        if rows != BATCH_ROWS:
            topic, batches = place.topics[PARTITIONS], min(batches, place.rows // rows)
        options = {**_source(place, topic), "maxOffsetsPerTrigger": str(rows), **(more or {})}
        return {"do": "stream", "source": source, "options": options,
                "batches": batches, "actions": actions, "persist": persist}  # fmt: skip

    return command


def _three(make: Callable[[str], Any]) -> tuple[Contender, ...]:
    return (
        # In the session of "cykafka", because Java has then compiled as much for both.
        Contender("JVM connector", UNIX, make(JVM), JVM),
        Contender("cykafka, TCP", TCP, make(OURS), OURS),
        Contender("cykafka", UNIX, make(OURS), OURS),
    )


def _plan(kind: str, partitions: int) -> Callable[[Place], Command]:
    return lambda _: {"do": "plan", "kind": kind, "partitions": partitions}


def _scale() -> tuple[Contender, ...]:
    return tuple(
        Contender(f"{name}, {count}", session, _read("noop", source, count, SHARED), source)
        for name, session, source in (
            ("JVM connector", UNIX, JVM),
            ("cykafka", UNIX, OURS),
            ("JVM connector, one core", ONE, JVM),
            ("cykafka, one core", ONE, OURS),
        )
        for count in SCALE_PARTITIONS
    )


CASES: tuple[Case, ...] = (
    Case(
        "read",
        "a topic to noop, all columns",
        "thousand rows/s",
        (
            *_three(lambda source: _read("noop", source)),
            Contender("cykafka, value alone", UNIX, _read("noop", OURS, schema=VALUE_ONLY), OURS),
        ),
        rate,
        _to_jvm(2.0),
    ),
    Case(
        "sum",
        "sum(length(value)) of a topic",
        "thousand rows/s",
        (
            *_three(lambda source: _read("sum", source)),
            Contender("cykafka, value alone", UNIX, _read("sum", OURS, schema=VALUE_ONLY), OURS),
        ),
        rate,
        (
            *_to_jvm(2.0),
            times(
                "with .schema() as projection",
                "cykafka, value alone",
                "JVM connector",
                2.0,
                judged=False,
            ),
        ),
    ),
    Case(
        "sink",
        "rows with keys to a topic, each connector's own settings",
        "thousand rows/s",
        (
            *_three(_sink),
            Contender("JVM connector, batches of 1 MB", UNIX, _sink(JVM, TUNED), JVM),
            Contender("the rows alone", UNIX, _rows_alone(), "spark"),
        ),
        rate,
        (
            *_to_jvm(1.3),
            times(
                "to the JVM connector's with batches of 1 MB",
                "cykafka",
                "JVM connector, batches of 1 MB",
                1.3,
                judged=False,
            ),
        ),
    ),
    _sink_of_texts(
        "sink_texts", "texts with keys to a topic of 1 partition, 4 tasks", value_size=100
    ),
    _sink_of_texts(
        "sink_large", "values of 1 kB to a topic of 1 partition, 4 tasks", value_size=1000
    ),
    _sink_of_texts(
        "sink_20",
        "texts with keys to a topic of 20 partitions, 4 tasks",
        partitions=20,
        value_size=100,
    ),
    _sink_of_texts(
        "sink_headers",
        "texts with keys and a header to a topic of 1 partition, 4 tasks",
        value_size=100,
        headers=True,
    ),
    Case(
        "archive",
        f"a topic to Parquet ({CODEC}), all columns",
        "thousand rows/s",
        (
            *_three(lambda source: _read("archive", source, codec=CODEC)),
            Contender("cykafka, job archive", UNIX, _archive_job(), OURS),
        ),
        rate,
        (
            *_to_jvm(1.3),
            times(
                "by the job, with headers, exactly once",
                "cykafka, job archive",
                "JVM connector",
                1.3,
                judged=False,
            ),
        ),
    ),
    Case(
        "archive_stream",
        f"a topic to Parquet ({CODEC}) by topic and date, a stream to its end",
        "thousand rows/s",
        (
            Contender("JVM connector", UNIX, _archive_stream(JVM), JVM),
            Contender("cykafka", UNIX, _archive_stream(OURS), OURS),
            Contender("job archive", UNIX, _archive_job(), OURS),
            Contender("job archive, deterministic", UNIX, _archive_job("deterministic"), OURS),
        ),
        rate,
        tuple(
            times(f"{name} to the JVM connector", name, "JVM connector", 1.5)
            for name in ("job archive", "job archive, deterministic")
        ),
        quick=False,
    ),
    Case(
        "mirror",
        "a topic to another one, headers included, a stream to its end",
        "thousand rows/s",
        (
            Contender("JVM connector", UNIX, _copy("mirror", JVM), JVM),
            Contender("cykafka", UNIX, _copy("mirror", OURS), OURS),
            Contender(
                "job mirror", UNIX, _job("mirror", to=NEW_TOPIC, source_headers="false"), OURS
            ),
            Contender("job mirror, trace headers", UNIX, _job("mirror", to=NEW_TOPIC), OURS),
        ),
        rate,
        (
            times("job mirror to the JVM connector", "job mirror", "JVM connector", 1.3),
            times("a plain copy to the JVM connector's", "cykafka", "JVM connector", 1.3),
        ),
        quick=False,
    ),
    Case(
        "replay",
        f"Parquet ({CODEC}) to a topic, headers included",
        "thousand rows/s",
        (
            Contender("JVM connector", UNIX, _copy("replay", JVM), JVM),
            Contender("cykafka", UNIX, _copy("replay", OURS), OURS),
            Contender("job replay", UNIX, _replay_job, OURS),
        ),
        rate,
        (
            times("job replay to the JVM connector", "job replay", "JVM connector", 1.3),
            times("a plain copy to the JVM connector's", "cykafka", "JVM connector", 1.3),
        ),
        quick=False,
    ),
    Case(
        "profile",
        "the numbers of the job profile",
        "thousand rows/s",
        (
            Contender("JVM connector", UNIX, _read("profile", JVM), JVM),
            Contender("cykafka", UNIX, _read("profile", OURS), OURS),
            Contender("job profile", UNIX, _job("profile", sample="0"), OURS),
        ),
        rate,
        (times("job profile to the JVM connector", "job profile", "JVM connector", 2.0),),
        quick=False,
    ),
    Case(
        "micro_batch",
        f"a micro-batch of {BATCH_ROWS} rows to noop, checkpoint and all",
        "ms",
        (
            Contender("JVM connector", UNIX, _stream(JVM), JVM),
            Contender("empty Python source, TCP", TCP, _stream("empty"), "empty"),
            Contender("cykafka, TCP", TCP, _stream(OURS), OURS),
            Contender("empty Python source", UNIX, _stream("empty"), "empty"),
            Contender("cykafka", UNIX, _stream(OURS), OURS),
        ),
        batch_ms,
        (
            Target(
                "above the empty Python source",
                "cykafka",
                "empty Python source",
                differences,
                40.0,
                least=False,
                unit=" ms",
            ),
            Target(
                "the same by TCP",
                "cykafka, TCP",
                "empty Python source, TCP",
                differences,
                40.0,
                least=False,
                unit=" ms",
                judged=False,
            ),
        ),
    ),
    Case(
        "actions",
        f"a micro-batch whose foreachBatch has {len(ACTIONS)} actions",
        "ms",
        tuple(
            Contender(
                f"{name}, {rows:,} rows",
                session,
                _stream(source, *ACTIONS, rows=rows, more=more, persist=persist),
                source,
            )
            for rows in ACTION_ROWS
            for name, (session, source, more, persist) in WITH_ACTIONS.items()
        ),
        batch_ms,
        tuple(
            Target(
                f"{name} to the JVM connector, {rows:,} rows",
                f"{name}, {rows:,} rows",
                f"JVM connector, {rows:,} rows",
                ratios,
                1.0,
                least=False,
                unit="x",
                judged=False,
            )
            for rows in ACTION_ROWS
            for name in WITH_ACTIONS
            if name != "JVM connector"
        ),
        quick=False,
    ),
    Case(
        "partitions",
        "a topic to noop by its number of partitions, on two cores and on one",
        "thousand rows/s",
        _scale(),
        rate,
        quick=False,
        curve=True,
    ),
    Case(
        "planning",
        "offsets to tasks on the driver, by the number of partitions (brokers simulated)",
        "ms",
        tuple(
            Contender(f"{kind}, {count}", NONE, _plan(kind, count), source)
            for kind, source in (("batch", "empty"), ("micro-batch", OURS))
            for count in PLANNED_PARTITIONS
        ),
        plan_ms,
        curve=True,
    ),
)


_READING = ("read", "sum", "archive", "archive_stream", "mirror", "replay", "profile", "actions")


def partitions_of(cases: list[Case]) -> list[int]:
    """The numbers of partitions of the topics that the cases read."""
    counts = set()
    for case in cases:
        if case.name == "partitions":
            counts |= set(SCALE_PARTITIONS)
        elif case.name in _READING:
            counts.add(PARTITIONS)
    return sorted(counts)
