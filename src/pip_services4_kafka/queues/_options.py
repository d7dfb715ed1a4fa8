"""The part of a queue's configuration without a documented field."""

from __future__ import annotations

from dataclasses import dataclass, field

from pip_services4_commons.errors import ConfigException
from pip_services4_components.config import ConfigParams
from pip_services4_components.refer import Descriptor

from ..connect._settings import MOST, number_of

# Each partition that listen() handles at a time costs a thread.
MOST_WORKERS = 1000


@dataclass
class Options:
    """Keys below ``options``, with their defaults. The queue logs `warnings` at open()."""

    max_pending: int = 10_000
    max_attempts: int = 0
    dead_letter_topic: str = ""
    transactional: bool = False
    envelope: str = "headers"
    traceparent: bool = False
    warnings: list[str] = field(default_factory=list)

    def number(
        self, config: ConfigParams, key: str, default: int, low: int, high: int = MOST
    ) -> int:
        """A whole number from the configuration; the default and a warning if it is invalid."""
        return number_of(config, key, default, low, high, self.warnings)

    def configure(self, config: ConfigParams) -> None:
        """Take the options of a configuration. The other options keep their values.

        Raises
        ------
        ConfigException
            INVALID_ENVELOPE.
        """
        self.max_pending = self.number(config, "options.max_pending", self.max_pending, 1)
        self.max_attempts = self.number(config, "options.max_attempts", self.max_attempts, 0)
        options = config.get_section("options")
        self.dead_letter_topic = options.get_as_string_with_default(
            "dead_letter_topic", self.dead_letter_topic
        )
        self.transactional = options.get_as_boolean_with_default(
            "transactional", self.transactional
        )
        self.traceparent = options.get_as_boolean_with_default("traceparent", self.traceparent)
        envelope = options.get_as_string_with_default("envelope", self.envelope).strip().lower()
        if envelope not in ("headers", "json"):
            raise ConfigException(
                None,
                "INVALID_ENVELOPE",
                f'options.envelope: expected headers or json, got "{envelope}"',
            ).with_details("keys", "options.envelope")
        self.envelope = envelope


def name_in(config: ConfigParams, given: str | None) -> str | None:
    """The name: the key ``name``, ``id`` or ``topic``, else `given`, else the descriptor's name.

    The descriptor comes last, because a factory's queues get the factory's configuration.
    """
    for key in ("name", "id", "topic"):
        name: str | None = config.get_as_nullable_string(key)
        if name:
            return name
    if given:
        return given
    descriptor = Descriptor.from_string(config.get_as_nullable_string("descriptor"))
    name = descriptor.get_name() if descriptor is not None else None
    return None if name == "*" else name


__all__ = ["MOST_WORKERS", "Options", "name_in"]
