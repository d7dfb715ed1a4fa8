"""Protobuf: values to Arrow by the reader's schema, and back. ptars does the work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import ptars
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from cykafka.schemas.arrow.columns import (
    Rows,
    check_keys,
    check_type,
    convert_rows,
    join_bytes,
    plain_lists,
    plain_type,
    read_each,
    replace_types,
    with_nulls,
    without_head,
)
from cykafka.schemas.model.document import Document, UnfitError
from cykafka.schemas.model.faults import is_fault, shorten_error
from cykafka.schemas.model.framing import FIRST_MESSAGE, frame_indexes, split_indexes
from cykafka.schemas.model.protobuf_files import ProtobufFile

__all__ = ["ProtobufReader", "ProtobufWriter"]

_CONFIG = ptars.PtarsConfig(
    timestamp_unit="us",
    time_unit="us",
    duration_unit="us",
    enum_repr="string",
    list_value_name="element",
)
# Types that Spark lacks.
_WIDER = {
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.time64("us"): pa.int64(),
}
# Up to this many bytes, values need no depth check. ptars overflows the stack at depth 100,000.
_SHALLOW = 10_000
# ptars allocates 16 bytes for each number up to a message's largest one.
_MOST_NUMBERS = 100_000
_GROUP = 10  # the number of a type
_BYTES = "google.protobuf.BytesValue"
_NO_TIME = 2**63 - 1, -(2**63)

# Raises ValueError for values that must not be written.
_Rule: TypeAlias = partial[None]


def _message_class(file: ProtobufFile, name: str) -> Any:
    """Return a message's class. An empty name means the first message."""
    found = file.message(name)
    if not found.DESCRIPTOR.fields:
        name = found.DESCRIPTOR.full_name
        raise UnfitError(f"the message {name} has no fields, which is not supported")
    return found


def _check_fields(message: Any, known: set[str]) -> None:
    """Raise UnfitError if a message contains a group, which ptars reads as null; or if a field's
    number is too large for ptars.
    """
    known.add(message.full_name)
    for field in message.fields:
        if field.type == _GROUP:
            raise UnfitError(f"the field {field.full_name} is a group, which cannot be read")
        if field.number > _MOST_NUMBERS:
            raise UnfitError(
                f"the field {field.full_name} has the number {field.number}, which is above "
                f"{_MOST_NUMBERS}"
            )
        if field.message_type is not None and field.message_type.full_name not in known:
            _check_fields(field.message_type, known)


def _handler(message: Any) -> tuple[Any, pa.StructType]:
    """Return ptars's handler that reads and writes a message, and the message's type."""
    _check_fields(message, set())
    try:
        handler = ptars.HandlerPool([message.file], _CONFIG).get_for_message(message)
        return handler, pa.struct(list(handler.schema()))
    except BaseException as error:
        if not is_fault(error):
            raise
        raise UnfitError(f"the library ptars cannot use it: {shorten_error(error)}") from None


