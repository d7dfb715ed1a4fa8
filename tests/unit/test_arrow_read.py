"""Columns of Arrow data as the publisher reads them, compared with the values in Python."""

from __future__ import annotations

import ctypes
import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import nanoarrow
import polars
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cykafka._core.arrow.read import ArrowData

BYTES = [pa.binary(), pa.large_binary(), pa.binary_view()]
STRINGS = [pa.string(), pa.large_string(), pa.string_view()]
INTEGERS = {
    **{getattr(pa, f"int{n}")(): (-(2 ** (n - 1)), 2 ** (n - 1) - 1) for n in (8, 16, 32, 64)},
    **{getattr(pa, f"uint{n}")(): (0, 2**n - 1) for n in (8, 16, 32)},
    pa.uint64(): (0, 2**63 - 1),
}
PER_MS = {"s": 1000, "ms": 1, "us": -1000, "ns": -1_000_000}  # factors; a negative one divides
PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])

# The bytes of a view longer than 12 bytes are in another buffer.
binaries = st.binary(max_size=30)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
pairs = st.lists(st.tuples(names, st.none() | binaries), max_size=4)


def lists_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | values, max_size=30)


@st.composite
def arrays(draw: st.DrawFn, values: list[Any], kind: pa.DataType) -> tuple[Any, list[Any]]:
    """An array of these values, a slice of it, or chunks, with the expected values."""
    array = pa.array(values, kind)
    if draw(st.booleans()):
        start = draw(st.integers(0, len(values)))
        stop = draw(st.integers(start, len(values)))
        array = array.slice(start, stop - start)
        values = values[start:stop]
    if draw(st.booleans()):
        cuts = sorted(draw(st.lists(st.integers(0, len(values)), max_size=3)))
        bounds = [0, *cuts, len(values)]
        chunks = [array.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
        array = pa.chunked_array(chunks, kind)
    return array, values


def as_table(array: Any, draw: Callable[[Any], Any]) -> Any:
    """The array as a column "x" of a table, a stream, or a sliced struct."""
    table = pa.table({"other": pa.nulls(len(array)), "x": array})
    if draw(st.booleans()) and not isinstance(array, pa.ChunkedArray):
        fields = [pa.concat_arrays([array.slice(0, 1), array])]
        struct = pa.StructArray.from_arrays(fields, names=["x"])
        return struct.slice(len(array.slice(0, 1)))
    return draw(st.sampled_from([table, table.to_reader(2)]))


@given(st.data())
def test_byte_strings_of_every_layout(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([*BYTES, *STRINGS, pa.binary(5), pa.null()]))
    if pa.types.is_null(kind):
        values = data.draw(lists_of(st.nothing()))
    elif pa.types.is_fixed_size_binary(kind):
        values = data.draw(lists_of(st.binary(min_size=5, max_size=5)))
    else:
        values = data.draw(lists_of(texts if kind in STRINGS else binaries))
    array, values = data.draw(arrays(values, kind))
    wanted = [item.encode() if isinstance(item, str) else item for item in values]

    assert ArrowData(array).read_column() == wanted
    assert ArrowData(as_table(array, data.draw)).read_column("x") == wanted


@given(st.data())
def test_integers_of_every_width(data: st.DataObject) -> None:
    kind, (low, high) = data.draw(st.sampled_from(sorted(INTEGERS.items(), key=str)))
    values = data.draw(lists_of(st.integers(low, high)))
    array, values = data.draw(arrays(values, kind))
    wanted = [-99 if item is None else item for item in values]

    assert ArrowData(array).read_numbers(missing=-99) == wanted
    assert ArrowData(as_table(array, data.draw)).read_numbers("x", missing=-99) == wanted


@given(st.data())
def test_timestamps_of_every_unit_become_milliseconds(data: st.DataObject) -> None:
    unit = data.draw(st.sampled_from(sorted(PER_MS)))
    kind = pa.timestamp(unit, data.draw(st.sampled_from([None, "UTC", "Europe/Paris"])))
    values = data.draw(lists_of(st.integers(-(2**50), 2**50)))
    array, values = data.draw(arrays(values, kind))
    factor = PER_MS[unit]
    wanted = [
        0 if item is None else item * factor if factor > 0 else item // -factor for item in values
    ]

    assert ArrowData(array).read_numbers(times=True, missing=0) == wanted
    assert ArrowData(as_table(array, data.draw)).read_numbers("x", times=True, missing=0) == wanted
    with pytest.raises(TypeError, match=r"the Arrow type timestamp\[.*\]; cast it to int64$"):
        ArrowData(array).read_numbers()


@given(st.data())
def test_headers_of_every_layout(data: st.DataObject) -> None:
    kind = data.draw(
        st.sampled_from(
            [
                pa.list_(PAIR),
                pa.large_list(PAIR),
                pa.map_(pa.string(), pa.binary()),
                pa.list_(pa.struct([("value", pa.binary_view()), ("key", pa.string_view())])),
            ]
        )
    )
    values = data.draw(lists_of(pairs))
    as_given: list[Any] = values
    if not pa.types.is_map(kind):
        as_given = [
            None if item is None else [{"key": key, "value": value} for key, value in item]
            for item in values
        ]
    array, part = data.draw(arrays(as_given, kind))
    wanted = [
        [
            (p["key"].encode(), p["value"]) if isinstance(p, dict) else (p[0].encode(), p[1])
            for p in row or []
        ]
        for row in part
    ]

    table = as_table(array, data.draw)
    assert ArrowData(table).read_headers("x") == wanted
    assert ArrowData(array).read_headers() == wanted


def test_other_libraries_data_is_read() -> None:
    frame = polars.DataFrame({"k": ["a", None, "x" * 20], "n": [1, 2, None]})

    assert ArrowData(frame).read_column("k") == [b"a", None, b"x" * 20]
    assert ArrowData(frame).read_numbers("n") == [1, 2, -1]
    assert ArrowData(frame["k"]).read_column() == [b"a", None, b"x" * 20]
    array = nanoarrow.Array([b"a", None], nanoarrow.binary())
    assert ArrowData(array).read_column() == [b"a", None]
    assert ArrowData(nanoarrow.c_array(array)).read_column() == [b"a", None]


def test_a_table_without_rows_is_checked_too() -> None:
    table = pa.table({"x": pa.array([], pa.float64()), "y": pa.array([], pa.list_(PAIR))})
    empty = pa.Table.from_batches([], table.schema)

    for data in (table, empty):
        assert ArrowData(data).length == 0
        assert ArrowData(data).read_headers("y") == []
        with pytest.raises(TypeError, match="the Arrow type double"):
            ArrowData(data).read_column("x")
        with pytest.raises(TypeError, match="the Arrow type double"):
            ArrowData(data).read_headers("x")
        with pytest.raises(ValueError, match="the data has no column 'z'"):
            ArrowData(data).read_numbers("z")


@pytest.mark.parametrize(
    ("array", "name"),
    [
        (pa.array([1.5]), "double"),
        (pa.array([True]), "bool"),
        (pa.array([1]), "int64"),
        (pa.array(["a"]).dictionary_encode(), "dictionary<values=string, indices=int32>"),
        (pa.array([["a"]]), "list<item: string>"),
        (pa.array([{"a": 1}]), "struct<a: int64>"),
        (pa.array([1], pa.duration("us")), r"duration\[us\]"),
        (pa.array([1], pa.time64("ns")), r"time64\[ns\]"),
        (pa.array([1], pa.date32()), "date32"),
        (pa.array([1], pa.decimal128(5, 2)), r"decimal\[5,2\]"),
        (pa.array([["a"]], pa.list_(pa.string(), 1)), r"fixed_size_list<item: string>\[1\]"),
    ],
)
def test_error_for_another_type_suggests_a_cast(array: Any, name: str) -> None:
    message = f"^data: the array has the Arrow type {name}; cast it to binary or string$"
    with pytest.raises(TypeError, match=message):
        ArrowData(array).read_column()
    message = f"^data: the column 'x' has the Arrow type {name}; cast it to list<struct<"
    with pytest.raises(TypeError, match=message):
        ArrowData(pa.table({"x": array})).read_headers("x")


def test_columns_are_found_by_name() -> None:
    data = ArrowData(pa.table([pa.array(["a"])] * 3, names=["x", "y", "y"]))

    assert data.read_column("x") == [b"a"]
    with pytest.raises(ValueError, match="no column 'z'; its columns are x, y, y"):
        data.read_column("z")
    with pytest.raises(ValueError, match="the data has several columns 'y'"):
        data.read_column("y")
    with pytest.raises(TypeError, match="expected a column name, got int"):
        data.read_column(1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"no column 'x', .* expected a table"):
        ArrowData(pa.array(["a"])).read_column("x")


def test_error_for_a_number_out_of_range_names_its_row() -> None:
    chunks = pa.chunked_array([[1, 2], [None, 2**63]], pa.uint64())

    message = "in row 3 of the column 'x' the number is too large for an int64"
    with pytest.raises(ValueError, match=message):
        ArrowData(pa.table({"x": chunks})).read_numbers("x")


def test_a_null_row_of_a_table_is_refused() -> None:
    rows = [{"x": "a"}, None, {"x": "b"}]
    struct = pa.array(rows)

    with pytest.raises(ValueError, match="row 1 is null as a whole"):
        ArrowData(struct)
    with pytest.raises(ValueError, match="row 4 is null as a whole"):
        ArrowData(pa.chunked_array([struct.filter(struct.is_valid())] * 2 + [struct.slice(1)]))
    assert ArrowData(struct.slice(2)).read_column("x") == [b"b"]


def test_error_for_invalid_headers_names_their_row() -> None:
    kind = pa.list_(PAIR)
    good = [{"key": "a", "value": b"1"}]
    for bad, message in (
        ([None], "a header is null"),
        ([{"key": None, "value": b""}], "a header name is null"),
        ([{"key": "a\0b", "value": b""}], "a header name contains a NUL character"),
    ):
        with pytest.raises(ValueError, match=f"in row 2 of the array {message}"):
            ArrowData(pa.array([good, None, bad], kind)).read_headers()
        # Outside the slice it does no harm.
        part = pa.array([good, None, bad], kind).slice(0, 2)
        assert ArrowData(part).read_headers() == [[(b"a", b"1")], []]
    nameless = pa.list_(pa.struct([("key", pa.null()), ("value", pa.binary())]))
    with pytest.raises(ValueError, match="in row 1 of the array a header name is null"):
        ArrowData(pa.array([[], [{"key": None, "value": b"1"}]], nameless)).read_headers()


# -- producers that misbehave


class Gives:
    def __init__(self, array: Any) -> None:
        self.array = array

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        if isinstance(self.array, Exception):
            raise self.array
        return self.array


class Streams:
    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        if isinstance(self.stream, Exception):
            raise self.stream
        return self.stream


class Raises:
    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(name)


@pytest.mark.parametrize("answer", [None, (), (1,), (1, 2), (1, 2, 3), [1, 2], "ab", b"ab"])
def test_anything_but_a_pair_of_capsules_is_refused(answer: Any) -> None:
    with pytest.raises(TypeError, match=r"^data: "):
        ArrowData(Gives(answer))
    with pytest.raises(TypeError, match="expected a capsule named arrow_array_stream"):
        ArrowData(Streams(answer))


def test_capsules_of_other_names_are_refused() -> None:
    schema, array = pa.array(["a"]).__arrow_c_array__()

    for pair in ((array, schema), (schema, schema), (array, array)):
        with pytest.raises(TypeError, match=r"expected a capsule named arrow_(schema|array)"):
            ArrowData(Gives(pair))
    with pytest.raises(TypeError, match="expected a capsule named arrow_array_stream"):
        ArrowData(Streams(array))
    # The failed attempts consumed none of the data.
    assert ArrowData(Gives((schema, array))).read_column() == [b"a"]


def test_data_can_be_consumed_only_once() -> None:
    array = Gives(pa.array(["a"]).__arrow_c_array__())
    stream = Streams(pa.table({"x": ["a"]}).__arrow_c_stream__())

    assert ArrowData(array).read_column() == [b"a"]
    with pytest.raises(ValueError, match="the Arrow array was read or released already"):
        ArrowData(array)
    assert ArrowData(stream).read_column("x") == [b"a"]
    with pytest.raises(ValueError, match="the Arrow stream was read or released already"):
        ArrowData(stream)


def test_exceptions_of_an_arrow_producer_reach_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        ArrowData(Gives(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        ArrowData(Streams(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        ArrowData(Raises())
    with pytest.raises(TypeError, match=r"expected Arrow data, .* got int"):
        ArrowData(1)
    with pytest.raises(TypeError):
        ArrowData(pa.Table)


@pytest.fixture
def all_is_released() -> Iterator[None]:
    gc.collect()
    before = pa.total_allocated_bytes()
    yield
    gc.collect()
    assert pa.total_allocated_bytes() == before


@pytest.mark.usefixtures("all_is_released")
def test_failed_stream_raises_its_error_and_is_released() -> None:
    schema = pa.schema([("x", pa.string())])

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([["a" * 1000]], schema=schema)
        raise KeyError("no more of this")

    reader = pa.RecordBatchReader.from_batches(schema, batches())
    with pytest.raises((OSError, ValueError), match=r"the Arrow stream failed: .*no more of this"):
        ArrowData(reader)


def test_data_is_released_with_the_object() -> None:
    gc.collect()
    before = pa.total_allocated_bytes()
    chunks = [pa.array(["x" * 1000] * 100) for _ in range(3)]
    data = ArrowData(pa.table({"x": pa.chunked_array(chunks)}))
    del chunks
    gc.collect()

    assert pa.total_allocated_bytes() > before
    assert data.read_column("x") == [b"x" * 1000] * 300
    del data
    gc.collect()
    assert pa.total_allocated_bytes() == before


@pytest.mark.usefixtures("all_is_released")
def test_data_is_released_when_it_is_refused() -> None:
    with pytest.raises(ValueError, match="null as a whole"):
        ArrowData(pa.array([{"x": "a" * 1000}, None]))


class CArray(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in ("length", "null_count", "offset", "n_buffers", "n_children")
    ]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("length", -1, "its length or offset is out of range"),
        ("offset", -1, "its length or offset is out of range"),
        ("offset", 2**62, "its length or offset is out of range"),
        ("n_buffers", -1, "its buffers are missing"),
        ("n_buffers", 2, "its number of buffers does not match its type"),
        ("null_count", 1, "it has nulls but no validity bitmap"),
    ],
)
def test_data_that_breaks_the_arrow_c_interface_is_refused(
    field: str, value: int, message: str
) -> None:
    pair = pa.array(["a", "b"]).__arrow_c_array__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype = ctypes.c_void_p
    pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
    array = CArray.from_address(pointer_of(pair[1], b"arrow_array"))
    setattr(array, field, value)

    with pytest.raises(ValueError, match=f"the array is not a valid Arrow array: {message}"):
        ArrowData(Gives(pair)).read_column()
