"""A writer's options, and the columns that it writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

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

from cykafka.internal import did_you_mean, is_topic_name
from cykafka.spark.clients.properties import ClientConfig, client_config

__all__ = ["WriteOptions", "write_options"]

# The source's columns that the sink cannot write. It ignores them, so that you can write back a
# DataFrame that you read from the source.
_READ_ONLY = ("offset", "timestampType")
_COLUMNS = ("key", "value", "topic", "partition", "headers", "timestamp")
# The types of the other columns, and the type names.
_TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "key": ((StringType, BinaryType), "string or binary"),
    "value": ((StringType, BinaryType), "string or binary"),
    "topic": (StringType, "string"),
    "partition": (IntegerType, "int"),
    "timestamp": ((TimestampType, LongType), "timestamp, or bigint (ms since the epoch)"),
}
_OPTIONS = (
    "topic",
    "includeHeaders",
    "includeTimestamp",
    "transactional",
    "transactionalIdPrefix",
)

# The JVM producer's default; librdkafka's default is 5 minutes.
_DELIVERY_TIMEOUT_MS = 120_000
# The most memory for a task's records in the queue. librdkafka's own default, 1 GiB, exceeds the
# memory that clusters leave for Python beside the JVM.
_QUEUE_KBYTES = 65_536
# librdkafka's default: the most records of a task in the queue or in flight.
_QUEUE_RECORDS = 100_000
# The brokers' default limit for the records in a request. The Java producer's limit is 12 bytes
# lower. librdkafka's default, 1,000,000, is lower than the brokers'.
_MESSAGE_BYTES = 1_048_588
# How long a task may take. After a crash, its open transaction can block readers for this long.
_TRANSACTION_TIMEOUT_MS = 300_000


@dataclass(frozen=True)
class WriteOptions:
    """How tasks write. Spark pickles this object for them. Its repr hides secrets.

    Attributes
    ----------
    config : ClientConfig
        librdkafka's properties for the producers.
    topic : str or None
        One topic for all records. None: the column ``topic`` contains one per record.
    key, partition, headers, timestamp : str or None
        The column's name. None: the column does not exist or is not written.
    transaction : str or None
        The prefix of transactional ids, if a stream's tasks write in transactions.
    """

    config: ClientConfig
    topic: str | None
    key: str | None
    partition: str | None
    headers: str | None
    timestamp: str | None
    transaction: str | None = None

    @property
    def columns(self) -> list[str]:
        """The columns to write, and the column with the topics."""
        topic = "topic" if self.topic is None else None
        names = ("value", self.key, self.partition, self.headers, self.timestamp, topic)
        return [name for name in names if name is not None]


def write_options(options: Mapping[str, str], schema: StructType, stream: bool) -> WriteOptions:
    """Check the options and the schema of a query that writes.

    Parameters
    ----------
    options : mapping of str to str
        Spark's options, with keys in any case.
    schema : pyspark.sql.types.StructType
        The schema of the rows to write.
    stream : bool
        Whether the query is a stream.

    Raises
    ------
    ValueError
        An option or a column is wrong. The message names it and what was expected.
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
        "message.max.bytes": str(_MESSAGE_BYTES),
    }
    config = client_config(given, role="sink", defaults=defaults)
    _check_queue(config)
    if transaction is not None:
        _configure_transactions(config, given)
    headers = _flag(given, "includeHeaders", True) and "headers" in columns
    timestamp = _flag(given, "includeTimestamp", False)
    if timestamp and "timestamp" not in columns:
        raise ValueError("option includeTimestamp is true, but the column timestamp is missing")
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
    # The names may include Spark's own options and the source's. So only a name that is similar to
    # one of the sink's options is an error.
    known = {name.lower() for name in _OPTIONS}
    for key in given:
        if key in known or key.startswith("kafka."):
            continue
        if hint := did_you_mean(key, _OPTIONS, cutoff=0.85):
            raise ValueError(f"option {key} is unknown{hint}")


def _topic(given: Mapping[str, str]) -> str | None:
    topic = given.get("topic")
    if topic is not None and not is_topic_name(topic):
        raise ValueError(
            f'option topic: "{topic}" is not a valid topic name; expected up to 249 of the '
            "characters a-z, A-Z, 0-9, '.', '_' and '-'"
        )
    return topic


def _check_queue(config: ClientConfig) -> None:
    """Check `queue.buffering.max.messages`, because the sink also uses the number."""
    name = "queue.buffering.max.messages"
    text = config[name].strip()
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f'option kafka.{name}: expected a whole number, got "{text}"')
    config[name] = str(int(text))


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() in ("true", "false"):
        return text.strip().lower() == "true"
    raise ValueError(f'option {name}: expected true or false, got "{text}"')


def _transaction(given: Mapping[str, str], stream: bool) -> str | None:
    """Return the prefix of transactional ids, or None without transactions."""
    prefix = given.get("transactionalidprefix", "").strip()
    if not _flag(given, "transactional", False):
        if prefix:
            raise ValueError("option transactionalIdPrefix is given without transactional=true")
        return None
    if not stream:
        raise ValueError(
            "option transactional is for streams: Spark does not number batch writes, so "
            "the sink could not recognize a repeated write"
        )
    if not prefix:
        raise ValueError(
            "option transactionalIdPrefix is missing, but transactional=true needs it: the "
            "transactional ids and groups of this query begin with it"
        )
    return prefix


def _configure_transactions(config: ClientConfig, given: Mapping[str, str]) -> None:
    if config.get("enable.idempotence", "false").strip().lower() != "true":
        raise ValueError(
            "option transactional needs an idempotent producer: remove kafka.acks, .retries, "
            ".enable.idempotence and .max.in.flight.requests.per.connection"
        )
    if find_spec("xxhash") is None:
        raise ValueError(
            "option transactional needs the package xxhash on the driver and on every executor: "
            "pip install xxhash"
        )
    config.setdefault("transaction.timeout.ms", str(_TRANSACTION_TIMEOUT_MS))
    timeout = config["transaction.timeout.ms"].strip()
    asked = {"kafka.delivery.timeout.ms", "kafka.message.timeout.ms"} & given.keys()
    if not asked and timeout.isdigit():
        # librdkafka rejects a delivery timeout that is longer than the transaction's.
        config["delivery.timeout.ms"] = str(min(_DELIVERY_TIMEOUT_MS, int(timeout)))


# -- columns


def _columns(schema: StructType, topic: str | None) -> set[str]:
    names = [field.name for field in schema.fields]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f'there are several columns "{name}"; expected one')
        if name in _COLUMNS or name in _READ_ONLY:
            continue
        if hint := did_you_mean(name, _COLUMNS, cutoff=0.8):
            raise ValueError(
                f'the column "{name}" cannot be written{hint} Rename it, drop it, or put it into '
                f"value or headers. The sink writes {', '.join(_COLUMNS)}"
            )
    if "value" not in names:
        raise ValueError(
            f"the column value is missing; the columns are: {', '.join(names) or 'none'}"
        )
    if topic is None and "topic" not in names:
        raise ValueError(
            "no topic: set the option topic, or add a column topic with the topic of each row"
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
    """Return a column's expected type, or None if `kind` fits."""
    if name == "headers":
        return None if _are_headers(kind) else "array<struct<key:string,value:binary>>"
    kinds, words = _TYPES.get(name, (DataType, ""))
    return None if isinstance(kind, kinds) else words


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
