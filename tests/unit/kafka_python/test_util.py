"""The helpers of kafka-python 0.9.5: strings of the wire protocol, and a timer."""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cykafka.compat.kafka_python import util
from cykafka.compat.kafka_python.common import (
    BufferUnderflowError,
    ProtocolError,
    TopicAndPartition,
)

pytestmark = pytest.mark.ours

WAIT_S = 30


def test_crc32_is_unsigned() -> None:
    assert util.crc32(b"123456789") == 0xCBF43926  # the check value of the algorithm
    assert util.crc32(b"") == 0


@pytest.mark.parametrize(
    ("value", "short", "long"),
    [
        (b"ab", b"\0\x02ab", b"\0\0\0\x02ab"),
        (b"", b"\0\0", b"\0\0\0\0"),
        (None, b"\xff\xff", b"\xff\xff\xff\xff"),
    ],
)
def test_strings_have_their_length_before_them(
    value: bytes | None, short: bytes, long: bytes
) -> None:
    assert util.write_short_string(value) == short
    assert util.write_int_string(value) == long
    assert util.read_short_string(b"." + short + b".", 1) == (value, 1 + len(short))
    assert util.read_int_string(b"." + long + b".", 1) == (value, 1 + len(long))


@pytest.mark.parametrize("write", [util.write_short_string, util.write_int_string])
@pytest.mark.parametrize("value", ["text", bytearray(b"a"), 1])
def test_write_string_raises_for_other_types(write: Any, value: Any) -> None:
    with pytest.raises(TypeError, match=f"to be bytes, not {type(value).__name__}"):
        write(value)


def test_write_short_string_raises_for_a_long_string() -> None:
    assert len(util.write_short_string(b"." * 32767)) == 32769
    with pytest.raises(struct.error):
        util.write_short_string(b"." * 32768)


@pytest.mark.parametrize("length", range(6))
def test_read_int_string_raises_for_cut_off_data(length: int) -> None:
    with pytest.raises(BufferUnderflowError):
        util.read_int_string(b"\0\0\0\x02ab"[:length], 0)


@pytest.mark.parametrize("length", range(4))
def test_read_short_string_raises_for_cut_off_data(length: int) -> None:
    with pytest.raises(BufferUnderflowError):
        util.read_short_string(b"\0\x02ab"[:length], 0)


def test_read_string_raises_for_a_negative_length() -> None:
    # 0.9.5 moved backwards, and so could read for ever.
    with pytest.raises(ProtocolError, match="length -2"):
        util.read_short_string(b"\xff\xfe......", 0)
    with pytest.raises(ProtocolError, match="length -2"):
        util.read_int_string(b"\xff\xff\xff\xfe......", 0)


@given(st.none() | st.binary(max_size=300), st.binary(max_size=9), st.binary(max_size=9))
def test_strings_survive_the_wire(value: bytes | None, before: bytes, after: bytes) -> None:
    data = before + util.write_int_string(value) + after

    assert util.read_int_string(data, len(before)) == (value, len(data) - len(after))


def test_relative_unpack_returns_values_and_the_position_after_them() -> None:
    assert util.relative_unpack(">hi", b".\0\x01\0\0\0\x02.", 1) == ((1, 2), 7)
    with pytest.raises(BufferUnderflowError, match="expected 6 bytes, but only 5 are left"):
        util.relative_unpack(">hi", b".\0\x01\0\0\0", 1)


def test_group_by_topic_and_partition_groups_structs() -> None:
    items = [TopicAndPartition("a", 2), TopicAndPartition("b", 2), TopicAndPartition("a", 1)]

    grouped = util.group_by_topic_and_partition(items)

    assert grouped == {"a": {2: items[0], 1: items[2]}, "b": {2: items[1]}}
    assert list(grouped["a"]) == [2, 1]
    assert grouped["other"] == {}


def test_group_by_topic_and_partition_raises_for_duplicates() -> None:
    with pytest.raises(AssertionError, match=r"duplicate TopicAndPartition for 'a'\[1\]"):
        util.group_by_topic_and_partition([TopicAndPartition("a", 1)] * 2)


