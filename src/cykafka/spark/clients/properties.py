"""Properties for Kafka clients.

`client_config` translates ``kafka.*`` options to librdkafka's properties. The options use the
names of the JVM client or of librdkafka. `is_secret` recognizes secret options of Kafka clients,
Spark and file systems, so that logs hide them. `fit_to_memory` shrinks queues if Spark limits a
worker's memory.
"""

from __future__ import annotations

import re
import resource
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal

from cykafka.internal import did_you_mean, known_properties
from cykafka.spark.clients.security import security_properties

__all__ = ["REDACTED", "ClientConfig", "client_config", "fit_to_memory", "is_secret"]

_PREFIX = "kafka."

# Properties that no option may set, and what to do instead.
_REJECTED: dict[str, str] = {
    "auto.offset.reset": "use the options startingOffsets (where to begin) and failOnDataLoss "
    "(what to do if offsets are gone)",
    "enable.auto.commit": "Spark's checkpoint has the offsets; the option commitGroup also writes "
    "them to a consumer group",
    "interceptor.classes": "cykafka has no JVM client to run them",
    "interceptors": "plugins set them, see kafka.plugin.library.paths",
    "key.deserializer": "keys are read as bytes: decode them with Spark's functions",
    "value.deserializer": "values are read as bytes: decode them with Spark's functions",
    "key.serializer": "keys are written as they are: encode them with Spark's functions",
    "value.serializer": "values are written as they are: encode them with Spark's functions",
    "partitioner.class": "use kafka.partitioner with one of librdkafka's partitioners (the "
    "default, murmur2_random, chooses the same partitions as the JVM client), or the column "
    "partition",
    "partitioner.ignore.keys": "use kafka.partitioner=random",
    "transactional.id": "the sink chooses it: use the options transactional and "
    "transactionalIdPrefix",
    "transaction.two.phase.commit.enable": "librdkafka has no two-phase commit",
    "config.providers": "cykafka has no JVM client to run them: give the values themselves",
    "ssl.engine.factory.class": "cykafka has no JVM client to load it: give files with "
    "kafka.ssl.ca.location, .certificate.location and .key.location",
    "sasl.login.class": "cykafka has no JVM client to load it",
    "sasl.login.callback.handler.class": "cykafka has no JVM client to load it; for tokens use "
    "kafka.sasl.oauthbearer.method=oidc, .client.id, .client.secret and .token.endpoint.url",
    "sasl.client.callback.handler.class": "cykafka has no JVM client to load it",
    "sasl.oauthbearer.jwt.retriever.class": "cykafka has no JVM client to load it",
    "bootstrap.controllers": "use kafka.bootstrap.servers",
    "enabled_events": "it is internal",
    "default_topic_conf": "it is internal",
}

# The JVM client's properties for tuning and metrics. cykafka ignores them: results stay the same.
_TUNING = """
    auto.include.jmx.reporter compression.gzip.level compression.lz4.level
    compression.zstd.level default.api.timeout.ms exclude.internal.topics
    internal.throw.on.fetch.stable.offset.unsupported max.block.ms max.poll.records
    metadata.max.idle.ms metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms partition.assignment.strategy
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms
    sasl.login.retry.backoff.ms security.providers share.acknowledgement.mode
    share.acquire.mode socket.connection.setup.timeout.max.ms ssl.enabled.protocols
    ssl.keymanager.algorithm ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm
"""
_ONLY_JVM = frozenset(_TUNING.split())

# Java's oauthbearer properties for brokers, and for the JVM client's own token check.
_ONLY_JVM_STARTS = tuple(
    f"sasl.oauthbearer.{part}."
    for part in ("jwks", "expected", "clock", "header", "jwt.validator", "scope.claim")
)


def _buffer(value: str) -> str:
    # The operating system's default is -1 in Java and 0 in librdkafka.
    return "0" if value.strip() == "-1" else value


