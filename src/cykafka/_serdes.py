"""The serializers of a serializing client, from its configuration to its close().

A serde is a serializer or a deserializer.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cykafka._core.client.handle import Handle
from cykafka._core.common.coroutines import is_coroutine
from cykafka._steps import Steps, run

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:  # the defaults of type variables are for type checkers
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

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
        A serde and its builder are both given.
    """

    def __init__(self, config: dict[str, Any], kind: str) -> None:
        if not isinstance(config, dict):
            raise TypeError(f"expected configuration dict, got {type(config).__name__}")
        self.config = dict(config)
        self.key: Any = None
        self.value: Any = None
        self._builders: dict[str, Any] = {}
        self._owned: list[Any] = []
        self._kind = kind
        for field in ("key", "value"):
            name = f"{field}.{kind}"
            serde = self.config.pop(name, None)
            builder = self.config.pop(f"{name}.builder", None)
            if serde is not None and builder is not None:
                raise ValueError(f"{name} and {name}.builder are mutually exclusive")
            if serde is not None and not callable(serde):
                raise TypeError(f"{name}: expected a callable, got {type(serde).__name__}")
            setattr(self, field, serde)
            if builder is not None:
                self._builders[field] = builder

    def build(self) -> Steps[None]:
        """Steps that call the builders. Raise ValueError if one does not return a pair."""
        whole = self.config
        for field, builder in self._builders.items():
            name = f"{field}.{self._kind}.builder"
            made = yield builder.build(dict(whole), field == "key")
            if not isinstance(made, tuple | list) or len(made) != 2:
                raise ValueError(
                    f"{name}: expected (serde, dict) from build(), got {type(made).__name__}"
                )
            serde, left = made
            self._owned.append(serde)
            if serde is not None and not callable(serde):
                raise ValueError(
                    f"{name}: expected a callable from build(), got {type(serde).__name__}"
                )
            if not isinstance(left, dict):
                raise ValueError(
                    f"{name}: expected a dict of the remaining configuration from build(), "
                    f"got {type(left).__name__}"
                )
            # Each builder gets the whole configuration. The client gets the properties that no
            # builder has taken.
            self.config = {key: left[key] for key in left if key in self.config}
            setattr(self, field, serde)

    def offer_cluster_id(self, client: Handle) -> None:
        """Give the serdes that accept it a function that returns the cluster's id."""
        resolver = _cluster_id_resolver(client)
        for serde in (self.key, self.value):
            set_resolver = getattr(serde, "set_cluster_id_resolver", None)
            if callable(set_resolver):
                set_resolver(resolver)

    def closing(self, *names: str) -> Steps[None]:
        """Steps that close all serdes that builders made, by the first of these methods that each
        has; then raise the first error, if any."""
        owned, self._owned = self._owned, []
        first: BaseException | None = None
        for serde in owned:
            closers = [getattr(serde, name, None) for name in names]
            close = next(filter(callable, closers), None)
            if close is None:
                continue
            try:
                yield close()
            except BaseException as error:
                if first is None:
                    first = error
                else:
                    _log.warning("Failed to close %r", serde, exc_info=True)
        if first is not None:
            raise first

    def close(self) -> None:
        """Close all serdes that builders made; then raise the first error, if any."""
        run(self.closing("close"))


def open_serdes(
    config: dict[str, Any], kind: str, start: Callable[[dict[str, Any]], None]
) -> Serdes:
    """Return a client's serdes, after calling the builders and then `start` with the client's
    configuration. Raise TypeError for a coroutine function."""
    serdes = Serdes(config, kind)
    try:
        run(serdes.build())
        for field in ("key", "value"):
            serde = getattr(serdes, field)
            if is_coroutine(serde):
                raise TypeError(
                    f"{field}.{kind}: {serde!r} is a coroutine function; only "
                    "AsyncSerializingProducer and AsyncDeserializingConsumer accept one"
                )
        start(serdes.config)
    except BaseException:
        try:
            serdes.close()
        except Exception:
            _log.warning("Failed to close a serializer", exc_info=True)
        raise
    return serdes


def _cluster_id_resolver(client: Handle) -> Callable[[], str]:
    # The application's serdes may outlive the client, and must not keep it alive.
    reference = weakref.ref(client)

    def cluster_id() -> str:
        client = reference()
        if client is None:
            raise RuntimeError("cannot get the cluster's id: the client no longer exists")
        return client.cluster_id(timeout=CLUSTER_ID_S)

    return cluster_id
