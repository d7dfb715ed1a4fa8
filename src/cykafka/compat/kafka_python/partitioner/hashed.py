"""Partitioners that send messages with the same key to the same partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cykafka
from cykafka.compat.kafka_python.partitioner.base import Partitioner
from cykafka.internal import murmur2_hash


class Murmur2Partitioner(Partitioner):
    """Selects the same partition as the Java client.

    If a key is not bytes, the hash uses its str() as UTF-8.
    """

    def partition(self, key: Any, partitions: Sequence[int] | None = None) -> int:
        """Select a partition by the murmur2 hash of the key. See `Partitioner.partition`.

        Raises
        ------
        ZeroDivisionError
            The topic has no partitions.
        """
        present = _present(partitions or self.partitions)
        return present[cykafka.murmur2(_bytes(key), len(present))]


class LegacyPartitioner(Partitioner):
    """Selects a partition by Python's hash().

    Deprecated: Python hashes str and bytes differently in each process, unless the environment
    sets PYTHONHASHSEED. Use Murmur2Partitioner.
    """

    def partition(self, key: Any, partitions: Sequence[int] | None = None) -> int:
        """Select a partition by hash(key). See `Partitioner.partition`.

        Raises
        ------
        ZeroDivisionError
            The topic has no partitions.
        TypeError
            The key has no hash.
        """
        present = _present(partitions or self.partitions)
        return present[hash(key) % len(present)]


HashedPartitioner = LegacyPartitioner


def murmur2(key: Any) -> int:
    """The murmur2 hash of a key, as the Java client computes it.

    Parameters
    ----------
    key
        Bytes or bytearray. For other types, the hash uses the str() as UTF-8.

    Returns
    -------
    int
        0 to 2**32 - 1.
    """
    return murmur2_hash(_bytes(key))


def _present(partitions: Sequence[int]) -> Sequence[int]:
    if not partitions:
        # 0.9.5 raised this class when it computed the hash modulo 0.
        raise ZeroDivisionError("cannot select a partition: the list of partitions is empty")
    return partitions


def _bytes(key: Any) -> bytes:
    return bytes(key) if isinstance(key, (bytes, bytearray)) else str(key).encode()
