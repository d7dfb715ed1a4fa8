"""Decodes the keys and values of consumed records."""

from __future__ import annotations

from dataclasses import dataclass, field

from cykafka import MessageBatch
from cykafka.cli.records.bad_records import BadRecord, BadRecords
from cykafka.cli.records.json_record import Headers
from cykafka.cli.records.value_formats import Reader

__all__ = ["DecodedBatch", "Decoder"]


@dataclass
class DecodedBatch:
    """Records of a batch with decoded keys and values, in the columns of a MessageBatch."""

    topics: list[str] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    key_column: list[bytes | None] = field(default_factory=list)
    value_column: list[bytes | None] = field(default_factory=list)
    header_column: list[Headers | None] = field(default_factory=list)
    used: int = 0
    """how many records of the batch were read"""
    failure: BadRecord | None = None
    """why it ends there"""

    def __len__(self) -> int:
        return len(self.topics)

    def keys(self) -> list[bytes | None]:
        """Return the decoded keys."""
        return self.key_column

    def values(self) -> list[bytes | None]:
        """Return the decoded values."""
        return self.value_column

    def headers(self) -> list[Headers | None]:
        """Return the headers."""
        return self.header_column


class Decoder:
    """Decodes batches.

    Parameters
    ----------
    key, value : Reader or None
        None leaves the bytes as they are.
    bad : BadRecords
        Counts the records that cannot be decoded.
    """

    def __init__(self, key: Reader | None, value: Reader | None, bad: BadRecords) -> None:
        self._key = key
        self._value = value
        self.bad = bad

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to decode."""
        return self._key is not None or self._value is not None

    def decode(self, batch: MessageBatch, key: bytes | None, most: int | None) -> DecodedBatch:
        """Decode the records up to the first bad one, or skip bad ones.

        Parameters
        ----------
        batch : MessageBatch
        key : bytes, optional
            Only the records with this decoded key.
        most : int, optional
            The largest number of records.

        Raises
        ------
        Failed
            The registry does not respond.
        """
        found = DecodedBatch()
        rows = zip(
            batch.topics,
            batch.partitions,
            batch.offsets,
            batch.timestamps,
            batch.keys(),
            batch.values(),
            batch.headers(),
            strict=True,
        )
        for topic, partition, offset, timestamp, raw_key, raw_value, headers in rows:
            part = "key"
            try:
                own_key = _read(self._key, raw_key, topic, headers)
                if key is None or own_key == key:
                    part = "value"
                    value = _read(self._value, raw_value, topic, headers)
                    found.topics.append(topic)
                    found.partitions.append(partition)
                    found.offsets.append(offset)
                    found.timestamps.append(timestamp)
                    found.key_column.append(own_key)
                    found.value_column.append(value)
                    found.header_column.append(headers)
            except (ValueError, RecursionError) as error:
                try:
                    self.bad.add(f"{topic}[{partition}] at offset {offset}", f"{part}: {error}")
                except BadRecord as bad:
                    found.failure = bad
                    break
            found.used += 1
            if len(found) == most:
                break
        return found


def _read(
    reader: Reader | None, data: bytes | None, topic: str, headers: Headers | None
) -> bytes | None:
    return data if reader is None or data is None else reader(data, topic, headers)
