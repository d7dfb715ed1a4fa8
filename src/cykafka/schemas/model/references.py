"""The schemas that a schema refers to, directly and indirectly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cykafka._steps import Steps
from cykafka.schemas.model.document import SCHEMA_TYPES, UnfitError
from cykafka.schemas.model.schema import SchemaReference

__all__ = ["SERIALIZED", "collect_parts", "context_of"]

SERIALIZED = "serialized"  # the format that Protobuf alone has
_MOST_REFERENCES = 1000


def collect_parts(
    client: Any, schema: Any, subject: str | None
) -> Steps[tuple[tuple[str, str], ...]]:
    """Return the names and texts of all referenced schemas, each after those it needs.

    Parameters
    ----------
    client : SchemaRegistryClient or AsyncSchemaRegistryClient or None
    schema : Schema
    subject : str or None
        The schema's subject, whose context its references belong to.

    Raises
    ------
    UnfitError
        There are too many references, or references without a client.
    """
    parts: dict[str, str] = {}
    seen: set[str] = set()
    # For each schema that is not complete: its name and text, context and references.
    open_: list[tuple[str, str, str, Iterator[SchemaReference]]] = [
        ("", "", context_of(subject), iter(schema.references or ()))
    ]
    while open_:
        name, text, context, references = open_[-1]
        reference = next(references, None)
        if reference is None:
            open_.pop()
            parts[name] = text
            continue
        if reference.name in parts:
            continue
        if reference.name in seen:
            raise UnfitError(f"the schemas refer to each other in a circle: {reference.name}")
        seen.add(reference.name)
        if len(seen) > _MOST_REFERENCES:
            raise UnfitError(f"the schema refers to more than {_MOST_REFERENCES} others")
        if client is None:
            raise UnfitError("the schema refers to others, so it needs a registry's client")
        of = reference.subject
        of = of if context_of(of) else f"{context}{of}"
        # Records for deleted subjects may still exist.
        found = yield client.get_version(of, reference.version, True)
        if found.schema.schema_type == SCHEMA_TYPES["protobuf"]:
            # With Avro some registries fail.
            found = yield client.get_version(of, reference.version, True, SERIALIZED)
        needed = found.schema
        needs = iter(needed.references or ())
        open_.append((reference.name, needed.schema_str, context_of(of), needs))
    del parts[""]  # the schema itself
    return tuple(parts.items())


def context_of(subject: str | None) -> str:
    """Return a subject's context (``:.name:``), or an empty text."""
    if subject is None or not subject.startswith(":."):
        return ""
    return subject[: subject.find(":", 1) + 1]
