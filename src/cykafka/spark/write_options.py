"""What a writer was asked for: its options, and which columns it writes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from cykafka.spark.client import ClientConfig, client_config

__all__ = ["TransactionOptions", "WriteOptions", "write_options"]

# What the sources give and nobody can write: a DataFrame that was read is written back as it is.
_READ_ONLY = ("offset", "timestampType")
_COLUMNS = ("key", "value", "topic", "partition", "headers", "timestamp")
_OPTIONS = (
    "topic",
    "includeHeaders",
    "includeTimestamp",
    "transactional",
    "transactionalIdPrefix",
)
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")

# As the JVM's producer; librdkafka would take 5 minutes.
_DELIVERY_TIMEOUT_MS = 120_000
# What a task's records may take while they wait: librdkafka's own default, 1 GiB, is more than
# clusters leave to Python beside the JVM.
_QUEUE_KBYTES = 65_536
# How many of them wait or are in flight. What was made last is then still in the processor's cache
# when it is sent and acknowledged: a third of the producer's time for records of 100 bytes.
_QUEUE_RECORDS = 20_000
# Who lets records linger for longer than this, ms, wants them to gather: librdkafka's default.
_LINGER_MS = 20.0
_QUEUE_RECORDS_LINGERING = 100_000
# How long a task may take: its records are read by nobody longer than this after a crash.
_TRANSACTION_TIMEOUT_MS = 300_000


@dataclass(frozen=True)
class TransactionOptions:
    """How tasks of a stream write in transactions."""

    prefix: str


@dataclass(frozen=True)
class WriteOptions:
    """How tasks write. Pickled to them; `config` does not print its secrets.

    Attributes
    ----------
    config : ClientConfig
        librdkafka's, of the producers.
    topic : str or None
        Of all records; None: the column ``topic`` has it.
    key, partition, headers, timestamp : str or None
        The columns; None: there is none, or it is not to be written.
    transaction : TransactionOptions or None
    """

    config: ClientConfig
    topic: str | None
    key: str | None
    partition: str | None
    headers: str | None
    timestamp: str | None
    transaction: TransactionOptions | None = None


def write_options(options: Mapping[str, str], schema: StructType, stream: bool) -> WriteOptions:
    """Check the options and the schema of a query that writes.

    Parameters
    ----------
    options : mapping of str to str
        Spark's; keys in any case.
    schema : pyspark.sql.types.StructType
        Of what is written.
    stream : bool
        Whether it is a stream.

    Raises
    ------
    ValueError
        It names the option or the column at fault, and what was expected.
    """
    given = {key.lower(): value for key, value in options.items() if value is not None}
    _check_names(given)
    topic = _topic(given)
    transaction = _transaction(given, stream)
    columns = _columns(schema, topic)
    defaults = {
        "delivery.timeout.ms": str(_DELIVERY_TIMEOUT_MS),
        "queue.buffering.max.kbytes": str(_QUEUE_KBYTES),
        "queue.buffering.max.messages": str(_QUEUE_RECORDS),
    }
    config = client_config(given, role="sink", defaults=defaults)
    _check_queue(config, given)
    if transaction is not None:
        _transactional_config(config, given)
    headers = _flag(given, "includeHeaders", True) and "headers" in columns
    timestamp = _flag(given, "includeTimestamp", False)
    if timestamp and "timestamp" not in columns:
        raise ValueError("option includeTimestamp is true, and there is no column timestamp")
    return WriteOptions(
        config,
        topic,
        "key" if "key" in columns else None,
        "partition" if "partition" in columns else None,
        "headers" if headers else None,
        "timestamp" if timestamp else None,
        transaction,
    )


# -- options


def _check_names(given: Mapping[str, str]) -> None:
    # Spark's own options, and those of a source given to both, are among them: only what looks
    # like one of ours is taken for a mistake.
    known = {name.lower(): name for name in _OPTIONS}
    for key in given:
        if key in known or key.startswith("kafka."):
            continue
        close = difflib.get_close_matches(re.sub(r"[._-]", "", key), known, 1, 0.85)
        if close:
            raise ValueError(f'option {key} is unknown; did you mean "{known[close[0]]}"?')


def _topic(given: Mapping[str, str]) -> str | None:
    topic = given.get("topic")
    if topic is not None and (not _TOPIC.fullmatch(topic) or topic in (".", "..")):
        raise ValueError(
            f'option topic: "{topic}" is no name of a topic; expected up to 249 of the characters '
            "a-z, A-Z, 0-9, '.', '_' and '-'"
        )
    return topic


def _check_queue(config: ClientConfig, given: Mapping[str, str]) -> None:
    """`queue.buffering.max.messages`: the sink goes by it, too."""
    name = "queue.buffering.max.messages"
    text = config[name].strip()
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f'option kafka.{name}: expected a whole number, got "{text}"')
    config[name] = str(int(text))
    if f"kafka.{name}" not in given and _lingers(config.get("linger.ms", "0")):
        config[name] = str(_QUEUE_RECORDS_LINGERING)


def _lingers(text: str) -> bool:
    try:
        return float(text) > _LINGER_MS
    except ValueError:
        return False  # librdkafka says what is wrong with it


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() in ("true", "false"):
        return text.strip().lower() == "true"
    raise ValueError(f'option {name}: expected true or false, got "{text}"')


def _transaction(given: Mapping[str, str], stream: bool) -> TransactionOptions | None:
    prefix = given.get("transactionalidprefix", "").strip()
    if not _flag(given, "transactional", False):
        if prefix:
            raise ValueError("option transactionalIdPrefix is given without transactional=true")
        return None
    if not stream:
        raise ValueError(
            "option transactional is for streams: a batch has no number by which it would be "
            "known when it is written again"
        )
    if not prefix:
        raise ValueError(
            "option transactionalIdPrefix is missing, which transactional=true needs: the names "
            "of the producers and groups of this query begin with it"
        )
    return TransactionOptions(prefix)


def _transactional_config(config: ClientConfig, given: Mapping[str, str]) -> None:
    if config.get("enable.idempotence", "false").strip().lower() != "true":
        raise ValueError(
            "option transactional wants an idempotent producer: leave out kafka.acks, .retries, "
            ".enable.idempotence and .max.in.flight.requests.per.connection"
        )
    config.setdefault("transaction.timeout.ms", str(_TRANSACTION_TIMEOUT_MS))
    timeout = config["transaction.timeout.ms"].strip()
    asked = {"kafka.delivery.timeout.ms", "kafka.message.timeout.ms"} & given.keys()
    if not asked and timeout.isdigit():
        # librdkafka refuses one that is longer.
        config["delivery.timeout.ms"] = str(min(_DELIVERY_TIMEOUT_MS, int(timeout)))


# -- columns


def _columns(schema: StructType, topic: str | None) -> set[str]:
    names = [field.name for field in schema.fields]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f'there are several columns "{name}": one is expected')
        meant = None if name in _COLUMNS or name in _READ_ONLY else _near_miss(name)
        if meant is not None:
            raise ValueError(
                f'the column "{name}" cannot be written (did you mean "{meant}"?); columns are '
                f"{', '.join(_COLUMNS)}: rename it, drop it, or put it into value or headers"
            )
    if "value" not in names:
        raise ValueError(f"there is no column value, which is required; columns: {_told(names)}")
    if topic is None and "topic" not in names:
        raise ValueError(
            "no topic: give the option topic, or a column topic that has it for each row"
        )
    for field in schema.fields:
        wanted = _wanted(field.name, field.dataType)
        if wanted is not None:
            raise ValueError(
                f"the column {field.name} is of type {field.dataType.simpleString()}; expected "
                f"{wanted}: cast it"
            )
    return set(names)


def _wanted(name: str, kind: DataType) -> str | None:
    """The type a column must have, if this is another one."""
    if name in ("key", "value"):
        return None if isinstance(kind, (StringType, BinaryType)) else "string or binary"
    if name == "topic":
        return None if isinstance(kind, StringType) else "string"
    if name == "partition":
        return None if isinstance(kind, IntegerType) else "int"
    if name == "headers":
        return None if _are_headers(kind) else "array<struct<key:string,value:binary>>"
    if name == "timestamp":
        good = isinstance(kind, (TimestampType, LongType))
        return None if good else "timestamp, or bigint (ms since the epoch)"
    return None


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = {field.name: field.dataType for field in kind.elementType.fields}
    return (
        len(kind.elementType.fields) == 2
        and fields.keys() == {"key", "value"}
        and isinstance(fields["key"], StringType)
        and isinstance(fields["value"], (BinaryType, StringType))
    )


def _near_miss(name: str) -> str | None:
    """The column that may have been meant by one that would be left alone."""
    close = difflib.get_close_matches(name.lower(), _COLUMNS, 1, 0.8)
    return close[0] if close else None


def _told(names: list[str]) -> str:
    return ", ".join(names) or "none"
