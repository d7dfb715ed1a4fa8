"""Pieces of any text are those of bytes.split() and bytes.partition()."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from repeated import examples

from cykafka.internal import Pieces, split

# Few different bytes, so that delimiters occur, and overlap themselves.
texts = st.binary(max_size=60).map(lambda text: bytes(item % 3 for item in text))
delimiters = st.binary(min_size=1, max_size=4).map(lambda text: bytes(item % 3 for item in text))


@given(texts, delimiters)
@settings(max_examples=examples(500))
def test_pieces_are_those_of_split(text: bytes, delimiter: bytes) -> None:
    *expected, last = text.split(delimiter)

    pieces, end = split(text, delimiter)

    assert list(pieces) == expected
    assert len(pieces) == len(expected)
    assert text[end:] == last


@given(texts, delimiters, delimiters)
@settings(max_examples=examples(500))
def test_parts_of_pieces_are_those_of_partition(text: bytes, ends: bytes, first: bytes) -> None:
    pieces, _ = split(text, ends)
    expected = [piece.partition(first) for piece in pieces]

    parts = pieces.partition(first)

    if all(separator for _, separator, _ in expected):
        assert parts is not None
        before, after = parts
        del pieces, parts
        assert list(before) == [item for item, _, _ in expected]
        del before
        assert list(after) == [item for _, _, item in expected]
    else:
        assert parts is None


@given(st.integers(0, 20), st.slices(20), st.slices(20))
def test_slices_outlive_what_they_are_of(count: int, part: slice, again: slice) -> None:
    expected = [b"%d" % number for number in range(count)]
    pieces, _ = split(b"".join(item + b"," for item in expected), b",")
    part, again = slice(part.start, part.stop), slice(again.start, again.stop)

    pieces = pieces[part]
    pieces = pieces[again]

    assert list(pieces) == expected[part][again]


def test_pieces_refuse_what_they_cannot_do() -> None:
    pieces, _ = split(b"a\nb\n", b"\n")
    with pytest.raises(ValueError, match="at least one byte"):
        split(b"a", b"")
    with pytest.raises(ValueError, match="at least one byte"):
        pieces.partition(b"")
    with pytest.raises(ValueError, match="step 1"):
        pieces[::2]
    for wrong in (None, "text", bytearray(b"a"), 1):
        with pytest.raises(TypeError):
            split(wrong, b"\n")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            split(b"a", wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            pieces[wrong]  # type: ignore[index]
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            copied(pieces)
    with pytest.raises(TypeError, match=r"Pieces come from split\(\)"):
        Pieces()
    assert list(Pieces.__new__(Pieces)) == []
    assert list(pieces) == [b"a", b"b"]
