"""`kafka.*` options, as written for the JVM connector or for librdkafka, and what they mean."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal

from cykafka.internal import known_properties
from cykafka.spark.redaction import is_secret
from cykafka.spark.security import security_properties

__all__ = ["ClientConfig", "client_config"]

_PREFIX = "kafka."

# What nobody may set, and what to do instead.
_REJECTED: dict[str, str] = {
    "auto.offset.reset": "use the options startingOffsets, which says where to begin, and "
    "failOnDataLoss, which says what to do when offsets are gone",
    "enable.auto.commit": "Spark's checkpoint has the offsets; the option commitGroup mirrors "
    "them into a group",
    "interceptor.classes": "there is no JVM client to run them",
    "interceptors": "plugins set them, see kafka.plugin.library.paths",
    "key.deserializer": "keys are read as bytes: decode them with functions of Spark",
    "value.deserializer": "values are read as bytes: decode them with functions of Spark",
    "key.serializer": "keys are written as they are: encode them with functions of Spark",
    "value.serializer": "values are written as they are: encode them with functions of Spark",
    "partitioner.class": "use kafka.partitioner with one of librdkafka's (murmur2_random, the "
    "default, puts keys where the JVM client does), or the column partition",
    "partitioner.ignore.keys": "use kafka.partitioner=random",
    "transactional.id": "the sink makes its own: use the options transactional and "
    "transactionalIdPrefix",
    "transaction.two.phase.commit.enable": "librdkafka has no two-phase commit",
    "config.providers": "there is no JVM client to ask them: give the values themselves",
    "ssl.engine.factory.class": "there is no JVM client to load it: give files, by "
    "kafka.ssl.ca.location, .certificate.location and .key.location",
    "sasl.login.class": "there is no JVM client to load it",
    "sasl.login.callback.handler.class": "there is no JVM client to load it; for tokens use "
    "kafka.sasl.oauthbearer.method=oidc, .client.id, .client.secret and .token.endpoint.url",
    "sasl.client.callback.handler.class": "there is no JVM client to load it",
    "sasl.oauthbearer.jwt.retriever.class": "there is no JVM client to load it",
    "bootstrap.controllers": "use kafka.bootstrap.servers",
    "enabled_events": "it is internal",
    "default_topic_conf": "it is internal",
}

# Tuning and reporting of the JVM client, whose loss changes no result.
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

# Java's oauthbearer properties for brokers and its own check of tokens.
_ONLY_JVM_STARTS = tuple(
    f"sasl.oauthbearer.{part}."
    for part in ("jwks", "expected", "clock", "header", "jwt.validator", "scope.claim")
)


def _buffer(value: str) -> str:
    # -1 is the operating system's choice in Java, 0 is in librdkafka.
    return "0" if value.strip() == "-1" else value


def _kbytes(value: str) -> str:
    return str(max(1, int(value) // 1024))


def _socket_ms(value: str) -> str:
    return str(min(int(value), 300_000))


# Java's name: librdkafka's, and the value there.
_RENAMED: dict[str, tuple[str, Callable[[str], str]]] = {
    "buffer.memory": ("queue.buffering.max.kbytes", _kbytes),
    "fetch.max.wait.ms": ("fetch.wait.max.ms", str),
    "max.request.size": ("message.max.bytes", str),
    "receive.buffer.bytes": ("socket.receive.buffer.bytes", _buffer),
    "send.buffer.bytes": ("socket.send.buffer.bytes", _buffer),
}

# Two names of one property of librdkafka: what is given by one must not meet a default by the
# other.
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
    """librdkafka's properties; a dict whose secrets are not printed.

    Copies, and what ``|`` makes of it and other dicts, are such dicts as well; ``dict(config)``
    and ``{**config}`` are not.
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
    # Who logs in is no secret in an error, but often the half of a key.
    return is_secret(key) or key == "sasl.username"


