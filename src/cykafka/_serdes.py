"""The serializers of a serializing client, from its configuration to its close().

A serde is a serializer or a deserializer.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import Any

from cykafka._core.client.handle import Handle

CLUSTER_ID_S = 60.0

_log = logging.getLogger("cykafka")


class Serdes:
    """The serdes for keys and for values, and the list of those that the client closes.

    Parameters
    ----------
    config : dict
        The client's configuration; not changed.
    kind : str
        ``"serializer"`` or ``"deserializer"``.

    Attributes
    ----------
    key, value : callable or None
    config : dict
        The client's configuration without the properties that a builder has taken.

    Raises
    ------
    ValueError
        A serde and its builder are both given, or the builder does not return a pair.
    """

    def __init__(self, config: dict[str, Any], kind: str) -> None:
        if not isinstance(config, dict):
            raise TypeError(f"expected configuration dict, got {type(config).__name__}")
        self.config = dict(config)
        self._owned: list[Any] = []
        given = []
        for field in ("key", "value"):
            name = f"{field}.{kind}"
            serde = self.config.pop(name, None)
            builder = self.config.pop(f"{name}.builder", None)
            if serde is not None and builder is not None:
                raise ValueError(f"{name} and {name}.builder are mutually exclusive")
            if serde is not None and not callable(serde):
                raise TypeError(f"{name}: expected a callable, got {type(serde).__name__}")
            given.append((name, serde, builder))
        try:
            self.key, self.value = self._built(given)
        except BaseException:
            self.close_quietly()
            raise

    def _built(self, given: list[tuple[str, Any, Any]]) -> list[Any]:
        serdes = []
        whole = self.config
        for name, serde, builder in given:
            if builder is not None:
                made = builder.build(dict(whole), name.startswith("key"))
                if not isinstance(made, tuple | list) or len(made) != 2:
                    raise ValueError(
                        f"{name}.builder: expected (serde, dict) from build(), "
                        f"got {type(made).__name__}"
                    )
                serde, left = made
                self._owned.append(serde)
                if not isinstance(left, dict):
                    raise ValueError(
                        f"{name}.builder: expected a dict of the remaining configuration "
                        f"from build(), got {type(left).__name__}"
                    )
                # Each builder gets the whole configuration. The client gets the properties that no
                # builder has taken.
                self.config = {key: left[key] for key in left if key in self.config}
            serdes.append(serde)
        return serdes

    def offer_cluster_id(self, client: Handle) -> None:
        """Give the serdes that accept it a function that returns the cluster's id."""
        resolver = _cluster_id_resolver(client)
        for serde in (self.key, self.value):
            set_resolver = getattr(serde, "set_cluster_id_resolver", None)
            if callable(set_resolver):
                set_resolver(resolver)

    def close(self) -> None:
        """Close all serdes that builders made; then raise the first error, if any."""
        owned, self._owned = self._owned, []
        first: BaseException | None = None
        for serde in owned:
            close = getattr(serde, "close", None)
            if not callable(close):
                continue
            try:
                close()
            except BaseException as error:
                if first is None:
                    first = error
                else:
                    _log.warning("Failed to close %r", serde, exc_info=True)
        if first is not None:
            raise first

    def close_quietly(self) -> None:
        """Close, and log errors instead of raising: another exception is being raised."""
        try:
            self.close()
        except Exception:
            _log.warning("Failed to close a serializer", exc_info=True)


def _cluster_id_resolver(client: Handle) -> Callable[[], str]:
    # The application's serdes may outlive the client, and must not keep it alive.
    reference = weakref.ref(client)

    def cluster_id() -> str:
        client = reference()
        if client is None:
            raise RuntimeError("cannot get the cluster's id: the client no longer exists")
        return client.cluster_id(timeout=CLUSTER_ID_S)

    return cluster_id