class ProtobufReader:
    """Reads values with one schema. Field numbers match it to the writers' schemas.

    Parameters
    ----------
    document : Document
    message : str
        The full name of the message; empty for the first one of the file.

    Attributes
    ----------
    kind : pa.DataType
        The type of the values that `reader_of` produces.
    """

    def __init__(self, document: Document, message: str = "") -> None:
        self._class = _message_class(ProtobufFile(document), message)
        self._message = self._class.DESCRIPTOR
        self._handler, own = _handler(self._message)
        self.kind = replace_types(own, _WIDER)
        self._times = list(_times(own, ()))
        self._choices = [
            (path, rule)
            for path, rule in _rules(self._message, own, ())
            if rule.func in (_check_choice, _check_map)
        ]

    def reader_of(self, document: Document) -> Callable[[pa.BinaryArray], Rows]:
        """Return a function that reads values written with a schema."""
        written = ProtobufFile(document)
        words = f"the value does not fit the schema {document.id}"
        handler, kind, name = self._handler, self.kind, self._message.full_name

        def content(payload: bytes) -> bytes:
            indexes, place = split_indexes(payload, 0)
            found = written.names.get(indexes)
            if found is None:
                raise ValueError(f"the schema has no message {list(indexes)}")
            if found != name:
                raise ValueError(
                    f"its message is {found}, expected {name}; SUBJECT:VERSION#{found} as the "
                    "schema names another message"
                )
            return payload[place:]

        def parse(payloads: pa.BinaryArray) -> pa.StructArray:
            return handler.array_to_record_batch(payloads).to_struct_array()

        def plain(payloads: pa.BinaryArray) -> pa.BinaryArray:
            known = map(self._class.FromString, payloads.to_pylist())
            return pa.array([each.SerializePartialToString() for each in known], pa.binary())

        def convert(payloads: pa.BinaryArray) -> pa.Array:
            made = parse(payloads)
            try:
                for path, rule in self._choices:
                    rule(_at(made, path))
            except ValueError:
                # ptars keeps all members of a oneof, and all values of a key: the last one counts.
                made = parse(plain(payloads))
            for path in self._times:
                _check_times(path, _at(made, path))
            return made.cast(kind)

        def convert_or_repeat(payloads: pa.BinaryArray) -> pa.Array:
            try:
                return convert(payloads)
            except BaseException as error:
                if len(payloads) > 1 or isinstance(error, Exception) or not is_fault(error):
                    raise
            # ptars panics if a writer omits optional data, such as a value of a map.
            return convert(plain(payloads))

        def read(payloads: pa.BinaryArray) -> Rows:
            wrong: dict[int, str] = {}
            starts = pc.unique(pc.binary_slice(payloads, 0, 1)).to_pylist()
            if starts == [b"\0"] and written.name_of(FIRST_MESSAGE) == name:
                payloads = without_head(payloads, 1)
            else:
                found, wrong = read_each(payloads, content, pa.binary(), pa.binary(), words)
                payloads = found.fill_null(b"")
            sizes = pc.binary_length(payloads).to_numpy(zero_copy_only=False)
            for number in map(int, (sizes > _SHALLOW).nonzero()[0]):
                try:
                    self._class.FromString(payloads[number].as_py())
                except (DecodeError, RecursionError) as error:
                    wrong[number] = f"{words}: {shorten_error(error)}"
            if wrong:
                is_wrong = [number in wrong for number in range(len(payloads))]
                payloads = pc.if_else(is_wrong, pa.scalar(b"", pa.binary()), payloads)
            made, more = convert_rows(
                len(payloads), lambda low, high: convert_or_repeat(payloads[low:high]), kind, words
            )
            return made, {**more, **wrong}

        return read

    def check(self, document: Document) -> None:
        """Raise UnfitError if the reader cannot read values written with another schema."""
        written = _message_class(ProtobufFile(document), self._message.full_name).DESCRIPTOR
        kinds = {field.number: field for field in written.fields}
        for field in self._message.fields:
            other = kinds.get(field.number)
            if other is not None and _wire_kind(other) != _wire_kind(field):
                raise UnfitError(
                    f"its field {field.name} ({field.number}) is of another type in schema "
                    f"{document.id}"
                )


_VARINTS = (3, 4, 5, 8, 13, 14)
_ZIGZAGS = (17, 18)


def _wire_kind(field: Any) -> str:
    """Return the kind of a field's encoding. Fields of one kind can be read as each other."""
    if field.type in _VARINTS:
        return "varint"
    if field.type in _ZIGZAGS:
        return "zigzag"
    if field.type in (9, 12):
        return "bytes"
    return str(field.type)


class ProtobufWriter:
    """Writes values by a schema.

    Parameters
    ----------
    document : Document
    message : str
        The full name of the message; empty for the first one of the file.

    Attributes
    ----------
    kind : pa.DataType
        The type of the schema's values.
    name : str
        The full name of the message.
    """

    def __init__(self, document: Document, message: str = "") -> None:
        file = ProtobufFile(document)
        descriptor = _message_class(file, message).DESCRIPTOR
        self._handler, own = _handler(descriptor)
        self.name = descriptor.full_name
        self._own = replace_types(own, {})
        self.kind = replace_types(own, _WIDER)
        self._head = frame_indexes(file.indexes_of(self.name))
        self._rules = list(_rules(descriptor, own, ()))

    def check(self, kind: pa.DataType) -> None:
        """Raise UnfitError if values of a type do not fit the schema."""
        check_type(plain_type(kind), self.kind, self._own)

    def write(self, values: pa.Array) -> Rows:
        """Encode values; null stays null."""
        valid = values.is_valid()
        present = plain_lists(values.filter(valid))

        def work(low: int, high: int) -> pa.Array:
            made = present[low:high].cast(self._own)
            for path, rule in self._rules:
                rule(_at(made, path))
            batch = pa.RecordBatch.from_struct_array(made)
            return self._handler.record_batch_to_array(batch)

        found, wrong = convert_rows(len(present), work, pa.binary(), f"it is not a {self.name}")
        return with_nulls(valid, (join_bytes(self._head, found), wrong))


