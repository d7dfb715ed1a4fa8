"""A connection's configuration, and how it becomes librdkafka properties."""

from __future__ import annotations

import functools
import socket
from collections.abc import Iterable, Mapping
from typing import Any

from pip_services4_components.config import ConfigParams

from cykafka.internal import OWN_KEYS, did_you_mean, known_properties
from pip_services4_kafka._errors import config_error, words
from pip_services4_kafka.connect._security import Secret, Secrets, is_secret, security_properties

# The syslog level for each documented log level (none, error, warn, info, debug).
LOG_LEVELS = (0, 3, 4, 6, 7)

DEFAULT_GROUP = "default"

# A message to a deleted topic fails after this time. All brokers learn of a new topic much sooner.
_TOPIC_WAIT_MS = 5000

# librdkafka checks for timed-out messages about once a second, and then reports them.
_REPORT_DELAY_MS = 2500

# The default upper bound of numbers.
MOST = 2**31 - 1

_RAW = "options.kafka"

# The whole numbers among the connection options: the least and the greatest value.
_NUMBERS = {
    "log_level": (0, 4),
    "connect_timeout": (1, MOST),
    "max_retries": (0, MOST),
    "retry_timeout": (1, 3600000),
    "request_timeout": (1, MOST),
    "num_partitions": (-1, MOST),
    "replication_factor": (-1, 32767),
}

# All documented keys of connections and queues, because a queue passes its whole configuration to
# its connection.
_TOP = words(
    "client_id topic group_id from_beginning read_partitions autocommit name id descriptor type "
    "logger level source"
)
# A queue uses these only for its own connection.
_OF_CONNECTIONS = (*_NUMBERS, "readable_partitions", "write_partition")
_OPTIONS = _OF_CONNECTIONS + words(
    "acks autosubscribe max_attempts max_pending retry_backoff retry_backoff_max dead_letter_topic"
)
_CONNECTION = words("discovery_key protocol host ip port uri ssl")
_CREDENTIAL = words(
    "store_key mechanism username user password pass token ssl ssl_ca_file ssl_crt_file "
    "ssl_key_file"
)
_SECTIONS = {
    "options": _OPTIONS,
    "connection": _CONNECTION,
    "connections": _CONNECTION,
    "credential": _CREDENTIAL,
    "credentials": _CREDENTIAL,
}
# Sections that belong to other components.
_FOREIGN = ("dependencies", "context")

_known_properties = functools.cache(known_properties)


