"""The options of the source: checked once, then plain values.

Names and rules are those of Spark's own Kafka connector. Errors spell an option as that
connector's documentation does. This module uses neither Spark nor a broker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

from cykafka.internal import did_you_mean
from cykafka.spark.client import ClientConfig, client_config
from cykafka.spark.offsets import (
    EARLIEST,
    LATEST,
    Offsets,
    Partition,
    parse_offsets,
    parse_partitions,
)

__all__ = ["DRIVER_RECORDS", "MOST_DRIVER_RECORDS", "READ_OPTIONS", "SHARED_RECORDS", "Bound",
           "ReadOptions", "Topics"]  # fmt: skip

T = TypeVar("T")
Mode: TypeAlias = Literal["batch", "stream"]

# In the spelling of the documentation; Spark passes the names in lower case.
READ_OPTIONS = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxRecordsPerSharedTask",
    "maxRecordsOnDriver",
    "groupIdPrefix",
    "includeHeaders",
    "commitGroup",
    "pushdown",
)
# The default of maxRecordsPerSharedTask: a task that needs a new Python worker costs more than
# reading so many records.
SHARED_RECORDS = 60_000
# The default and the maximum of maxRecordsOnDriver. The default has room for
# maxOffsetsPerTrigger=50000, which is rounded up for each partition.
DRIVER_RECORDS = 60_000
MOST_DRIVER_RECORDS = 100_000

_BY_LOWER = {name.lower(): name for name in READ_OPTIONS}

# Options of Spark and of other sources that look like a misspelled option of ours.
_SPARKS = frozenset(("path", "paths", "checkpointlocation", "topic", "queryname", "outputmode"))

_STRATEGIES = ("assign", "subscribe", "subscribePattern")

_DURATION = re.compile(r"(\d+)\s*([a-z]*)")
_UNITS_MS = {
    "": 1.0,
    "us": 1e-3,
    "ms": 1.0,
    "s": 1e3,
    "m": 6e4,
    "min": 6e4,
    "h": 3.6e6,
    "d": 8.64e7,
}


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics to read: partitions, names, or a pattern that must match the whole name."""

    kind: Literal["assign", "subscribe", "subscribePattern"]
    names: tuple[str, ...] = ()
    partitions: tuple[Partition, ...] = ()
    pattern: str = ""

    def __str__(self) -> str:
        if self.kind == "subscribePattern":
            return f"{self.kind}={self.pattern}"
        if self.kind == "subscribe":
            return f"{self.kind}={','.join(self.names)}"
        return f"{self.kind}={', '.join(f'{topic} [{each}]' for topic, each in self.partitions)}"


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading starts or ends.

    ``kind`` is "earliest", "latest", "offsets" (in ``each``, -2 means earliest and -1 latest),
    "timestamp" (ms) or "timestamps" (ms for each partition, in ``each``).
    """

    kind: Literal["earliest", "latest", "offsets", "timestamp", "timestamps"]
    option: str
    each: Offsets = field(default_factory=dict)
    timestamp: int = 0


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The checked options of a read; docs/spark.md describes them."""

    topics: Topics
    kafka: ClientConfig
    start: Bound
    end: Bound
    late_start: str
    fail_on_data_loss: bool
    poll_timeout_s: float
    retries: int
    retry_interval_s: float
    max_offsets: int | None
    min_offsets: int | None
    max_delay_s: float
    min_partitions: int | None
    max_records: int | None
    max_shared: int
    max_on_driver: int
    group_id_prefix: str
    commit_group: str | None
    pushdown: bool

    @classmethod
    def of(cls, options: Mapping[str, str], mode: Mode) -> ReadOptions:
        """Check the options of a read.

        Parameters
        ----------
        options : mapping of str to str
            All options that Spark passes, including its own.
        mode : {"batch", "stream"}

        Raises
        ------
        ValueError
            An option is wrong. The error names it, what was expected, and what to do.
        """
        given = {key.lower(): value for key, value in options.items() if value is not None}
        _check_names(given, mode)
        reader = _Reader(given)
        topics = _topics(reader)
        start = _bound(reader, "starting", EARLIEST if mode == "batch" else LATEST)
        end = _bound(reader, "ending", LATEST)
        if mode == "batch":
            _check_batch(start, end)
        least, most = reader.count("minOffsetsPerTrigger"), reader.count("maxOffsetsPerTrigger")
        if least is not None and most is not None and least > most:
            raise ValueError(
                f"option minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger, {most}"
            )
        # Spark refuses rows with headers from the driver, see prefetch.py.
        on_driver = reader.number("maxRecordsOnDriver", DRIVER_RECORDS, most=MOST_DRIVER_RECORDS)
        if reader.flag("includeHeaders", False):
            on_driver = 0
        late_start = reader.get("startingOffsetsByTimestampStrategy", _strategy, "error")
        return cls(
            topics=topics,
            kafka=client_config(given, role="source"),
            start=start,
            end=end,
            late_start=late_start,
            fail_on_data_loss=reader.flag("failOnDataLoss", True),
            poll_timeout_s=reader.number("kafkaConsumer.pollTimeoutMs", 120_000, least=1) / 1e3,
            retries=reader.number("fetchOffset.numRetries", 3),
            retry_interval_s=reader.number("fetchOffset.retryIntervalMs", 10) / 1e3,
            max_offsets=most,
            min_offsets=least,
            max_delay_s=reader.get("maxTriggerDelay", _duration_s, 900.0),
            min_partitions=reader.count("minPartitions"),
            max_records=reader.count("maxRecordsPerPartition"),
            max_shared=reader.number("maxRecordsPerSharedTask", SHARED_RECORDS, least=1),
            max_on_driver=on_driver,
            group_id_prefix=reader.get("groupIdPrefix", _word, "spark-kafka-source"),
            commit_group=reader.get("commitGroup", _word, None),
            pushdown=reader.flag("pushdown", False),
        )


