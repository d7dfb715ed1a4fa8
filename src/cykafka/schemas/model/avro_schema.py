"""Avro schemas as fastavro uses them, and the function that reads values."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from graphlib import CycleError, TopologicalSorter
from io import BytesIO
from typing import Any

from cykafka.schemas.model.document import MOST_SCHEMA_LEVELS, UnfitError, is_shallow
from cykafka.schemas.model.faults import shorten_error

try:
    import fastavro
    from fastavro import _read_py
    from fastavro.read import LOGICAL_READERS
except ImportError as error:
    raise ImportError(f"{error}: pip install 'cykafka[schemas]'") from error

__all__ = ["MOST_LEVELS", "AvroSchema", "without_logical_types"]

# If values nest deeply, fastavro's C code overflows the stack and crashes the process. A level
# takes about 1,000 bytes of the stack, and at least one byte of the value. fastavro's code in
# Python reads at least MOST_LEVELS levels, and then raises RecursionError.
MOST_LEVELS = 100
_SHORT = 200
# A schema's defaults may refer to each other, and so have any number of values.
_MOST_DEFAULTS = 100_000
# The time to convert a decimal grows with the square of its size.
_MOST_DECIMAL_BYTES = 1_000
_EXACT = Context(prec=3 * _MOST_DECIMAL_BYTES, Emin=MIN_EMIN, Emax=MAX_EMAX)
# fastavro's own decimals have no limit, and are rounded to the digits in the writer's schema.
_DECIMAL = "cykafka-decimal"
_PLAIN_DECIMAL = "cykafka-plain-decimal"
_RECORDS = ("record", "error")
# The types of defaults as JSON.
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    **dict.fromkeys(("int", "long"), (int,)),
    **dict.fromkeys(("float", "double"), (int, float)),
    **dict.fromkeys(("string", "bytes", "fixed", "enum"), (str,)),
    "array": (list,),
    **dict.fromkeys(("map", *_RECORDS), (dict,)),
}


class AvroSchema:
    """A schema as fastavro uses it.

    Parameters
    ----------
    text : str
    parts : tuple of (str, str)
        The names and texts of the schemas that it refers to, each after those that it refers to.
    is_plain : bool, default False
        Whether to remove logical types except decimal.

    Attributes
    ----------
    schema : object
        fastavro's parsed schema.
    named : dict
        Its named types.
    name : str or None
        The full name of the record, or the name of the type; a union has none.
    is_bytes : bool
        The schema is ``bytes``.
    is_recursive : bool
        Values may nest without a limit.
    texts : tuple of (str, tuple of (str, str))
        What it was made from.

    Raises
    ------
    UnfitError
        The text is not a schema.
    """

    def __init__(
        self, text: str, parts: tuple[tuple[str, str], ...], *, is_plain: bool = False
    ) -> None:
        self.texts = (text, parts)
        self._is_plain = is_plain
        self.named: dict[str, Any] = {}
        self._defaults = 0
        try:
            for _, part in (*parts, ("", text)):
                raw = json.loads(part)
                if not is_shallow(raw, MOST_SCHEMA_LEVELS):
                    raise RecursionError
                json.dumps(raw, ensure_ascii=False).encode()  # fails for half of a character
                raw = _changed(raw, _null_as_name)
                raw = without_logical_types(raw) if is_plain else raw
                self.schema = fastavro.parse_schema(raw, named_schemas=self.named)
            if parts:  # fastavro's functions know only the names in their schema
                whole = self._inlined(self.schema, set())
                self.named = {}
                self.schema = fastavro.parse_schema(whole, named_schemas=self.named)
            self._set_defaults()
            # What the fields of each named type contain, by `_inner`.
            self._contents = {
                name: [inner for field in known.get("fields", ()) for inner in self._inner(field)]
                for name, known in self.named.items()
            }
        except RecursionError:
            raise UnfitError("the schema is nested too deeply") from None
        except UnfitError:
            raise
        except (fastavro.schema.SchemaParseException, ValueError, LookupError, TypeError) as error:
            raise UnfitError(f"it is not an Avro schema: {shorten_error(repr(error))}") from error
        self.is_recursive = self._has_cycle()
        kind = self.schema if isinstance(self.schema, dict) else {"type": self.schema}
        name = kind.get("name", kind["type"])
        self.name = name if isinstance(name, str) else None
        self.is_bytes = kind["type"] == "bytes" and kind.get("logicalType") != "decimal"

    def check_sizes(self) -> None:
        """Raise UnfitError if a few bytes could encode any number of values."""
        empty: set[str] = set()
        direct = {
            name: {inner for inner, is_direct in found if is_direct and isinstance(inner, str)}
            for name, found in self._contents.items()
        }
        try:
            for name in TopologicalSorter(direct).static_order():
                fields = self.named[name].get("fields")
                if fields is not None and all(
                    self._is_empty(field["type"], empty) for field in fields
                ):
                    empty.add(name)
        except CycleError as error:
            raise UnfitError(
                f"{error.args[1][0]} contains itself and has no finite value"
            ) from None
        if any(self._is_empty(array["items"], empty) for array in self._arrays()):
            raise UnfitError("an array's elements have no bytes: their number is unlimited")

    def value_reader(
        self,
        reader: AvroSchema | None = None,
        *,
        has_record_names: bool = False,
        has_names: bool = False,
    ) -> Callable[[bytes, int], Any]:
        """Return a function that reads a value written with this schema, from an offset.

        Parameters
        ----------
        reader : AvroSchema, optional
            The reader's schema; by default this one.
        has_record_names : bool, default False
            Whether records of unions come with their names, as tuples.
        has_names : bool, default False
            Whether all named types of unions come with their names.

        Raises
        ------
        UnfitError
            Like `check_sizes`.
        """
        self.check_sizes()
        written, named = copy.deepcopy((self.schema, self.named))
        _rename_decimals(written, _PLAIN_DECIMAL if self._is_plain else _DECIMAL)
        wanted = None if reader is None else reader.schema
        if has_names:
            _name_no_branches(written, named)
            if reader is not None:
                wanted, named = copy.deepcopy((reader.schema, reader.named))
                _name_no_branches(wanted, named)
        # fastavro skips the elements of a field that the reader lacks also after the end of the
        # value: a length of 2**62 would take years. So the value is first read as it was written.
        is_checked = reader is not None and self._has_more_fields(reader)
        is_recursive = self.is_recursive
        names: dict[str, Any] = {"return_record_name": has_record_names or has_names}
        if has_names:
            names["return_named_type"] = True

        def read(data: bytes, start: int) -> Any:
            of = fastavro.schemaless_reader
            if is_recursive and len(data) > _SHORT:
                of = _read_py.schemaless_reader
            stream = BytesIO(data)
            if is_checked:
                stream.seek(start)
                of(stream, written, None)
            stream.seek(start)
            value = of(stream, written, wanted, **names)
            if stream.tell() != len(data):
                raise ValueError(f"{len(data) - stream.tell()} bytes follow it")
            return value

        return read

    def _has_more_fields(self, reader: AvroSchema) -> bool:
        """Return whether a record may have a field that the reader lacks."""
        known: dict[str, list[set[str]]] = {}
        for record in reader.named.values():
            names = {
                name
                for field in record.get("fields", ())
                for name in (field["name"], *field.get("aliases", ()))
            }
            for name in (record["name"], *record.get("aliases", ())):
                known.setdefault(_last(name), []).append(names)
        return any(
            not {field["name"] for field in record["fields"]} <= names
            for record in self.named.values()
            if "fields" in record
            for names in known.get(_last(record["name"]), [set()])
        )

    def _known(self, schema: Any) -> Any:
        return self.named.get(schema, schema) if isinstance(schema, str) else schema

    def _inlined(self, schema: Any, seen: set[str]) -> Any:
        """Return a parsed schema with each named type at the first place that needs it."""
        if isinstance(schema, str):
            if schema not in self.named or schema in seen:
                return schema
            schema = self.named[schema]
        if isinstance(schema, list):
            return [self._inlined(branch, seen) for branch in schema]
        if schema.get("name") in seen:
            return schema["name"]
        # fastavro has notes in keys of its own.
        kept = {name: value for name, value in schema.items() if not name.startswith("__")}
        seen |= {kept["name"]} if "name" in kept else set()
        for name in ("type", "items", "values"):
            if name in kept:
                kept[name] = self._inlined(kept[name], seen)
        if "fields" in kept:
            kept["fields"] = [
                {**field, "type": self._inlined(field["type"], seen)} for field in kept["fields"]
            ]
        return kept

    def _has_cycle(self) -> bool:
        every = {
            name: {inner for inner, _ in found if isinstance(inner, str)}
            for name, found in self._contents.items()
        }
        try:
            TopologicalSorter(every).prepare()
        except CycleError:
            return True
        return False

    def _arrays(self) -> Iterator[Any]:
        for found in (*self._contents.values(), self._inner({"type": self.schema})):
            for inner, _ in found:
                if isinstance(inner, dict):
                    yield inner

    def _inner(self, field: Any, is_direct: bool = True) -> Iterator[tuple[Any, bool]]:
        """Yield the names of the records in a field, and the arrays; without records' fields.

        The second value tells whether each value contains it.
        """
        schema = field["type"]
        if isinstance(schema, str):
            if "fields" in self.named.get(schema, ()):
                yield schema, is_direct
        elif isinstance(schema, list):
            for branch in schema:
                yield from self._inner({"type": branch}, False)
        elif schema["type"] in _RECORDS:
            yield schema["name"], is_direct
        elif schema["type"] in ("array", "map"):
            if schema["type"] == "array":
                yield schema, is_direct
            yield from self._inner({"type": schema.get("items", schema.get("values"))}, False)
        elif not isinstance(schema["type"], str):
            yield from self._inner(schema, is_direct)

    def _is_empty(self, schema: Any, empty: set[str]) -> bool:
        """Return whether values take no bytes; `empty` has the names of such records."""
        schema = self._known(schema)
        if isinstance(schema, str):
            return schema == "null"
        if isinstance(schema, list):
            return False
        kind = schema["type"]
        if kind in _RECORDS:
            return schema["name"] in empty
        if kind == "fixed":
            return not schema["size"]
        return self._is_empty(kind, empty) if kind not in ("array", "map", "enum") else False

    def _set_defaults(self) -> None:
        """Replace the defaults of fields, which a schema has as JSON, by fastavro's values."""
        fields = [
            field
            for known in self.named.values()
            for field in known.get("fields", ())
            if "default" in field
        ]
        defaults = []
        for field in fields:
            try:
                defaults.append(self._default(field["type"], field["default"]))
            except UnicodeEncodeError as error:
                raise UnfitError(f"the default of {field['name']}: {error}") from None
        for field, value in zip(fields, defaults, strict=True):
            field["default"] = value

    def _can_have(self, schema: Any, value: Any) -> bool:
        """Whether a default, as JSON, may be of a branch of a union."""
        schema = self._known(schema)
        kind = schema if isinstance(schema, str) else schema["type"]
        if not isinstance(kind, str):
            return self._can_have(kind, value)
        if type(value) not in _JSON_TYPES[kind]:
            return False
        if kind == "enum":
            return value in schema["symbols"]
        return kind not in _RECORDS or all(
            field["name"] in value or "default" in field for field in schema["fields"]
        )

    def _default(self, schema: Any, value: Any) -> Any:
        self._defaults += 1
        if self._defaults > _MOST_DEFAULTS:
            raise UnfitError(f"its defaults have more than {_MOST_DEFAULTS} values")
        schema = self._known(schema)
        if isinstance(schema, list):  # a default is of the first branch, or of any other
            fitting = (branch for branch in schema if self._can_have(branch, value))
            return self._default(next(fitting, "null"), value)
        if isinstance(schema, str):
            schema = {"type": schema}
        kind = schema["type"]
        if not isinstance(kind, str):
            return self._default(kind, value)
        if kind == "array" and isinstance(value, list):
            return [self._default(schema["items"], item) for item in value]
        if kind == "map" and isinstance(value, dict):
            return {name: self._default(schema["values"], item) for name, item in value.items()}
        if kind in _RECORDS and isinstance(value, dict):
            return {
                field["name"]: self._default(
                    field["type"], value.get(field["name"], field.get("default"))
                )
                for field in schema["fields"]
            }
        if kind in ("bytes", "fixed") and isinstance(value, str):
            value = value.encode("latin-1")
        logical = schema.get("logicalType")
        if logical == "decimal":
            return _read_decimal(value, schema) if isinstance(value, bytes) else value
        convert = LOGICAL_READERS.get(f"{kind}-{logical}")
        if convert is not None:
            # A default may be outside of its logical type, such as an empty text for a UUID.
            with suppress(ValueError, OverflowError):
                return convert(value, schema, None)
        return value


