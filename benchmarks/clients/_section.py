"""Shared parts of the loops: arguments, the measured section, and checks of the work."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

from _figures import percentiles

CHUNK = 10_000
"""Records in a batch, messages between two calls of ``poll(0)``, and messages of a warm-up."""
KEY_SIZE = 16
"""Bytes of a key, and of a header's value."""
TYPES = 16
"""The number of different values of the first header."""
WARM_ROUNDS = 200
"""Messages in the warm-up of loops that send one at a time."""
CALL = 500
"""Messages of a call that returns when they are stored."""
TIMEOUT = 10.0
"""The time limit for one message, s."""

SPARK_COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


@dataclass(frozen=True)
class Arguments:
    """The command line.

    Attributes
    ----------
    client
        The module under test.
    config
        librdkafka's names and values. Other clients translate those that apply.
    """

    client: Any
    topic: str
    messages: int
    value_size: int
    partitions: int
    config: dict[str, str]

    def values(self) -> list[bytes]:
        """CHUNK distinct values of ``value_size`` bytes."""
        return texts(self.value_size)


def texts(size: int) -> list[bytes]:
    """CHUNK distinct bytes objects."""
    return [f"{i:0{size}d}"[-size:].encode() for i in range(CHUNK)]


def keys() -> list[bytes]:
    return texts(KEY_SIZE)


def types() -> list[bytes]:
    """CHUNK message types, TYPES of them different."""
    return keys()[:TYPES] * (CHUNK // TYPES)


def header_pairs() -> list[list[tuple[str, bytes]]]:
    """Two headers for each record of a batch."""
    pairs = zip(types(), keys(), strict=True)
    return [[("message_type", kind), ("trace_id", key)] for kind, key in pairs]


class Section:
    """The measured section. It starts at construction and ends at :meth:`report`."""

    def __init__(self) -> None:
        self._rss_kb = rss_kb("VmRSS")
        self._wall = time.perf_counter()
        self._usage = getrusage(RUSAGE_SELF)

    def report(
        self, messages: int, produced: int = 0, latencies: list[float] | None = None
    ) -> dict[str, float]:
        """The measurements. ``produced`` is the number of new records, warm-up included."""
        usage = getrusage(RUSAGE_SELF)
        result: dict[str, float] = {
            "messages": messages,
            "produced": produced,
            "cpu_user": usage.ru_utime - self._usage.ru_utime,
            "cpu_sys": usage.ru_stime - self._usage.ru_stime,
            "wall": time.perf_counter() - self._wall,
            "start_rss_kb": self._rss_kb,
            "peak_rss_kb": rss_kb("VmHWM"),
        }
        if latencies:
            result.update(percentiles(latencies))
        return result


def rss_kb(which: str) -> int:
    """Memory in kB: ``VmRSS`` now, or ``VmHWM``, the peak.

    ``ru_maxrss`` would not do, because it starts at the parent's value.
    """
    match = re.search(rf"{which}:\s*(\d+)", Path("/proc/self/status").read_text())
    return int(match[1]) if match else 0


def wait_idle() -> None:
    """Wait until all threads of this process have been idle for half a second."""
    before, after = -1.0, 0.0
    while after - before > 0.01:
        before = after
        time.sleep(0.5)
        after = time.process_time()


def time_each(
    args: Arguments, exchange: Callable[[Any], object], values: list[Any] | None = None
) -> dict[str, float]:
    """Warm up, then time each ``exchange(value)``."""
    values = args.values() if values is None else values
    for value in islice(values, WARM_ROUNDS):
        exchange(value)
    latencies = []
    section = Section()
    for value in islice(cycle(values), args.messages):
        start = time.perf_counter()
        exchange(value)
        latencies.append(time.perf_counter() - start)
    return section.report(args.messages, WARM_ROUNDS + args.messages, latencies)


def check(what: str, actual: object, expected: object) -> None:
    """End the process with an error if the work is incomplete."""
    if actual != expected:
        sys.exit(f"{what}: expected {expected}, got {actual}")
