"""Guess the format of values from a sample."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

__all__ = ["guess"]

_ENVELOPE_FIELDS = {"message_id", "message_type", "message"}
_DEEP = 8
_MANY_FIELDS = 200


def guess(values: Iterable[bytes | None], headers: Iterable[str] = ()) -> dict[str, Any]:
    """Guess the most frequent kind of some values.

    Parameters
    ----------
    values : iterable of bytes or None
    headers : iterable of str
        The names of the records' headers.

    Returns
    -------
    dict
        ``kind`` is the kind as text. ``sampled`` is the number of values, and ``of`` the number of
        values of that kind. For JSON objects, ``schema`` is DDL for the key ``schema`` of other
        jobs. ``others`` has the numbers of other kinds, if any.
    """
    kinds: Counter[str] = Counter()
    documents: list[Any] = []
    for value in values:
        kind, document = _kind(value)
        kinds[kind] += 1
        if kind == "JSON objects":
            documents.append(document)
    if not kinds:
        return {"kind": "no values", "of": 0, "sampled": 0}
    kind, count = max(kinds.items(), key=lambda item: (item[1], item[0]))
    found = {"kind": kind, "of": count, "sampled": kinds.total()}
    if kind == "JSON objects":
        found["schema"] = ddl(documents)
        if all(document.keys() >= _ENVELOPE_FIELDS for document in documents):
            found["kind"] = "envelopes of pip-services in their form json"
    if "message_type" in headers and found["kind"] == kind:
        found["kind"] = f"{kind}, perhaps envelopes of pip-services in their form headers"
    if len(kinds) > 1:
        others = ((name, number) for name, number in kinds.most_common() if name != kind)
        found["others"] = dict(others)
    return found


def _kind(value: bytes | None) -> tuple[str, Any]:
    if value is None:
        return "null", None
    value = bytes(value)
    if not value:
        return "empty", None
    if value[0] == 0 and len(value) > 5:
        return "binary in the schema registry's form", None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "binary", None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        printable = all(char.isprintable() or char in "\r\n\t" for char in text)
        return ("text" if printable else "binary"), None
    if isinstance(document, dict):
        return "JSON objects", document
    if isinstance(document, list):
        return "JSON arrays", None
    if isinstance(document, int | float) and not isinstance(document, bool):
        return "numbers", None
    return "JSON values", None


def ddl(documents: list[dict[str, Any]]) -> str:
    """The schema of JSON objects as Spark's DDL."""
    return ", ".join(f"{_name(name)} {kind}" for name, kind in _members(documents, 0))


def _members(documents: list[dict[str, Any]], depth: int) -> list[tuple[str, str]]:
    names: dict[str, list[Any]] = {}
    for document in documents:
        for name, value in document.items():
            names.setdefault(name, []).append(value)
    return [(name, _type(values, depth)) for name, values in names.items()][:_MANY_FIELDS]


def _type(values: list[Any], depth: int) -> str:
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if kinds == {bool}:
        return "BOOLEAN"
    if kinds == {int}:
        return "BIGINT" if all(abs(value) < 2**63 for value in present) else "STRING"
    if kinds and kinds <= {int, float}:
        return "DOUBLE"
    if kinds == {list}:
        return f"ARRAY<{_type([each for value in present for each in value], depth + 1)}>"
    if kinds == {dict} and depth < _DEEP and any(present):
        members = _members(present, depth + 1)
        return f"STRUCT<{', '.join(f'{_name(name)}: {kind}' for name, kind in members)}>"
    return "STRING"  # Spark reads any other JSON value as its text


def _name(name: str) -> str:
    plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    return name if plain else "`" + name.replace("`", "``") + "`"
