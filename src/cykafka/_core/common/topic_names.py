"""Kafka's rule for topic names."""

from __future__ import annotations

import re

__all__ = ["is_topic_name"]

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Whether brokers accept a topic name."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")
