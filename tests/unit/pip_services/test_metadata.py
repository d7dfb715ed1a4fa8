"""Finished ranges in the metadata of a commit: what fits, and what others may leave there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pip_services4_kafka.queues._commits import decode_ranges, encode_ranges

Ranges = list[tuple[int, int]]


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, Ranges]:
    position = draw(st.integers(0, 2**40))
    found, last = [], position
    for gap, length in draw(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)))):
        found.append((last + gap, last + gap + length))
        last += gap + length
    return position, found


@given(ranges(), st.integers(0, 200))
def test_what_fits_comes_back_and_the_rest_is_counted(
    given: tuple[int, Ranges], limit: int
) -> None:
    position, finished = given
    text, left_out = encode_ranges(position, finished, limit)
    assert len(text) <= limit
    assert text.isascii()  # so its characters are the bytes that the broker counts
    assert decode_ranges(position, text) == finished[: len(finished) - left_out]
    if left_out:  # the first range that is left out had no room
        one_more = finished[: len(finished) - left_out + 1]
        assert len(encode_ranges(position, one_more, 10**9)[0]) > limit


def test_nothing_finished_behind_the_position_needs_no_metadata() -> None:
    assert encode_ranges(5, [], 4000) == ("", 0)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "another client's",
        "cykafka/1 4 1+1",
        "cykafka/2 5 1+1",
        "cykafka/1 5 1+",
        "cykafka/1 5 +1",
        "cykafka/1 5 1",
        "cykafka/1 5 -1+5",
        "cykafka/1 5 1+-5",
        "cykafka/1 5 1+0",
        "cykafka/1 5 1+1 x",
        "cykafka/1 5 1.0+1",
        "cykafka/1 5 ²+1",
        "cykafka/1 5 1+" + "1" * 5000,
    ],
)
def test_metadata_of_others_and_damaged_metadata_has_no_ranges(text: str | None) -> None:
    assert decode_ranges(5, text) == []


@given(st.text().map("cykafka/1 7 {}".format) | st.text())
def test_any_text_gives_ranges_in_order(text: str) -> None:
    last = 7
    for start, stop in decode_ranges(7, text):
        assert last <= start < stop
        last = stop
