"""DeserializingShareConsumer: a member of a share group that gets objects."""

from __future__ import annotations

from cykafka._core.model import ShareConsumer

__all__ = ["DeserializingShareConsumer"]


class DeserializingShareConsumer(ShareConsumer):
    """A ShareConsumer that deserializes. As ShareConsumer, it needs librdkafka 2.15.0 or newer."""