class _Reader:
    """Options by their documented names, which errors use, too."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given

    def has(self, name: str) -> bool:
        return name.lower() in self.given

    def get(self, name: str, parse: Callable[[str], T], default: T) -> T:
        value = self.given.get(name.lower())
        if value is None:
            return default
        try:
            return parse(value.strip())
        except ValueError as error:
            raise ValueError(f"option {name}: {error}, got {value!r}") from None

    def number(self, name: str, default: int, *, least: int = 0, most: int | None = None) -> int:
        return self.get(name, lambda value: _whole(value, least, most), default)

    def count(self, name: str) -> int | None:
        return self.get(name, lambda value: _whole(value, 1), None)

    def flag(self, name: str, default: bool) -> bool:
        return self.get(name, _flag, default)


def _whole(value: str, least: int, most: int | None = None) -> int:
    number = int(value) if re.fullmatch(r"\+?[0-9]{1,18}", value) else -1
    if number < least or (most is not None and number > most):
        limits = f"{least} or more" if most is None else f"{least} to {most}"
        raise ValueError(f"expected a whole number, {limits}")
    return number


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return value.lower() == "true"


def _strategy(value: str) -> str:
    if value.lower() not in ("error", "latest"):
        raise ValueError("expected error or latest")
    return value.lower()


def _word(value: str) -> str:
    if not value:
        raise ValueError("expected a name")
    return value


def _duration_s(value: str) -> float:
    match = _DURATION.fullmatch(value.lower())
    if match is None or match[2] not in _UNITS_MS:
        raise ValueError("expected a time such as 500ms, 90s, 15m, 2h, 1d (a number alone is ms)")
    return int(match[1]) * _UNITS_MS[match[2]] / 1e3


def _check_names(given: Mapping[str, str], mode: Mode) -> None:
    for key in given:
        if key in _BY_LOWER or key in _SPARKS or key.startswith("kafka."):
            continue
        if hint := did_you_mean(key, _BY_LOWER.values(), cutoff=0.9):
            raise ValueError(f"option {key} is unknown{hint}")
    if mode == "stream":
        for name in ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"):
            if name.lower() in given:
                raise ValueError(
                    f"option {name}: a stream has no end; remove the option, or read a batch"
                )
        if given.get("pushdown", "").strip().lower() == "true":
            raise ValueError("option pushdown is for batches only: remove it from the stream")
        return
    for name in ("commitGroup", "maxRecordsOnDriver"):
        if name.lower() in given:
            raise ValueError(f"option {name} is for streams only: remove it from the batch")


def _topics(reader: _Reader) -> Topics:
    given = [name for name in _STRATEGIES if reader.has(name)]
    if len(given) != 1:
        raise ValueError(
            f"expected exactly one of the options {', '.join(_STRATEGIES)}, "
            f"got {' and '.join(given) or 'none'}"
        )
    if reader.has("assign"):
        value = reader.given["assign"]
        return Topics("assign", partitions=parse_partitions(value.strip(), "option assign"))
    if reader.has("subscribe"):
        return Topics("subscribe", names=reader.get("subscribe", _names, ()))
    return Topics("subscribePattern", pattern=reader.get("subscribePattern", _pattern, ""))


def _names(value: str) -> tuple[str, ...]:
    names = [name.strip() for name in value.split(",")]
    if not any(names):
        raise ValueError("expected topic names, separated by commas")
    return tuple(dict.fromkeys(filter(None, names)))


def _pattern(value: str) -> str:
    if not value:
        raise ValueError("expected a pattern of topic names")
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"not a regular expression ({error})") from None
    return value


def _bound(reader: _Reader, side: Literal["starting", "ending"], default: int) -> Bound:
    """Where reading starts or ends, by the first of the three options that is given."""
    name = f"{side}Timestamp"
    if reader.has(name):
        return Bound("timestamp", name, timestamp=reader.number(name, 0))
    name = f"{side}OffsetsByTimestamp"
    if reader.has(name):
        times = parse_offsets(reader.given[name.lower()].strip(), f"option {name}", lowest=0)
        return Bound("timestamps", name, times)
    name = f"{side}Offsets"
    value = reader.given.get(name.lower(), "earliest" if default == EARLIEST else "latest").strip()
    word = value.lower()
    if word == "earliest":
        return Bound("earliest", name)
    if word == "latest":
        return Bound("latest", name)
    if not value.startswith("{"):
        raise ValueError(
            f"option {name}: expected earliest, latest or offsets as JSON such as "
            f'{{"topicA":{{"0":23,"1":-1}},"topicB":{{"0":-2}}}}, got {value!r}'
        )
    return Bound("offsets", name, parse_offsets(value, f"option {name}"))


def _check_batch(start: Bound, end: Bound) -> None:
    for bound, kind, number in ((start, "latest", LATEST), (end, "earliest", EARLIEST)):
        which = [f"{topic} [{each}]" for (topic, each), at in bound.each.items() if at == number]
        if bound.kind == kind or (bound.kind == "offsets" and which):
            of = f" of {', '.join(which)}" if which else ""
            raise ValueError(
                f"option {bound.option}: a batch cannot "
                f"{'start at the latest' if kind == 'latest' else 'end at the earliest'} "
                f"offset{of}: it would have no records"
            )
