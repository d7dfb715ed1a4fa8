"""The judge: did every record of the source arrive once and unchanged?"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

from cykafka.cli.counts import counted
from cykafka.cli.source import Record

_EXAMPLES = 3


def digest(key: bytes | None, value: bytes | None, headers: object) -> int:
    """64 bits over a record's key, value and headers, types and order included."""
    content = repr((key, value, headers)).encode()
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big")


def sequence_of(headers: Iterable[tuple[str, bytes | None]] | None) -> int:
    """The record's number out of its headers, -1 if there is none."""
    for name, data in headers or ():
        if name == "sequence" and data is not None and data.isdigit():
            # What the source numbers fits easily; anything longer is no number of its.
            return int(data) if len(data) < 18 else -1
    return -1


@dataclass
class Fault:
    """How many records went wrong in one way, and the numbers of the first few."""

    count: int = 0
    examples: list[int] = field(default_factory=list)

    def add(self, sequence: int) -> None:
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(sequence)


class Verifier:
    """Compares the digests of the records read with digests made from the source itself."""

    def __init__(self, source: Iterable[Record] = ()) -> None:
        self._digests = array("Q")
        self._seen = bytearray()
        self.bytes = 0
        self.arrived = 0
        self.changed = Fault()
        self.duplicate = Fault()
        self.unknown = Fault()
        for record in source:
            self.expect(record)

    def __len__(self) -> int:
        return len(self._digests)

    def expect(self, record: Record) -> None:
        """Add a record of the source; they come in the order of their numbers."""
        self._digests.append(digest(record.key, record.value, record.headers))
        self._seen.append(0)
        self.bytes += record.size

    def check(self, sequences: Iterable[int], digests: Iterable[int]) -> None:
        """Take note of records that arrived: their numbers and the digests of their content."""
        for sequence, found in zip(sequences, digests, strict=True):
            self.arrived += 1
            if not 0 <= sequence < len(self._digests):
                self.unknown.add(sequence)
                continue
            if found != self._digests[sequence]:
                self.changed.add(sequence)
            if self._seen[sequence]:
                self.duplicate.add(sequence)
            self._seen[sequence] = 1

    def faults(self) -> list[str]:
        """A sentence for each way in which records went wrong; empty if every one is right."""
        lost = Fault()
        at = self._seen.find(0)
        while at != -1:
            lost.add(at)
            at = self._seen.find(0, at + 1)
        kinds = {
            "lost": lost,
            "arrived more than once": self.duplicate,
            "changed on the way": self.changed,
            "not of this file (was the topic empty?)": self.unknown,
        }
        return [
            f"{counted(fault.count, 'record')} {kind}, such as number "
            + ", ".join(str(number) for number in fault.examples)
            for kind, fault in kinds.items()
            if fault.count
        ]