class ConnectionSettings:
    """A connection's options, with the documented defaults. Times are in ms.

    The connection logs `warnings` in `open`, because it may have no logger before.
    """

    def __init__(self) -> None:
        self.name: str = "Kafka connection"
        self.client_id: str = socket.gethostname()
        self.acks: int = -1
        self.log_level: int = 1
        self.connect_timeout: int = 1000
        self.max_retries: int = 5
        self.retry_timeout: int = 30000
        self.request_timeout: int = 30000
        self.num_partitions: int = 1
        self.replication_factor: int = 1
        self.readable_partitions: list[int] = []
        self.write_partition: int | None = None
        self.properties: dict[str, str] = {}
        self.warnings: list[str] = []
        self.secrets = Secrets()

    def configure(self, config: ConfigParams) -> None:
        """Take options from a configuration. Options that it does not contain keep their values.

        Raises
        ------
        ConfigException
            UNKNOWN_PROPERTY: librdkafka has no such property; INVALID_PARTITION; INVALID_ACKS.
        """
        self.name = _text(config, "name") or self.name
        self.warnings = find_unknown_keys(config)
        self.client_id = _text(config, "client_id") or self.client_id
        self.acks = parse_acks(_text(config, "options.acks"), self.acks)
        for name, (low, high) in _NUMBERS.items():
            key, default = f"options.{name}", getattr(self, name)
            number = read_number(config, key, default, low, high, warnings=self.warnings)
            setattr(self, name, number)
        numbers = _partitions(config)
        if numbers is not None:
            self.readable_partitions = numbers
        write = _text(config, "options.write_partition")
        if write is not None:
            number = _partition(write, "options.write_partition", -1)
            self.write_partition = None if number < 0 else number
        raw = _properties(config)
        self.properties.update(raw)
        self.secrets.add(value for key, value in raw.items() if is_secret(key))

    # -- properties

    def producer(self, resolved: ConfigParams, acks: int) -> dict[str, Any]:
        """The properties for a producer.

        Parameters
        ----------
        resolved : ConfigParams
            The resolver's result.
        acks : int
            -1, 0 or 1.
        """
        return self._hide(
            {
                **self._common_properties(resolved),
                "acks": acks,
                "retries": self.max_retries,
                # Reports the outcome within request_timeout.
                "message.timeout.ms": self.request_timeout
                - min(_REPORT_DELAY_MS, self.request_timeout // 2),
                "request.timeout.ms": min(self.request_timeout, 900000),
                # Callers wait until their messages are stored. Batches fill requests anyway.
                "linger.ms": 0,
                # The brokers decide which message is too large. Another client may have sent a
                # message that exceeds librdkafka's default and now becomes a dead letter.
                "message.max.bytes": 1_000_000_000,
                # How long messages wait for a missing topic.
                "topic.metadata.propagation.max.ms": _TOPIC_WAIT_MS,
                **self.properties,
            }
        )

    def admin(self, resolved: ConfigParams) -> dict[str, Any]:
        """The properties for an admin client."""
        # A metadata request must not create a topic.
        own = {"allow.auto.create.topics": False}
        return self._hide({**self._common_properties(resolved), **own, **self.properties})

    def consumer(
        self, resolved: ConfigParams, group_id: str | None, options: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """The properties for a consumer. `options` are the subscriber's."""
        wanted = {key: value for key, value in (options or {}).items() if value is not None}
        wanted.pop("from_beginning", None)
        _check_properties(key for key in wanted if key not in OWN_KEYS)
        given = {**self.properties, **wanted}
        properties = {
            **self._common_properties(resolved),
            "enable.auto.commit": True,
            "auto.commit.interval.ms": 5000,
            "session.timeout.ms": 10000,
            "auto.offset.reset": "earliest",
            # Limits commits. librdkafka requires more than the longest fetch.
            "socket.timeout.ms": min(max(self.request_timeout, 2000), 300000),
            **given,
            "group.id": group_id or DEFAULT_GROUP,
            "enable.auto.offset.store": False,
        }
        if str(given.get("group.protocol", "")).lower() == "consumer":
            # There the broker sets the session timeout, and librdkafka rejects the property.
            properties.pop("session.timeout.ms")
            if "session.timeout.ms" in wanted:
                properties["session.timeout.ms"] = wanted["session.timeout.ms"]
        return self._hide(properties)

    def _common_properties(self, resolved: ConfigParams) -> dict[str, Any]:
        security, warnings = security_properties(resolved, self.properties)
        self.warnings += [words for words in warnings if words not in self.warnings]
        return {
            "bootstrap.servers": resolved.get_as_string("brokers"),
            "client.id": self.client_id,
            "log_level": LOG_LEVELS[self.log_level],
            # A client also waits half of this before it opens another connection.
            "reconnect.backoff.ms": min(20, self.retry_timeout),
            "reconnect.backoff.max.ms": self.retry_timeout,
            **security,
        }

    def _hide(self, properties: dict[str, Any]) -> dict[str, Any]:
        for key, value in properties.items():
            if isinstance(value, str) and is_secret(key):
                self.secrets.add([value])
                properties[key] = Secret(str.__str__(value))
        return properties


# -- keys


def _properties(config: ConfigParams) -> dict[str, str]:
    """The librdkafka properties in a configuration. Raises if a name is unknown."""
    given = config.get_section(_RAW)
    _check_properties(given, f"{_RAW}.")
    return {key: given.get_as_string(key) for key in given}


def _check_properties(given: Iterable[str], prefix: str = "") -> None:
    """Raise if librdkafka does not know a property, and suggest a similar one.

    Raises
    ------
    ConfigException
        UNKNOWN_PROPERTY.
    """
    known = _known_properties()
    for key in given:
        if key not in known:
            text = f'{prefix}{key}: librdkafka has no property "{key}"'
            text += did_you_mean(key, sorted(known), prefix=prefix)
            raise config_error("UNKNOWN_PROPERTY", text, keys=[prefix + key])


def find_unknown_keys(config: Iterable[str]) -> list[str]:
    """One warning, without the value, per key that neither connections nor queues know."""
    return [warning for key in config if (warning := _unknown(key)) is not None]


def _unknown(key: str) -> str | None:
    section, dot, rest = key.partition(".")
    if section in _FOREIGN or key.startswith(f"{_RAW}."):
        return None
    known, name, prefix = (*_TOP, *_SECTIONS), section, ""
    if dot and section in _SECTIONS:
        known, name, prefix = _SECTIONS[section], rest, f"{section}."
        number, found, inner = rest.partition(".")
        if found and section in ("connections", "credentials"):
            name, prefix = inner, f"{section}.{number}."
        elif found and section == "options":
            name = number  # a list: options.readable_partitions.0
    if name in known:
        return None
    return f'"{key}" is not a key of a Kafka component{did_you_mean(name, known, prefix=prefix)}'


def find_idle_keys(config: ConfigParams) -> list[str]:
    """One warning per key that has no effect on a queue with a shared connection.

    Raises
    ------
    ConfigException
        UNKNOWN_PROPERTY, as for a connection.
    """
    _properties(config)
    idle = [
        f'"{key}" has no effect here: it belongs to the shared connection'
        for key in config
        if _unknown(key) is None and _belongs_to_connection(key)
    ]
    return [*find_unknown_keys(config), *idle]


def _belongs_to_connection(key: str) -> bool:
    section, _, rest = key.partition(".")
    if section == "options":
        return rest.partition(".")[0] in (*_OF_CONNECTIONS, "kafka")
    return section == "client_id" or section in _SECTIONS


# -- values


def parse_acks(value: Any, default: int = -1) -> int:
    """How many brokers must store a message: -1 (all), 0 or 1.

    Parameters
    ----------
    value : int, str or None
        ``all`` means -1; None and the empty str mean the default.

    Raises
    ------
    ConfigException
        INVALID_ACKS.
    """
    text = "" if value is None else str(value).strip().lower()
    if not text:
        return default
    number = {"all": -1, "-1": -1, "0": 0, "1": 1}.get(text)
    if number is None:
        wrong = f'options.acks: expected -1 (all), 0 or 1, got "{text}"'
        raise config_error("INVALID_ACKS", wrong, keys=["options.acks"])
    return number


def read_number(
    config: ConfigParams,
    key: str,
    default: int,
    low: int,
    high: int = MOST,
    *,
    warnings: list[str],
) -> int:
    """Read a whole number from the configuration.

    If the value is not a number or out of bounds, this adds a warning and returns the default.
    """
    text = _text(config, key)
    if text is None:
        return default
    try:
        number = int(float(text))
    except (ValueError, OverflowError):
        number = low - 1
    if low <= number <= high:
        return number
    range_ = f"of at least {low}" if high == MOST else f"from {low} to {high}"
    warnings.append(f'{key}: expected a number {range_}, got "{text}"; using {default}')
    return default


def read_flag(config: ConfigParams, key: str, default: bool, *, warnings: list[str]) -> bool:
    """Read a boolean. If the value is not a boolean, adds a warning and returns the default."""
    text = _text(config, key)
    value: bool | None = config.get_as_nullable_boolean(key) if text is not None else default
    if value is None:
        value = default
        warnings.append(f'{key}: expected true or false, got "{text}"; using {default}')
    return value


def _partitions(config: ConfigParams) -> list[int] | None:
    key = "options.readable_partitions"
    # A YAML list becomes one key per item.
    texts = [_text(config, name) or "" for name in config if name.startswith(f"{key}.")]
    joined = _text(config, key)
    if joined is not None:
        texts += joined.replace(",", ";").split(";")
    return sorted({_partition(text, key) for text in texts if text.strip()}) if texts else None


def _text(config: ConfigParams, key: str) -> str | None:
    """Read a text. Returns None if it is missing or blank."""
    value: str | None = config.get_as_nullable_string(key)
    return value if value and value.strip() else None


def _partition(text: str, key: str, low: int = 0) -> int:
    number = parse_number(text, low, MOST)
    if number is None:
        wrong = f'{key}: expected a partition number, got "{text.strip()}"'
        raise config_error("INVALID_PARTITION", wrong, keys=[key])
    return number


def parse_number(text: str, low: int, high: int) -> int | None:
    """Read a whole number. Returns None if the text is not a whole number or out of bounds."""
    try:
        number = int(text)
    except ValueError:
        return None
    return number if low <= number <= high else None
