"""The base class of partitioners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Partitioner:
    """Selects the partition of a message.

    Parameters
    ----------
    partitions : sequence of int
        The partitions of the topic.
    """

    def __init__(self, partitions: Sequence[int]) -> None:
        self.partitions = partitions

    def partition(self, key: Any, partitions: Sequence[int] | None = None) -> int:
        """Select a partition.

        Parameters
        ----------
        key
            The key of the message.
        partitions : sequence of int, optional
            The topic's current partitions. None and an empty sequence mean the partitions that the
            partitioner already knows.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method partition")
