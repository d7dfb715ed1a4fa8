"""DeserializingShareConsumer: a member of a share group that gets objects."""

from __future__ import annotations

from cykafka._core.model import ShareConsumer

__all__ = ["DeserializingShareConsumer"]


class DeserializingShareConsumer(ShareConsumer):
    """A ShareConsumer that deserializes. cykafka does not support share groups yet."""
