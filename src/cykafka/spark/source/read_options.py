"""The source's options: checked once, then plain values.

Names and rules match Spark's own Kafka connector. Exceptions spell an option like that connector's
documentation. This module uses neither Spark nor a broker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

from cykafka.internal import did_you_mean
from cykafka.spark.clients.properties import ClientConfig, client_config
from cykafka.spark.source.offsets import (
    EARLIEST,
    LATEST,
    Offsets,
    Partition,
    parse_offsets,
    parse_partitions,
)

__all__ = ["DRIVER_RECORDS", "READ_OPTIONS", "SHARED_RECORDS", "Bound", "DataLossError",
           "ReadOptions", "Topics"]  # fmt: skip

T = TypeVar("T")
Mode: TypeAlias = Literal["batch", "stream"]

# Spelled as in the documentation; Spark passes the names in lower case.
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
    "readOn",
    "groupIdPrefix",
    "includeHeaders",
    "nullHeaders",
    "commitGroup",
    "pushdown",
)
# The default of maxRecordsPerSharedTask: a task that needs a new Python worker costs more than
# reading this many records. If each record takes 0.1 ms of work, one task needs 0.3 s for them. So
# sharing a task costs less than 0.3 s, no matter how many cores are idle.
SHARED_RECORDS = 3_000
# The default of maxOffsetsPerTrigger with readOn=driver.
DRIVER_RECORDS = 100_000

_BY_LOWER = {name.lower(): name for name in READ_OPTIONS}

# Options of Spark and of other sources that look like a misspelled cykafka option.
_SPARKS = frozenset(("path", "paths", "checkpointlocation", "topic", "queryname", "outputmode"))

_STRATEGIES = ("assign", "subscribe", "subscribePattern")

_LOSS_ADVICE = (
    "To continue without these records, set the option failOnDataLoss to false. To prevent such a "
    "loss, raise the topic's retention (retention.ms, retention.bytes) above the query's lag"
)

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


class DataLossError(RuntimeError):
    """Records at requested offsets no longer exist."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics to read: partitions, names, or a pattern that must match the whole name."""

    kind: Literal["assign", "subscribe", "subscribePattern"]
    names: tuple[str, ...] = ()
    partitions: tuple[Partition, ...] = ()
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading starts or ends.

    ``kind`` is "earliest", "latest", "offsets" (in ``numbers``, -2 means earliest and -1 latest),
    "timestamp" (ms) or "timestamps" (ms per partition, in ``numbers``).
    """

    kind: Literal["earliest", "latest", "offsets", "timestamp", "timestamps"]
    option: str
    numbers: Offsets = field(default_factory=dict)
    timestamp: int = 0


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A read's checked options; docs/spark.md describes them."""

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
    read_on: str
    group_id_prefix: str
    commit_group: str | None
    pushdown: bool
    null_headers: bool

    @classmethod
    def of(cls, options: Mapping[str, str], mode: Mode) -> ReadOptions:
        """Check a read's options.

        Parameters
        ----------
        options : mapping of str to str
            All options that Spark passes, including its own.
        mode : {"batch", "stream"}

        Raises
        ------
        ValueError
            An option is wrong. The message names the option, what was expected and what to do.
        """
        given = {key.lower(): value for key, value in options.items() if value is not None}
        _check_names(given, mode)
        reader = _OptionReader(given)
        topics = _topics(reader)
        start = _bound(reader, "starting", EARLIEST if mode == "batch" else LATEST)
        end = _bound(reader, "ending", LATEST)
        if mode == "batch":
            _check_batch(start, end)
        least, most = reader.count("minOffsetsPerTrigger"), reader.count("maxOffsetsPerTrigger")
        read_on = reader.get("readOn", _one_of("driver", "executors"), "executors")
        if read_on == "driver":
            _check_driver(reader)
            most = most or DRIVER_RECORDS
        if least is not None and most is not None and least > most:
            raise ValueError(
                f"option minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger, {most}"
            )
        reader.flag("includeHeaders", False)  # the source's schema depends on it
        strategies = _one_of("error", "latest")
        late_start = reader.get("startingOffsetsByTimestampStrategy", strategies, "error")
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
            read_on=read_on,
            group_id_prefix=reader.get("groupIdPrefix", _word, "spark-kafka-source"),
            commit_group=reader.get("commitGroup", _word, None),
            pushdown=reader.flag("pushdown", False),
            null_headers=reader.flag("nullHeaders", False),
        )

    def report_loss(self, what: str) -> None:
        """Raise DataLossError for lost records, unless failOnDataLoss is false."""
        if self.fail_on_data_loss:
            raise DataLossError(f"{what}. {_LOSS_ADVICE}")


class _OptionReader:
    """Reads options by their documented names, which exceptions also use."""

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

    def number(self, name: str, default: int, *, least: int = 0) -> int:
        return self.get(name, lambda value: _whole(value, least), default)

    def count(self, name: str) -> int | None:
        return self.get(name, lambda value: _whole(value, 1), None)

    def flag(self, name: str, default: bool) -> bool:
        return self.get(name, _one_of("true", "false"), str(default).lower()) == "true"


def _whole(value: str, least: int) -> int:
    number = int(value) if re.fullmatch(r"\+?[0-9]{1,18}", value) else -1
    if number < least:
        raise ValueError(f"expected a whole number, {least} or more")
    return number


def _one_of(one: str, other: str) -> Callable[[str], str]:
    """Return a parser that accepts one of two words."""

    def parse(value: str) -> str:
        if value.lower() not in (one, other):
            raise ValueError(f"expected {one} or {other}")
        return value.lower()

    return parse


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
    for name in ("commitGroup", "readOn"):
        if name.lower() in given:
            raise ValueError(f"option {name} is for streams only: remove it from the batch")


def _check_driver(reader: _OptionReader) -> None:
    for name in ("minPartitions", "maxRecordsPerPartition", "maxRecordsPerSharedTask"):
        if reader.has(name):
            raise ValueError(
                f"option {name} is for tasks, but with readOn=driver the driver reads each "
                f"micro-batch as a whole; remove {name}, or readOn=driver"
            )


def _topics(reader: _OptionReader) -> Topics:
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


def _bound(reader: _OptionReader, side: Literal["starting", "ending"], default: int) -> Bound:
    """Return where reading starts or ends. The first given option out of three decides."""
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
        which = [
            f"{topic} [{partition}]"
            for (topic, partition), at in bound.numbers.items()
            if at == number
        ]
        if bound.kind == kind or (bound.kind == "offsets" and which):
            of = f" of {', '.join(which)}" if which else ""
            raise ValueError(
                f"option {bound.option}: a batch cannot "
                f"{'start at the latest' if kind == 'latest' else 'end at the earliest'} "
                f"offset{of}: it would have no records"
            )
