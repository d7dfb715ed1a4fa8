"""A cache that sends one request for each key, however many threads ask for it."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from threading import Lock
from typing import Any, TypeVar, cast

from cykafka.schemas.document import UnfitError
from cykafka.schemas.error import SchemaNotFoundError, SchemaRegistryError

__all__ = ["Cache"]

_Value = TypeVar("_Value")
_log = logging.getLogger(__name__)
# Until the next request for a value that has expired, while the registry is unavailable.
_RETRY_S = 5.0
_FOREVER = float("inf")


class Cache:
    """Keeps the last used values. Thread-safe.

    Parameters
    ----------
    capacity : int
        The number of values. A further value replaces the one that was not used for longest.
    ttl : float or None, optional
        Seconds until a value expires. None, the default: never. If the registry is then
        unavailable, an expired value is still returned.
    absent_ttl : float, default 0
        Seconds until the error of a missing or unusable schema expires. 0 keeps no errors.
    """

    def __init__(
        self, capacity: int, ttl: float | None = None, *, absent_ttl: float = 0.0
    ) -> None:
        self._capacity = capacity
        self._ttl = _FOREVER if ttl is None else ttl
        self._absent_ttl = absent_ttl
        self._entries: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the requests of the parent process's other threads, which do not exist here."""
        self._pending: dict[Hashable, Future[Any]] = {}
        self._lock = Lock()

    def get(self, key: Hashable) -> Any:
        """Return a key's value, or None. Raises the error that is kept for the key."""
        with self._lock:
            return self._get(key)

    def fetch(self, key: Hashable, find: Callable[[], _Value]) -> _Value:
        """Return a key's value, or the result of `find`, which one thread calls for all."""
        while True:
            with self._lock:
                found: _Value | None = self._get(key)
                if found is not None:
                    return found
                _, old = self._entries.get(key, (0.0, None))
                pending = self._pending.get(key)
                if pending is None:
                    mine = self._pending[key] = Future()
                    break
            try:
                result: _Value = pending.result()
            except CancelledError:
                continue  # the other thread was interrupted
            return result
        try:
            value = find()
        except Exception as error:
            if old is not None and not isinstance(old, Exception) and _is_away(error):
                _log.warning("%s. Using the schema of the last response", error)
                self._end(key, mine, old, min(self._ttl, _RETRY_S))
                mine.set_result(old)
                return cast(_Value, old)
            is_kept = isinstance(error, SchemaNotFoundError | UnfitError)
            self._end(key, mine, error, self._absent_ttl if is_kept else 0)
            mine.set_exception(error)
            raise
        except BaseException:
            self._end(key, mine, None, 0)
            mine.cancel()
            raise
        self._end(key, mine, value, self._ttl)
        mine.set_result(value)
        return value

    def clear(self, subject: str | None = None) -> None:
        """Forget all values; or those whose key begins with a subject."""
        with self._lock:
            # A request that is under way may have an old result: `_end` does not store it.
            for stored in (self._entries, self._pending):
                for key in [key for key in stored if subject in (None, _subject(key))]:
                    del stored[key]

    def _get(self, key: Hashable) -> Any:
        until, value = self._entries.get(key, (0.0, None))
        if time.monotonic() >= until:
            return None
        self._entries.move_to_end(key)
        if isinstance(value, Exception):
            raise value.with_traceback(None)
        return value

    def _put(self, key: Hashable, value: Any, ttl: float) -> None:
        if ttl <= 0:
            return
        self._entries[key] = time.monotonic() + ttl, value
        self._entries.move_to_end(key)
        while len(self._entries) > self._capacity:
            self._entries.popitem(last=False)

    def _end(self, key: Hashable, mine: Future[Any], value: Any, ttl: float) -> None:
        with self._lock:
            if self._pending.get(key) is mine:
                del self._pending[key]
                self._put(key, value, ttl)


def _is_away(error: Exception) -> bool:
    """Whether the registry may know the schema, but does not respond."""
    if not isinstance(error, SchemaRegistryError):
        return False
    return error.http_status_code == error.UNKNOWN or error.http_status_code >= 500


def _subject(key: Hashable) -> Any:
    return key[0] if isinstance(key, tuple) else key