def _kbytes(value: str) -> str:
    return str(max(1, int(value) // 1024))


def _socket_ms(value: str) -> str:
    return str(min(int(value), 300_000))


# Java's name: librdkafka's name, and a function that converts the value.
_RENAMED: dict[str, tuple[str, Callable[[str], str]]] = {
    "buffer.memory": ("queue.buffering.max.kbytes", _kbytes),
    "fetch.max.wait.ms": ("fetch.wait.max.ms", str),
    "max.request.size": ("message.max.bytes", str),
    "receive.buffer.bytes": ("socket.receive.buffer.bytes", _buffer),
    "send.buffer.bytes": ("socket.send.buffer.bytes", _buffer),
}

# Aliases of librdkafka's properties. cykafka stores options and defaults under one name, so that
# an option under either name replaces the default.
_SAME = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "queue.buffering.max.ms": "linger.ms",
    "message.send.max.retries": "retries",
    "compression.codec": "compression.type",
    "request.required.acks": "acks",
    "message.timeout.ms": "delivery.timeout.ms",
}


class ClientConfig(dict[str, str]):
    """librdkafka's properties: a dict whose repr hides secrets.

    Copies and results of ``|`` are also a ClientConfig. ``dict(config)`` and ``{**config}`` return
    plain dicts, whose repr shows secrets.
    """

    def __repr__(self) -> str:
        return repr({key: "[redacted]" if _is_hidden(key) else self[key] for key in self})

    __str__ = __repr__

    def copy(self) -> ClientConfig:
        return ClientConfig(self)

    def __or__(self, other: Any) -> ClientConfig:  # type: ignore[override]
        if not isinstance(other, dict):
            return NotImplemented
        return ClientConfig({**self, **other})

    def __ror__(self, other: Any) -> ClientConfig:  # type: ignore[override]
        if not isinstance(other, dict):
            return NotImplemented
        return ClientConfig({**other, **self})


def _is_hidden(key: str) -> bool:
    # Error messages may name the user, but here the user is often one half of an API key.
    return is_secret(key) or key == "sasl.username"


def client_config(
    options: Mapping[str, str],
    *,
    role: Literal["source", "sink", "admin"],
    defaults: Mapping[str, str] | None = None,
) -> ClientConfig:
    """Convert Spark's options to librdkafka's properties.

    Parameters
    ----------
    options : mapping of str to str
        All options of a query, with keys in any case. Only keys that begin with ``kafka.`` matter.
        The rest of the key is a property of the JVM client or of librdkafka.
    role : {"source", "sink", "admin"}
        The kind of client: a consumer, a producer, or neither (for metadata).
    defaults : mapping of str to str, optional
        librdkafka's properties for keys that the options lack. They take precedence over the
        role's defaults, which match the JVM client (``isolation.level=read_uncommitted`` for a
        source, ``partitioner=murmur2_random`` and an idempotent producer for a sink).

    Returns
    -------
    ClientConfig
        A dict whose repr hides secrets.

    Raises
    ------
    ValueError
        ``kafka.bootstrap.servers`` is missing, a key is unknown or not supported, only a JVM can
        read a key store, or a JAAS entry is for neither PLAIN nor SCRAM. The message names the
        key, but never a value that may be secret.

    Warns
    -----
    UserWarning
        cykafka ignores tuning properties that only the JVM client has. One warning names them all.
    """
    given = {
        key.lower()[len(_PREFIX) :]: str(value)
        for key, value in options.items()
        if key.lower().startswith(_PREFIX) and value is not None
    }
    given = {_SAME.get(key, key): value for key, value in given.items()}
    if not given.get("bootstrap.servers", "").strip():
        raise ValueError(
            'option "kafka.bootstrap.servers" is missing: the brokers, as "host:port,..."'
        )
    if "@" in given["bootstrap.servers"]:
        # librdkafka would log the text, and resolve it as a host until the records time out.
        raise ValueError(
            'option "kafka.bootstrap.servers" has an "@": give user and password in the options '
            "kafka.sasl.username and kafka.sasl.password instead"
        )
    given, dropped = _translated(given, role)
    if dropped:
        names = ", ".join(_PREFIX + key for key in sorted(dropped))
        warnings.warn(
            f"only the JVM client has these options, so they are ignored: {names}", stacklevel=2
        )
    config = ClientConfig(_defaults(role, given))
    config.update({_SAME.get(key, key): value for key, value in (defaults or {}).items()})
    config.update(given)
    return config


def _translated(given: dict[str, str], role: str) -> tuple[dict[str, str], list[str]]:
    """Return librdkafka's properties, and the ignored keys."""
    rest, config = security_properties(given)
    dropped = []
    convert: Callable[[str], str]
    for key, value in rest.items():
        words = _REJECTED.get(key)
        if words is not None:
            raise ValueError(f"option {_PREFIX}{key} is not supported: {words}")
        if key == "request.timeout.ms" and role != "sink":
            # In librdkafka only producers have this property; other clients have a socket timeout.
            name, convert = "socket.timeout.ms", _socket_ms
        elif key in _RENAMED:
            name, convert = _RENAMED[key]
        elif key in _ONLY_JVM or key.startswith(_ONLY_JVM_STARTS):
            dropped.append(key)
            continue
        elif key in _properties():
            name, convert = key, str
        else:
            # Shortest name first: of similar names, it is most likely the intended one.
            names = sorted(_properties() | _RENAMED.keys() | _ONLY_JVM | _SAME.keys(), key=len)
            hint = did_you_mean(key, names, prefix=_PREFIX)
            raise ValueError(
                f"option {_PREFIX}{key}: no such property in librdkafka or in Kafka's Java "
                f"client{hint}"
            )
        if name != key and name in rest:
            continue  # the option with librdkafka's name takes precedence
        try:
            config[name] = convert(value)
        except ValueError:
            raise ValueError(f"option {_PREFIX}{key}: expected a whole number") from None
    return config, dropped


def _defaults(role: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the JVM client's defaults where librdkafka's differ, and defaults for short tasks."""
    if role == "admin":
        return {}
    # librdkafka waits half this time, at least 11 ms, between its first two connections: to an
    # address in bootstrap.servers, and to the broker there. By default a new worker waits 50 ms.
    config = {"reconnect.backoff.ms": "20"}
    if role == "source":
        return {**config, "isolation.level": "read_uncommitted"}
    config["partitioner"] = "murmur2_random"
    if "enable.idempotence" not in given and _may_be_idempotent(given):
        config["enable.idempotence"] = "true"
    return config


def _may_be_idempotent(given: Mapping[str, str]) -> bool:
    # As with the JVM client, acks, retries and max.in.flight turn the default off.
    if given.get("acks", "all").strip().lower() not in ("all", "-1"):
        return False
    in_flight = given.get("max.in.flight.requests.per.connection", "5").strip()
    return given.get("retries", "1").strip() != "0" and not (
        in_flight.isdigit() and int(in_flight) > 5
    )


@cache
def _properties() -> frozenset[str]:
    """Return the names of librdkafka's properties that have text values."""
    return frozenset(
        name
        for name in known_properties()
        if not name.endswith(("_cb", "_callback_data")) and name not in _NO_TEXT
    )


# Properties without a text value, or that this package sets itself.
_NO_TEXT = ("builtin.features", "delivery.report.only.error", "log.queue", "msg_order_cmp",
            "opaque", "ssl_ca", "ssl_certificate", "ssl_key")  # fmt: skip


# -- secrets

# A pattern for Python and Java's `spark.redaction.regex`, which Spark also matches against values.
REDACTED = (
    "(?i)secret|password|passphrase|passwd|token|credential|jaas|signature|access[._-]?key"
    "|account[._-]?key|private[._-]?key|api[._-]?key|keystore[.]key|key[.]pem|[._]sas([._]|$)"
    "|oauthbearer[.]config|auth[.]user[.]info"
)
_SECRET = re.compile(REDACTED)


def is_secret(key: str) -> bool:
    """Whether the value of an option, a property or an entry is secret.

    Parameters
    ----------
    key : str
        With or without prefixes (``kafka.``, ``spark.hadoop.``), in any case.
    """
    return _SECRET.search(key) is not None


# -- memory

# Bytes that a client needs besides its queues, for its threads' stacks and heaps.
_LEAST = 64 << 20
# A queue gets this fraction of the rest, because heaps are far larger than the memory in use.
_PART = 32
# Properties that limit memory: librdkafka's default, and the bytes per unit.
_LIMITS = {
    "queue.buffering.max.kbytes": (1_048_576, 1024),
    "queued.max.messages.kbytes": (65_536, 1024),
    "fetch.max.bytes": (52_428_800, 1),
}
# librdkafka refuses a smaller fetch.max.bytes.
_MESSAGE_BYTES = 1_000_000


def fit_to_memory(config: Mapping[str, str], *names: str) -> dict[str, str]:
    """Return a client's properties, with smaller queues if the process has a memory limit.

    Parameters
    ----------
    config : mapping of str to str
    names : str
        The properties that limit this kind of client's queues.

    Raises
    ------
    MemoryError
        Too little memory is left.
    """
    room = _available_memory()
    if room is None:
        return dict(config)
    if room < _LEAST:
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        raise MemoryError(
            f"this worker may use {limit >> 20} MiB (spark.executor.pyspark.memory, divided "
            f"by the cores of the executor), and only {room >> 20} MiB are left; a Kafka client "
            f"needs {_LEAST >> 20}: raise the limit by at least {(_LEAST - room >> 20) + 1} MiB"
        )
    least = int(config.get("message.max.bytes", _MESSAGE_BYTES))
    smaller = {}
    for name in names:
        default, unit = _LIMITS[name]
        most = max(room // _PART, least if name == "fetch.max.bytes" else 0) // unit
        smaller[name] = str(min(int(config.get(name, default)), most))
    return {**config, **smaller}


def _available_memory() -> int | None:
    """Return the bytes that this process may still allocate, or None without a limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[0])
    except OSError:  # not Linux
        return None
    return max(0, limit - pages * resource.getpagesize())