def client_config(
    options: Mapping[str, str],
    *,
    role: Literal["source", "sink", "admin"],
    defaults: Mapping[str, str] | None = None,
) -> ClientConfig:
    """librdkafka's properties of Spark's options.

    Parameters
    ----------
    options : mapping of str to str
        All options of a query, as Spark gives them: keys in any case. Those that begin with
        ``kafka.`` count; the rest of the key is a property of the JVM client or of librdkafka.
    role : {"source", "sink", "admin"}
        What the client will be: a consumer, a producer, or neither (for metadata).
    defaults : mapping of str to str, optional
        librdkafka's properties where the options say nothing; they win over the role's own, which
        give what the JVM client would do (``isolation.level=read_uncommitted`` of a source,
        ``partitioner=murmur2_random`` and an idempotent producer of a sink).

    Returns
    -------
    ClientConfig
        A dict that does not print its secrets.

    Raises
    ------
    ValueError
        No ``kafka.bootstrap.servers``, an unknown key, one that cannot be had here, a store of
        keys only a JVM reads, or a JAAS entry that is none of PLAIN and SCRAM. It names the key,
        and no value that may be secret.

    Warns
    -----
    UserWarning
        Tuning that only the JVM client has is left out; one warning names all of it.
    """
    given = {
        key.lower()[len(_PREFIX) :]: str(value)
        for key, value in options.items()
        if key.lower().startswith(_PREFIX) and value is not None
    }
    given = {_SAME.get(key, key): value for key, value in given.items()}
    if not given.get("bootstrap.servers", "").strip():
        raise ValueError(
            'option "kafka.bootstrap.servers" is missing: give the brokers as "host:port,..."'
        )
    if "@" in given["bootstrap.servers"]:
        # librdkafka would quote it, and look for a host of that name until the records time out.
        raise ValueError(
            'option "kafka.bootstrap.servers" has an "@": user and password stand elsewhere, in '
            "kafka.sasl.username and kafka.sasl.password"
        )
    given, dropped = _translated(given, role)
    if dropped:
        names = ", ".join(_PREFIX + key for key in sorted(dropped))
        warnings.warn(
            f"only the JVM client has these options, they are ignored: {names}", stacklevel=2
        )
    config = ClientConfig(_defaults(role, given))
    config.update({_SAME.get(key, key): value for key, value in (defaults or {}).items()})
    config.update(given)
    return config


def _translated(given: dict[str, str], role: str) -> tuple[dict[str, str], list[str]]:
    """librdkafka's properties, and the keys that were left out."""
    rest, config = security_properties(given)
    dropped = []
    convert: Callable[[str], str]
    for key, value in rest.items():
        words = _REJECTED.get(key)
        if words is not None:
            raise ValueError(f"option {_PREFIX}{key} is not supported: {words}")
        if key == "request.timeout.ms" and role != "sink":
            # A property of producers in librdkafka; what waits elsewhere is the socket.
            name, convert = "socket.timeout.ms", _socket_ms
        elif key in _RENAMED:
            name, convert = _RENAMED[key]
        elif key in _ONLY_JVM or key.startswith(_ONLY_JVM_STARTS):
            dropped.append(key)
            continue
        elif key in _properties():
            name, convert = key, str
        else:
            raise ValueError(
                f"option {_PREFIX}{key}: there is no such property of librdkafka or of Kafka's "
                f"Java client{_near_miss(key)}"
            )
        if name != key and name in rest:
            continue  # given in librdkafka's words, too
        try:
            config[name] = convert(value)
        except ValueError:
            raise ValueError(f"option {_PREFIX}{key}: expected a whole number") from None
    return config, dropped


def _defaults(role: str, given: Mapping[str, str]) -> dict[str, str]:
    """What the JVM client does, where librdkafka's defaults are others."""
    if role == "source":
        return {"isolation.level": "read_uncommitted"}
    if role != "sink":
        return {}
    config = {"partitioner": "murmur2_random"}
    if "enable.idempotence" not in given and _may_be_idempotent(given):
        config["enable.idempotence"] = "true"
    return config


def _may_be_idempotent(given: Mapping[str, str]) -> bool:
    # As with the JVM client: acks, retries and max.in.flight turn it off, unless it is asked for.
    if given.get("acks", "all").strip().lower() not in ("all", "-1"):
        return False
    in_flight = given.get("max.in.flight.requests.per.connection", "5").strip()
    return given.get("retries", "1").strip() != "0" and not (
        in_flight.isdigit() and int(in_flight) > 5
    )


_known: frozenset[str] = frozenset()


def _properties() -> frozenset[str]:
    """Those of librdkafka whose values are text."""
    global _known
    if not _known:
        _known = frozenset(
            name
            for name in known_properties()
            if not name.endswith(("_cb", "_callback_data")) and name not in _NO_TEXT
        )
    return _known


# Properties that are no text: objects, and what this package sets itself.
_NO_TEXT = ("builtin.features", "delivery.report.only.error", "log.queue", "msg_order_cmp",
            "opaque", "ssl_ca", "ssl_certificate", "ssl_key")  # fmt: skip


def _near_miss(key: str) -> str:
    # The plainest name first: of those that look alike, the one most people mean.
    known = sorted(_properties() | _RENAMED.keys() | _ONLY_JVM | _SAME.keys(), key=len)
    plain = {name.replace("_", "."): name for name in reversed(known)}
    close = difflib.get_close_matches(key.replace("_", ".").replace("-", "."), plain, 1, 0.75)
    return f'; did you mean "{_PREFIX}{plain[close[0]]}"?' if close else ""
