"""One client for each process and its options, for work that many processes share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from threading import Lock

from cykafka.schemas.registry.client import SchemaRegistryClient

__all__ = ["SERIALIZER_DEFAULTS", "SHARED_DEFAULTS", "shared_client"]

# Options beside those of the client, and their defaults.
SERIALIZER_DEFAULTS = {"auto.register.schemas": "false", "subject.name.strategy.type": "TOPIC"}
# Such processes run for weeks, so that latest versions must expire.
SHARED_DEFAULTS = {"cache.latest.ttl.sec": "60"}

_clients: dict[tuple[tuple[str, str], ...], SchemaRegistryClient] = {}
_lock = Lock()


def _after_fork() -> None:
    """Use another lock than the parent process, in which a thread may hold the lock."""
    global _lock
    _lock = Lock()


os.register_at_fork(after_in_child=_after_fork)


def shared_client(options: Mapping[str, str]) -> SchemaRegistryClient:
    """Return this process's client with these options. Do not close the client.

    Parameters
    ----------
    options : mapping of str to str
        The client's options. Those of `SERIALIZER_DEFAULTS` may be among them.

    Raises
    ------
    ValueError, SchemaRegistryError
        Like `SchemaRegistryClient`.
    """
    conf = {**SHARED_DEFAULTS, **options}
    key = tuple(sorted((name, conf[name]) for name in conf if name not in SERIALIZER_DEFAULTS))
    with _lock:
        if key not in _clients:
            _clients[key] = SchemaRegistryClient(dict(key))
        return _clients[key]
