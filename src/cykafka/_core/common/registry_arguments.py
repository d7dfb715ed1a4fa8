"""Checks the registry's client and the arguments that belong to it."""

from __future__ import annotations

from typing import Any

__all__ = ["check_encoding", "check_registry"]

_EXAMPLE = 'SchemaRegistryClient({"url": "http://localhost:8081"})'


def check_registry(registry: Any, method: str) -> None:
    """Raise TypeError if an argument is not a client of Schema Registry.

    Parameters
    ----------
    registry : object
        The argument.
    method : str
        The method that the client needs.
    """
    if not hasattr(registry, method):
        kind = type(registry)
        place = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        raise TypeError(
            f"registry: expected a client, such as {_EXAMPLE}, got {place}{kind.__name__}"
        )


def check_encoding(
    registry: Any, value: Any, schema: Any, subject: Any, *, awaits: bool = False
) -> None:
    """Check the arguments of ``publish_arrow()`` that depend on each other.

    Parameters
    ----------
    registry, value, schema, subject : object
        The arguments.
    awaits : bool, default False
        Whether the caller awaits the client's methods.

    Raises
    ------
    TypeError
        The registry is missing or is not a client.
    ValueError
        `value` names a column, although the registry's schema names those of the value.
    """
    if registry is None:
        for name, given in (("schema", schema), ("subject", subject)):
            if given is not None:
                raise TypeError(f"{name}: needs registry=, a client, such as {_EXAMPLE}")
        return
    check_registry(registry, "encode_table")
    from inspect import iscoroutinefunction  # not at the top: the import takes 15 ms

    if not awaits and iscoroutinefunction(registry.encode_table):
        raise TypeError(
            f"registry: {type(registry).__name__} is for asyncio: pass a SchemaRegistryClient, or "
            "await publish_arrow() of cykafka.aio.AsyncProducer"
        )
    if value != "value":
        raise ValueError(
            f"value: {value!r} cannot be combined with registry: the columns that key, headers, "
            "timestamp and partition do not name become the value. Omit value, and drop other "
            "columns"
        )
