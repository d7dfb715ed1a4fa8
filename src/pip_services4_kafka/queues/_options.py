"""The part of a queue's configuration that no documented field shows."""

from __future__ import annotations

from dataclasses import dataclass

from pip_services4_commons.errors import ConfigException
from pip_services4_components.config import ConfigParams
from pip_services4_components.refer import Descriptor


@dataclass
class Options:
    """Keys below ``options``, with their defaults."""

    max_pending: int = 10_000
    max_attempts: int = 0
    dead_letter_topic: str = ""
    transactional: bool = False
    envelope: str = "headers"
    traceparent: bool = False

    def configure(self, options: ConfigParams) -> None:
        """Take what is configured; the rest stays as it is.

        Raises
        ------
        ConfigException
            INVALID_ENVELOPE.
        """
        self.max_pending = max(
            1, options.get_as_integer_with_default("max_pending", self.max_pending)
        )
        self.max_attempts = max(
            0, options.get_as_integer_with_default("max_attempts", self.max_attempts)
        )
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
    """The name: of ``name`` or ``id``, else the topic, else as given, else the descriptor's.

    A factory's queues have the factory's configuration, so its descriptor comes last.
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


__all__ = ["Options", "name_in"]
