"""Avro's rules for schema resolution, as far as schemas alone show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

_PLAIN = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAMED = ("record", "error", "enum", "fixed")
# What a reader's type also reads.
_PROMOTIONS = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "string": ("bytes",),
    "bytes": ("string",),
}


class AvroSchema:
    """A parsed schema.

    Parameters
    ----------
    schema : Any
        The schema's JSON.
    parts : iterable, optional
        The JSON of the schemas that it refers to, each after those that it refers to itself.

    Raises
    ------
    ValueError
        The schema is not an Avro schema.
    """

    def __init__(self, schema: Any, parts: Iterable[Any] = ()) -> None:
        self._named: dict[str, Any] = {}
        for part in parts:
            self._resolved(part, "")
        self.root = self._resolved(schema, "")

    def mistakes_of_reader(self, reader: AvroSchema) -> list[str]:
        """Return why a reader's schema cannot read what this schema writes."""
        return list(_mistakes(reader, reader.root, self, self.root, "", set()))

    def type_of(self, schema: Any) -> Any:
        """Return the type behind a name."""
        return self._named.get(schema, schema) if isinstance(schema, str) else schema

    def _resolved(self, schema: Any, namespace: str) -> Any:
        """Return a schema with full names and without wrappers of plain types."""
        if isinstance(schema, str):
            if schema in _PLAIN:
                return schema
            for name in (_full(schema, namespace), schema):
                if name in self._named:
                    return name
            raise ValueError(f"{schema!r} is not the name of a type")
        if isinstance(schema, list):
            return [self._resolved(branch, namespace) for branch in schema]
        if not isinstance(schema, dict) or "type" not in schema:
            raise ValueError(f"{schema!r} has no type")
        kind = schema["type"]
        if kind in _NAMED:
            return self._define(schema, kind, namespace)
        if kind == "array":
            return {"type": kind, "items": self._resolved(schema["items"], namespace)}
        if kind == "map":
            return {"type": kind, "values": self._resolved(schema["values"], namespace)}
        return self._resolved(kind, namespace)

    def _define(self, schema: dict[str, Any], kind: str, namespace: str) -> str:
        name = _full(schema["name"], schema.get("namespace", namespace))
        if name in self._named:
            raise ValueError(f"{name} is defined twice")
        found = self._named[name] = {**schema, "type": kind, "name": name}
        if "fields" in schema:
            inner = name.rpartition(".")[0]
            found["fields"] = [
                {**field, "type": self._resolved(field["type"], inner)}
                for field in schema["fields"]
            ]
        elif kind in ("record", "error"):
            raise ValueError(f"the record {name} has no fields")
        return name


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _mistakes(
    reader: AvroSchema, read: Any, writer: AvroSchema, written: Any, place: str,
    seen: set[tuple[str, str]],
) -> Iterator[str]:  # fmt: skip
    """Yield why `read`, a part of the reader's schema, cannot read `written`."""
    if isinstance(written, list):
        for branch in written:
            yield from _mistakes(reader, read, writer, branch, place, seen)
        return
    if isinstance(read, list):
        tried = [list(_mistakes(reader, each, writer, written, place, seen)) for each in read]
        if all(tried):
            words = _words(writer.type_of(written))
            yield f"{place or '/'}: no branch of the reader's union reads {words}"
        return
    if isinstance(read, str) and isinstance(written, str) and read not in _PLAIN:
        if (read, written) in seen:
            return  # a record that contains itself
        seen = seen | {(read, written)}
    read, written = reader.type_of(read), writer.type_of(written)
    of_reader, of_writer = _kind(read), _kind(written)
    if of_reader != of_writer:
        if of_writer not in _PROMOTIONS.get(of_reader, ()):
            yield f"{place or '/'}: {_words(read)} cannot read {_words(written)}"
    elif of_reader == "array":
        inner = f"{place}/items"
        yield from _mistakes(reader, read["items"], writer, written["items"], inner, seen)
    elif of_reader == "map":
        inner = f"{place}/values"
        yield from _mistakes(reader, read["values"], writer, written["values"], inner, seen)
    elif of_reader in _NAMED:
        names = {read["name"], *read.get("aliases", ())}
        if not {name.rpartition(".")[2] for name in names} & {written["name"].rpartition(".")[2]}:
            yield f"{place or '/'}: the name is {read['name']}, expected {written['name']}"
        elif of_reader == "fixed" and read["size"] != written["size"]:
            yield f"{place or '/'}: the size is {read['size']}, expected {written['size']}"
        elif of_reader == "enum" and "default" not in read:
            missing = set(written["symbols"]) - set(read["symbols"])
            if missing:
                yield f"{place or '/'}: no symbols {sorted(missing)}"
        elif "fields" in read:
            old = {field["name"]: field["type"] for field in written["fields"]}
            for field in read["fields"]:
                either = [field["name"], *field.get("aliases", ())]
                name = next((name for name in either if name in old), None)
                inner = f"{place}/{field['name']}"
                if name is not None:
                    yield from _mistakes(reader, field["type"], writer, old[name], inner, seen)
                elif "default" not in field:
                    yield f"{inner}: a new field needs a default"


def _kind(schema: Any) -> str:
    return schema if isinstance(schema, str) else str(schema["type"])


def _words(schema: Any) -> str:
    return schema if isinstance(schema, str) else str(schema.get("name", schema["type"]))