def _rules(
    message: Any, kind: pa.DataType, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], _Rule]]:
    """Return rules that ptars does not check: the path of each affected field, and its rule."""
    for choice in message.oneofs:
        if len(choice.fields) > 1:  # otherwise a single optional field
            yield (
                path,
                partial(_check_choice, choice.name, [field.name for field in choice.fields]),
            )
    for field in message.fields:
        of, here, inner = field, (*path, field.name), _element(kind.field(field.name).type)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            yield path, partial(_check_map, field.name)
            of = field.message_type.fields_by_name["value"]
        if of.enum_type is not None:
            names = {value.name for value in of.enum_type.values}
            yield here, partial(_check_enum, field.name, names)
        elif of.message_type is None or of.message_type.full_name == _BYTES:
            continue
        elif pa.types.is_struct(inner):
            yield from _rules(of.message_type, inner, here)
        elif pa.types.is_binary(inner):
            yield here, partial(_check_absent, field.name)


def _times(kind: pa.DataType, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all times and durations."""
    inner = _element(kind)
    if pa.types.is_struct(inner):
        for field in inner:
            yield from _times(field.type, (*path, field.name))
    elif pa.types.is_timestamp(inner) or pa.types.is_duration(inner):
        yield path


def _element(kind: pa.DataType) -> pa.DataType:
    """Return the element type inside lists and maps."""
    while pa.types.is_list(kind) or pa.types.is_map(kind):
        kind = kind.item_type if pa.types.is_map(kind) else kind.value_type
    return kind


def _at(values: pa.Array, path: tuple[str, ...]) -> pa.Array:
    """Return a field's values, with values in lists and maps flattened."""
    for name in (*path, ""):
        while pa.types.is_list(values.type) or pa.types.is_map(values.type):
            if pa.types.is_list(values.type):
                values = values.flatten()
            else:  # for a slice, `items` contains the items of the whole array
                ends = values.offsets
                values = values.items[ends[0].as_py() : ends[-1].as_py()]
        if name:
            values = _field(values, name)
    return values


def _field(values: pa.Array, name: str) -> pa.Array:
    """Return a field of structs. The field is null wherever the struct is null."""
    return pc.struct_field(values, [name])


def _check_times(path: tuple[str, ...], values: pa.Array) -> None:
    """Raise ValueError for a time that is out of range; ptars would write the last valid one."""
    found = pc.min_max(values.cast(pa.int64())).as_py()
    if found["max"] == _NO_TIME[0] or found["min"] == _NO_TIME[1]:
        raise ValueError(f"the time {'.'.join(path)} is out of range")


def _check_absent(field: str, values: pa.Array) -> None:
    """Raise ValueError for a message inside itself, which ptars would omit."""
    if values.null_count < len(values):
        raise ValueError(f"the field {field} has a message in itself, which cannot be written")


def _check_map(field: str, values: pa.Array) -> None:
    """Raise ValueError if a map has a key twice; readers would see the last value."""
    check_keys(_field(values, field))


def _check_enum(field: str, names: set[str], values: pa.Array) -> None:
    """Raise ValueError for a text that is not an enum name; ptars would write zero."""
    for text in pc.unique(values).to_pylist():
        if text is not None and text not in names:
            raise ValueError(f"the enumeration {field} has no {text!r}")


def _check_choice(choice: str, members: list[str], values: pa.Array) -> None:
    """Raise ValueError if several members of a oneof are set; readers would see the last one."""
    present = sum(_field(values, name).is_valid().to_numpy(zero_copy_only=False).astype(int)
                  for name in members)  # fmt: skip
    if (present > 1).any():
        raise ValueError(f"more than one member of {choice} is not null")
