"""JSON Schema: parses values and checks them. jsonschema-rs does the work."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from cykafka.schemas.model.document import MOST_SCHEMA_LEVELS, UnfitError, is_shallow
from cykafka.schemas.model.faults import shorten_error

try:
    import jsonschema_rs
except ImportError as error:
    raise ImportError(f"{error}: pip install 'cykafka[schemas]'") from error

__all__ = ["accepts_null", "fault_of", "inlined", "loads", "title_of", "validator_for"]


# An address for a schema without one.
_ADDRESS = "json-schema:///"
# A schema that uses the next one twice, and so on, becomes any number of objects.
_MOST_NODES = 100_000
# Finding the error of a value may take as many steps, each with objects in memory.
_MOST_NODES_OF_ERRORS = 5_000
# The same for a value's items and properties times the schema's objects.
_MOST_PAIRS_OF_ERRORS = 50_000


class _Validator(NamedTuple):
    """Functions of jsonschema-rs's validator, and when `iter_errors` would take too long.

    It does so for values with more than `most_levels` (for all if that is 0, for none if it is
    None), or with more than `most_parts` items and properties.
    """

    is_valid: Callable[[Any], bool]
    iter_errors: Callable[[Any], Any]
    most_levels: int | None
    most_parts: int

    def is_slow(self, value: Any) -> bool:
        most = self.most_levels
        if most is not None and (most < 1 or not is_shallow(value, most)):
            return True
        count, rest = 0, [value]
        while rest and count <= self.most_parts:
            part = rest.pop()
            if isinstance(part, dict | list):
                count += len(part)
                rest.extend(part.values() if isinstance(part, dict) else part)
        return count > self.most_parts


def _refuse(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")


_decoder = json.JSONDecoder(parse_constant=_refuse)


def loads(data: bytes) -> Any:
    """Return the value of JSON in UTF-8. Raise ValueError also for NaN and Infinity."""
    return _decoder.decode(data.decode())


def validator_for(text: str, parts: tuple[tuple[str, str], ...]) -> _Validator:
    """Return the validator for a schema.

    As in confluent_kafka, ``format`` is a comment.

    Parameters
    ----------
    text : str
    parts : tuple of (str, str)
        The names and texts of the schemas that it refers to.

    Raises
    ------
    UnfitError
        The text is not a JSON Schema, or the schema becomes too large when its references are
        replaced.
    """
    retrieve = _retriever(parts)
    try:
        schema = _parsed(text)
        found = jsonschema_rs.validator_for(schema, retriever=retrieve, validate_formats=False)
        registry = jsonschema_rs.Registry([(_ADDRESS, schema)], retriever=retrieve)
        resolver = registry.resolver(_ADDRESS)
        sizes: dict[tuple[str, str], int] = {}
        more: dict[tuple[str, str], int] = {}
        size = _size(schema, resolver, sizes, 0)
        _size(schema, resolver, more, 1)
    except RecursionError:
        raise UnfitError("the schema is nested too deeply") from None
    except (ValueError, TypeError, jsonschema_rs.ReferencingError) as error:
        raise UnfitError(f"it is not a JSON Schema: {shorten_error(error)}") from error
    if size > _MOST_NODES:
        raise UnfitError(f"its references make more than {_MOST_NODES} objects of it")
    # Each level of a value may multiply the steps by the references of a schema to itself.
    branches = max([more[place] - sizes[place] for place in sizes], default=0)
    most = int(math.log(_MOST_NODES_OF_ERRORS, branches)) if branches > 1 else None
    if size > _MOST_NODES_OF_ERRORS:
        most = 0
    return _Validator(
        found.is_valid, found.iter_errors, most, _MOST_PAIRS_OF_ERRORS // max(size, 1)
    )


def inlined(text: str, parts: tuple[tuple[str, str], ...]) -> Any:
    """Return a schema with its references replaced by the referenced schemas.

    The properties keep their order. The arguments and errors are those of `validator_for`.
    """
    validator_for(text, parts)  # raises UnfitError
    schema, retrieve = _parsed(text), _retriever(parts)
    try:
        registry = jsonschema_rs.Registry([(_ADDRESS, schema)], retriever=retrieve)
        found = jsonschema_rs.dereference(schema, retriever=retrieve)
        objects: dict[int, Any] = {}
        _key(schema, objects)
        for _, part in parts:
            with suppress(ValueError):  # the schema may not use it
                _key(_parsed(part), objects)
        return _in_order(found, schema, registry.resolver(_ADDRESS), objects)
    except RecursionError:
        raise UnfitError("the schema is nested too deeply") from None


def fault_of(validator: _Validator, value: Any) -> str | None:
    """Return in words why a value does not fit a schema, or None.

    Raises
    ------
    ValueError
        The value is not of a type of JSON.
    """
    # Looking for the error takes longer.
    if validator.is_valid(value):
        return None
    if validator.is_slow(value):
        return "the schema or the value is too large to say which part of the value is wrong"
    error = next(validator.iter_errors(value), None)
    if error is None:
        return None
    place = "".join(f"/{step}" for step in error.instance_path)
    return shorten_error(f"{place or 'the value'}: {error.message}")


def accepts_null(schema: Any) -> bool:
    """Return whether null fits a part of a schema. True if that is unknown."""
    refuse = _retriever(())
    try:
        found = jsonschema_rs.validator_for(schema, retriever=refuse, validate_formats=False)
        return bool(found.is_valid(None))
    except (ValueError, TypeError, jsonschema_rs.ReferencingError):  # it refers to the whole
        return True


def title_of(text: str) -> str | None:
    """Return a schema's title. Raise ValueError or RecursionError if it is not JSON."""
    schema = json.loads(text)
    return schema.get("title") if isinstance(schema, dict) else None


