"""A partitioner that uses all partitions in turn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

from cykafka.compat.kafka_python.partitioner.base import Partitioner


class RoundRobinPartitioner(Partitioner):
    """Selects the partitions in turn, whatever the key is."""

    def __init__(self, partitions: Sequence[int]) -> None:
        super().__init__(partitions)
        self._set_partitions(partitions)

    def _set_partitions(self, partitions: Sequence[int]) -> None:
        self.partitions = partitions
        self.iterpart = cycle(partitions)

    def partition(self, key: Any, partitions: Sequence[int] | None = None) -> int:
        """Select the next partition. See `Partitioner.partition`.

        If `partitions` differ from the last call, the selection starts over.

        Raises
        ------
        ValueError
            The topic has no partitions.
        """
        if partitions and partitions != self.partitions:
            self._set_partitions(partitions)
        for selected in self.iterpart:
            return selected
        raise ValueError("cannot select a partition: the list of partitions is empty")