def test_kafka_bytestring_encodes_text() -> None:
    value = b"\xff"

    assert util.kafka_bytestring("é") == b"\xc3\xa9"
    assert util.kafka_bytestring(value) is value
    with pytest.raises(TypeError):
        util.kafka_bytestring(None)  # type: ignore[arg-type]


@pytest.fixture
def timers() -> Iterator[list[util.ReentrantTimer]]:
    """Timers that are stopped at the end of the test."""
    made: list[util.ReentrantTimer] = []
    yield made
    for timer in made:
        timer.stop()


def test_timer_calls_repeatedly_with_its_arguments(timers: list[util.ReentrantTimer]) -> None:
    calls: SimpleQueue[Any] = SimpleQueue()
    timer = util.ReentrantTimer(1, lambda *args, **kwargs: calls.put((args, kwargs)), 7, name="a")
    timers.append(timer)

    timer.start()

    for _ in range(3):
        assert calls.get(timeout=WAIT_S) == ((7,), {"name": "a"})
    assert timer.thread is not None
    assert timer.thread.daemon


def test_timer_takes_its_interval_in_milliseconds() -> None:
    assert util.ReentrantTimer(2500, print).t == 2.5


def test_timer_makes_no_call_after_stop_and_starts_again(
    timers: list[util.ReentrantTimer],
) -> None:
    calls: SimpleQueue[int] = SimpleQueue()
    timer = util.ReentrantTimer(1, calls.put, 1)
    timers.append(timer)
    timer.start()
    calls.get(timeout=WAIT_S)
    thread = timer.thread
    assert thread is not None

    timer.stop()
    timer.stop()
    assert not thread.is_alive()
    while not calls.empty():
        calls.get()

    timer.start()
    assert calls.get(timeout=WAIT_S) == 1


def test_start_of_a_running_timer_replaces_its_thread(timers: list[util.ReentrantTimer]) -> None:
    timer = util.ReentrantTimer(60_000, print)
    timers.append(timer)
    timer.start()
    first = timer.thread
    assert first is not None

    timer.start()

    assert timer.thread is not first
    assert not first.is_alive()


def test_timer_logs_an_exception_and_goes_on(
    timers: list[util.ReentrantTimer], caplog: pytest.LogCaptureFixture
) -> None:
    calls: SimpleQueue[int] = SimpleQueue()

    def fail() -> None:
        calls.put(1)
        raise OSError("no disk")

    timer = util.ReentrantTimer(1, fail)
    timers.append(timer)
    with caplog.at_level(logging.ERROR, "kafka.util"):
        timer.start()
        for _ in range(2):
            calls.get(timeout=WAIT_S)
        timer.stop()

    assert caplog.records[0].name == "kafka.util"
    assert "no disk" in caplog.text


def test_stop_inside_the_function_does_not_wait(timers: list[util.ReentrantTimer]) -> None:
    stopped = threading.Event()
    threads: list[threading.Thread] = []

    def stop() -> None:
        threads.append(threading.current_thread())
        timer.stop()
        stopped.set()

    timer = util.ReentrantTimer(1, stop)
    timers.append(timer)
    timer.start()

    assert stopped.wait(WAIT_S)
    threads[0].join(WAIT_S)
    assert not threads[0].is_alive()
    assert len(threads) == 1


def test_stop_before_start_does_nothing() -> None:
    timer = util.ReentrantTimer(1, print)
    timer.stop()
    assert timer.thread is None


@pytest.mark.parametrize("interval", [0, -1])
def test_timer_raises_for_an_interval_that_is_not_positive(interval: int) -> None:
    with pytest.raises(ValueError, match="positive number of ms"):
        util.ReentrantTimer(interval, print)


def test_timer_raises_for_a_function_that_is_not_callable() -> None:
    with pytest.raises(ValueError, match="callable"):
        util.ReentrantTimer(1, "print")  # type: ignore[arg-type]
