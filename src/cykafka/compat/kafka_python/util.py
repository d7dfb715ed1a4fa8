"""Helpers of kafka-python 0.9.5: strings of the wire protocol, and a timer."""

from __future__ import annotations

import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from logging import getLogger
from threading import Event, Thread, current_thread
from typing import Any

from cykafka.compat.kafka_python.common import BufferUnderflowError, ProtocolError

log = getLogger("kafka.util")


def crc32(data: bytes) -> int:
    """The unsigned CRC-32 of `data`."""
    return zlib.crc32(data)


def write_int_string(s: bytes | None) -> bytes:
    """Encode bytes after a 4-byte length. None has the length -1.

    Raises
    ------
    TypeError
        `s` is not bytes.
    """
    return _write_string(">i", s)


def write_short_string(s: bytes | None) -> bytes:
    """Encode bytes after a 2-byte length. None has the length -1.

    Raises
    ------
    TypeError
        `s` is not bytes.
    struct.error
        `s` is longer than 32767 bytes.
    """
    return _write_string(">h", s)


def _write_string(fmt: str, s: bytes | None) -> bytes:
    if s is None:
        return struct.pack(fmt, -1)
    if not isinstance(s, bytes):
        raise TypeError(f"expected {s!r} to be bytes, not {type(s).__name__}")
    return struct.pack(fmt, len(s)) + s


def read_short_string(data: bytes, cur: int) -> tuple[bytes | None, int]:
    """Decode what `write_short_string` encodes, at the position `cur`.

    Returns
    -------
    tuple
        The string, and the position after it.

    Raises
    ------
    BufferUnderflowError
        `data` ends before the string does.
    ProtocolError
        The length is below -1.
    """
    return _read_string(">h", data, cur)


def read_int_string(data: bytes, cur: int) -> tuple[bytes | None, int]:
    """Decode what `write_int_string` encodes. See `read_short_string`."""
    return _read_string(">i", data, cur)


def _read_string(fmt: str, data: bytes, cur: int) -> tuple[bytes | None, int]:
    (length,), cur = relative_unpack(fmt, data, cur)
    if length == -1:
        return None, cur
    if length < 0:
        raise ProtocolError(f"a string at position {cur} has the length {length}")
    end = cur + length
    if len(data) < end:
        raise BufferUnderflowError(f"expected {length} bytes, but only {len(data) - cur} are left")
    return data[cur:end], end


def relative_unpack(fmt: str, data: bytes, cur: int) -> tuple[tuple[Any, ...], int]:
    """Decode a struct at the position `cur`.

    Returns
    -------
    tuple
        The values, and the position after them.

    Raises
    ------
    BufferUnderflowError
        `data` ends too early.
    """
    end = cur + struct.calcsize(fmt)
    if len(data) < end:
        raise BufferUnderflowError(
            f"expected {end - cur} bytes, but only {len(data) - cur} are left"
        )
    return struct.unpack_from(fmt, data, cur), end


def group_by_topic_and_partition(tuples: Iterable[Any]) -> defaultdict[Any, dict[int, Any]]:
    """Group structs with a topic and a partition.

    Returns
    -------
    defaultdict
        ``result[topic][partition]`` is the struct.

    Raises
    ------
    AssertionError
        Two structs have the same topic and partition.
    """
    grouped: defaultdict[Any, dict[int, Any]] = defaultdict(dict)
    for item in tuples:
        partitions = grouped[item.topic]
        if item.partition in partitions:
            # Not an assert statement, which `python -O` removes.
            raise AssertionError(
                f"duplicate {type(item).__name__} for {item.topic!r}[{item.partition}]"
            )
        partitions[item.partition] = item
    return grouped


def kafka_bytestring(s: bytes | str) -> bytes:
    """Encode a str as UTF-8. Bytes stay as they are.

    Raises
    ------
    TypeError
        `s` is neither.
    """
    if isinstance(s, bytes):
        return s
    if isinstance(s, str):
        return s.encode()
    raise TypeError(f"expected bytes or str, got {s!r}")


class ReentrantTimer:
    """Calls a function at intervals in a daemon thread.

    If the function raises, the timer logs the exception and continues.

    Parameters
    ----------
    t : float
        The time between calls, in ms.
    fn : callable
    *args, **kwargs
        The arguments of `fn`.

    Raises
    ------
    ValueError
        `t` is not positive, or `fn` is not callable.
    """

    def __init__(self, t: float, fn: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        if t <= 0:
            raise ValueError(f"t: expected a positive number of ms, got {t}")
        if not callable(fn):
            raise ValueError(f"fn: expected a callable, got {fn!r}")
        self.thread: Thread | None = None
        self.active: Event | None = None
        self.t = t / 1000
        self.fn = fn
        self.args = args
        self.kwargs = kwargs

    def _timer(self, active: Event) -> None:
        while not active.wait(self.t):
            try:
                self.fn(*self.args, **self.kwargs)
            except Exception:
                log.exception("%r failed; the timer calls it again in %g s", self.fn, self.t)

    def start(self) -> None:
        """Start or restart the timer. The first call comes after one interval."""
        self.stop()
        self.active = Event()
        self.thread = Thread(
            target=self._timer, args=(self.active,), name="kafka.util.ReentrantTimer", daemon=True
        )
        try:
            self.thread.start()
        except BaseException:  # too many threads, or an interrupt: then the thread may run
            self.thread = None
            self.active.set()
            raise

    def stop(self) -> None:
        """Stop the timer. Wait for a running call up to the interval plus 1 s, but at most 6 s.

        If the function itself calls this method, it does not wait.
        """
        thread, self.thread = self.thread, None
        if thread is None:
            return
        assert self.active is not None
        self.active.set()
        if thread is not current_thread():
            thread.join(min(self.t, 5) + 1)