def _parsed(text: str) -> Any:
    schema = json.loads(text)
    if not is_shallow(schema, MOST_SCHEMA_LEVELS):
        raise RecursionError
    return schema


def _size(schema: Any, resolver: Any, known: dict[tuple[str, str], int], own: int) -> int:
    """Return the number of objects in a schema after its references are replaced.

    `known` has the sizes of references, by the address of their place and the reference. `own` is
    the size of a reference to what it is in, which stays.
    """
    if isinstance(schema, list):
        return sum(_size(each, resolver, known, own) for each in schema)
    if not isinstance(schema, dict):
        return 0
    resolver = _within(schema, resolver)
    size = 1 + sum(_size(each, resolver, known, own) for each in schema.values())
    for reference in map(schema.get, ("$ref", "$dynamicRef", "$recursiveRef")):
        if not isinstance(reference, str):
            continue
        place = resolver.base_uri, reference
        if place not in known:
            known[place] = own
            with suppress(jsonschema_rs.ReferencingError):
                found = resolver.lookup(reference)
                known[place] = _size(found.contents, found.resolver, known, own)
        size += known[place]
    return size


def _within(schema: dict[str, Any], resolver: Any) -> Any:
    """Return the resolver for the references in a schema."""
    if isinstance(schema.get("$id"), str):
        with suppress(jsonschema_rs.ReferencingError):  # an example may have such keys
            return resolver.lookup(schema["$id"]).resolver
    return resolver


def _key(value: Any, objects: dict[int, Any] | None = None) -> int:
    """Return a number for a value that does not depend on the order of properties.

    Adds the objects in the value to `objects`, by their numbers.
    """
    if isinstance(value, list):
        return hash(tuple([_key(each, objects) for each in value]))
    if not isinstance(value, dict):
        return hash(value)
    key = hash(frozenset([(name, _key(of, objects)) for name, of in value.items()]))
    if objects is not None:
        objects.setdefault(key, value)
    return key


def _in_order(found: Any, schema: Any, resolver: Any, objects: dict[int, Any]) -> Any:
    """Return what jsonschema-rs has made of a schema, in the schema's order: it sorts objects.

    `objects` has the objects of all texts as in `_key`.
    """
    if isinstance(found, list) and isinstance(schema, list):
        pairs = zip(found, schema, strict=False)
        return [_in_order(each, of, resolver, objects) for each, of in pairs]
    if not isinstance(found, dict) or not isinstance(schema, dict):
        return found
    # For each name what the schema has for it, or else what a schema has that it refers to.
    places: dict[str, tuple[Any, Any]] = {}
    seen = set()
    while isinstance(schema, dict):
        resolver = _within(schema, resolver)
        for name, of in schema.items():
            places.setdefault(name, (of, resolver))
        reference = schema.get("$ref")
        if not isinstance(reference, str) or (resolver.base_uri, reference) in seen:
            break
        seen.add((resolver.base_uri, reference))
        try:
            target = resolver.lookup(reference)
        except jsonschema_rs.ReferencingError:
            break
        schema, resolver = objects.get(_key(target.contents)), target.resolver
    names = dict.fromkeys([name for name in places if name in found] + list(found))
    return {
        name: _in_order(found[name], *places.get(name, (None, None)), objects) for name in names
    }


def _retriever(parts: tuple[tuple[str, str], ...]) -> Callable[[str], Any]:
    """Return a function that finds the schemas that a schema refers to.

    The longest name that an address ends with is the right one: ``common.json`` may be the name of
    one schema, and ``a/common.json`` of another.
    """
    longest = sorted(parts, key=lambda named: len(named[0]), reverse=True)

    def retrieve(address: str) -> Any:
        for name, part in longest:
            if address == name or address.endswith("/" + name.lstrip("/")):
                return _parsed(part)
        raise LookupError(f"the schema has no reference {address}")

    return retrieve
