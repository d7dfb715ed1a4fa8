"""A cache that sends one request for each key, however many threads ask for it; and one for what
is made from schemas.
"""

from __future__ import annotations

import copy
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from functools import lru_cache, wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar, cast

from cykafka.schemas.model.document import UnfitError
from cykafka.schemas.model.error import SchemaNotFoundError, SchemaRegistryError

__all__ = ["Cache", "keep_results"]

_Arguments = ParamSpec("_Arguments")
_Value = TypeVar("_Value")
_log = logging.getLogger(__name__)
# Until the next request for a value that has expired, while the registry is unavailable.
_RETRY_S = 5.0
_FOREVER = float("inf")


class Cache:
    """Keeps the last used values. Thread-safe.

    While a thread requests a value again that has expired, the others get the old value.

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
        # Until when each value is valid, and the value; the last used is the last one.
        self._values: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        # The same for errors, which are never raised themselves, only copies: a raised error
        # refers to its traceback, and so to the variables of the caller. The oldest is the first.
        self._errors: OrderedDict[Hashable, tuple[float, Exception]] = OrderedDict()
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the requests of the parent process's other threads, which do not exist here."""
        self._pending: dict[Hashable, Future[Any]] = {}
        self._lock = Lock()

    def get(self, key: Hashable) -> Any:
        """Return a key's value, or None. Raises the error that is kept for the key."""
        with self._lock:
            return self._get(key)

    def fetch(
        self,
        key: Hashable,
        find: Callable[[], _Value],
        find_again: Callable[[], _Value] | None = None,
    ) -> _Value:
        """Return a key's value, or the result of `find`, which one thread calls for all.

        `find_again` is called instead if there is a value that has expired.
        """
        found: _Value | None = self.get(key)
        while found is None:
            found = self._share(key, find, find_again or find)
        return found

    def forget_errors(self) -> None:
        """Forget all errors, also of requests that are under way."""
        with self._lock:
            self._errors.clear()
            self._pending.clear()

    def clear(self, subject: str | None = None) -> None:
        """Forget all values; or those whose key begins with a subject."""
        with self._lock:
            # A request that is under way may have an old result: `_end` does not store it.
            for stored in (self._values, self._errors, self._pending):
                for key in [key for key in stored if subject in (None, _subject(key))]:
                    del stored[key]

    def _get(self, key: Hashable) -> Any:
        now = time.monotonic()
        while self._errors and next(iter(self._errors.values()))[0] <= now:
            self._errors.popitem(last=False)
        if key in self._errors:
            raise copy.copy(self._errors[key][1])
        until, value = self._values.get(key, (0.0, None))
        if value is None or (now >= until and not self._is_pending(key)):
            return None
        self._values.move_to_end(key)
        return value

    def _is_pending(self, key: Hashable) -> bool:
        pending = self._pending.get(key)
        return pending is not None and not pending.done()

    def _share(
        self, key: Hashable, find: Callable[[], _Value], find_again: Callable[[], _Value]
    ) -> _Value | None:
        """Request a value, or wait for the thread that does; None if that was interrupted."""
        mine: Future[_Value] = Future()
        try:
            with self._lock:
                found: _Value | None = self._get(key)
                if found is not None:
                    return found
                _, old = self._values.get(key, (0.0, None))
                pending = self._pending.get(key)
                if pending is None or pending.done():
                    pending = self._pending[key] = mine
            if pending is mine:
                return self._request(key, mine, find if old is None else find_again, old)
        finally:
            if mine.cancel():  # it has no result, because of an interrupt
                with self._lock:
                    if self._pending.get(key) is mine:
                        del self._pending[key]
        try:
            error = pending.exception()
        except CancelledError:
            return None
        if error is not None:
            raise copy.copy(error)
        return cast(_Value, pending.result())

    def _request(
        self, key: Hashable, mine: Future[_Value], find: Callable[[], _Value], old: Any
    ) -> _Value:
        """Store what `find` returns, or its error."""
        ttl = self._ttl
        try:
            value = find()
        except (SchemaRegistryError, UnfitError) as error:
            if old is None or not _is_away(error):
                kept = copy.copy(error)
                is_kept = isinstance(error, SchemaNotFoundError | UnfitError)
                self._end(key, mine, self._errors, kept, self._absent_ttl if is_kept else 0)
                mine.set_exception(kept)
                raise
            _log.warning("%s. Using the schema of the last response", error)
            value, ttl = cast(_Value, old), min(ttl, _RETRY_S)
        self._end(key, mine, self._values, value, ttl)
        mine.set_result(value)
        return value

    def _end(
        self, key: Hashable, mine: Future[Any], stored: OrderedDict[Hashable, tuple[float, Any]],
        value: Any, ttl: float,
    ) -> None:  # fmt: skip
        with self._lock:
            if self._pending.get(key) is not mine:
                return
            del self._pending[key]
            self._values.pop(key, None)
            if ttl <= 0:
                return
            stored[key] = time.monotonic() + ttl, value
            while len(stored) > self._capacity:
                stored.popitem(last=False)


def _is_away(error: Exception) -> bool:
    """Whether the registry may know the schema, but does not respond."""
    if not isinstance(error, SchemaRegistryError):
        return False
    status = error.http_status_code
    return status in (error.UNKNOWN, 408, 429) or status >= 500


def _subject(key: Hashable) -> Any:
    return key[0] if isinstance(key, tuple) else key


def keep_results(
    capacity: int,
) -> Callable[[Callable[_Arguments, _Value]], Callable[_Arguments, _Value]]:
    """Return a decorator like `functools.lru_cache`, which also keeps each UnfitError.

    So an unusable schema is compiled once, and not for each record. Errors of the registry are not
    kept.
    """

    def decorate(function: Callable[_Arguments, _Value]) -> Callable[_Arguments, _Value]:
        @lru_cache(capacity)
        def find(*args: Any, **kwargs: Any) -> tuple[Any, UnfitError | None]:
            try:
                return function(*args, **kwargs), None
            except SchemaRegistryError:
                raise
            except UnfitError as error:
                return None, copy.copy(error)  # as in `Cache`

        @wraps(function)
        def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Value:
            found, error = cast(Any, find)(*args, **kwargs)
            if error is not None:
                raise copy.copy(error)
            return cast(_Value, found)

        return call

    return decorate