def _name_no_branches(schema: Any, named: dict[str, Any]) -> None:
    """Replace names of types in the unions of a parsed schema by the types.

    fastavro can name the branch of a value only if both schemas have it in the same form.
    """
    if isinstance(schema, list):
        for branch in schema:
            _name_no_branches(branch, named)
        schema[:] = [
            named.get(branch, branch) if isinstance(branch, str) else branch for branch in schema
        ]
    elif isinstance(schema, dict):
        for key in ("type", "items", "values"):
            _name_no_branches(schema.get(key), named)
        for field in schema.get("fields", ()):
            _name_no_branches(field["type"], named)


def without_logical_types(schema: Any) -> Any:
    """Return a schema without logical types, except decimal.

    The reader's schema defines what a number means, as in Java. fastavro would use the writer's.
    """

    def without(kept: dict[str, Any]) -> Any:
        if kept.get("logicalType") != "decimal":
            kept.pop("logicalType", None)
        return kept["type"] if kept.keys() == {"type"} else kept

    return _changed(schema, without)


def _null_as_name(schema: dict[str, Any]) -> Any:
    """Return ``null`` as its name, because unions look for that."""
    return "null" if schema.get("type") == "null" else schema


def _changed(schema: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    """Return a schema with each of its objects changed, the innermost first."""
    if isinstance(schema, list):
        return [_changed(branch, change) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kept = dict(schema)
    if kept.get("type") in _RECORDS:
        kept["fields"] = [
            {**field, "type": _changed(field["type"], change)} for field in kept["fields"]
        ]
    for name in ("type", "items", "values"):
        if name in kept:
            kept[name] = _changed(kept[name], change)
    return change(kept)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _rename_decimals(schema: Any, name: str) -> None:
    """Give the decimals of a parsed schema another logical type."""
    if isinstance(schema, list):
        for branch in schema:
            _rename_decimals(branch, name)
    elif isinstance(schema, dict):
        if schema.get("logicalType") == "decimal":
            schema["logicalType"] = name
        for key in ("type", "items", "values"):
            _rename_decimals(schema.get(key), name)
        for field in schema.get("fields", ()):
            _rename_decimals(field["type"], name)


def _read_decimal(data: bytes, schema: Any, _reader: Any = None) -> Decimal:
    """Return all digits, as Java does, also more than the schema's precision."""
    if len(data) > _MOST_DECIMAL_BYTES:
        raise ValueError(f"a decimal has {len(data)} bytes, more than {_MOST_DECIMAL_BYTES}")
    number = int.from_bytes(data, "big", signed=True)
    return Decimal(number).scaleb(-schema.get("scale", 0), _EXACT)


def _read_plain_decimal(data: bytes, schema: Any, reader: Any = None) -> Any:
    """Return a decimal; or the bytes, if the reader's schema lacks the logical type."""
    if reader in ("bytes", "string"):
        return data
    if isinstance(reader, dict) and reader.get("logicalType") != "decimal":
        return data
    return _read_decimal(data, schema)


for _kind in ("bytes", "fixed"):
    LOGICAL_READERS[f"{_kind}-{_DECIMAL}"] = _read_decimal
    LOGICAL_READERS[f"{_kind}-{_PLAIN_DECIMAL}"] = _read_plain_decimal
