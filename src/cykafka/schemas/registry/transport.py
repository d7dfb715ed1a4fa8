"""Requests to Schema Registry: several URLs, retries, TLS and authentication."""

from __future__ import annotations

import base64
import copy
import json
import random
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from cykafka.schemas.model.error import (
    SchemaNotFoundError,
    SchemaRefusedError,
    SchemaRegistryError,
)
from cykafka.schemas.registry.options import is_address, is_header

if TYPE_CHECKING:
    import urllib3

__all__ = ["Transport"]

_Parsed = TypeVar("_Parsed")
_CONTENT = "application/vnd.schemaregistry.v1+json"
_RETRIABLE = (408, 429, 500, 502, 503, 504)
_UNKNOWN = SchemaRegistryError.UNKNOWN
_HEADERS = {
    "bearer.auth.logical.cluster": "target-sr-cluster",
    "bearer.auth.identity.pool.id": "Confluent-Identity-Pool-Id",
}
# The number of connections that stay open for each host.
_CONNECTIONS = 8
# The timeout of a request for what is known already.
_URGENT_S = 2.0
# A longer response is not the registry's.
_MOST_BYTES = 100 << 20
_PART_BYTES = 1 << 16
# A token is renewed when this share of its time is over.
_TOKEN_USE = 0.8
# The pause before the next attempt to renew a token that is still valid.
_TOKEN_PAUSE_S = 5.0


class Transport:
    """Sends requests and retries them. Thread-safe.

    Parameters
    ----------
    options : mapping
        From `read_options`.

    Raises
    ------
    ValueError
        The environment's proxy is unusable.
    SchemaRegistryError
        The certificates cannot be read.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        try:
            import urllib3
        except ModuleNotFoundError as error:
            words = f"{error}: pip install 'cykafka[schemas]'"
            raise ModuleNotFoundError(words, name=error.name) from None
        self._options = options
        split = [_split_user(url.strip().rstrip("/")) for url in options["url"].split(",")]
        self._urls = [url for url, _ in split]
        self._first = 0  # the number of the URL that responded last
        self._retries = options["max.retries"]
        self._closed = threading.Event()
        user = options["basic.auth.user.info"] or split[0][1]
        self._basic = "" if user is None else _basic(user)
        self._settings: dict[str, Any] = {
            "ssl_context": _tls(options),
            "timeout": options["timeout"],
            "maxsize": _CONNECTIONS,
            # Only redirects: `_respond` retries.
            "retries": urllib3.Retry(None, connect=0, read=0, redirect=3, status=0, other=0),
        }
        self.after_fork()

    def after_fork(self) -> None:
        """Use other connections and locks than the parent process."""
        is_closed, self._closed = self._closed.is_set(), threading.Event()
        if is_closed:
            self._closed.set()
        given, issuer = self._options["proxy"], self._options["bearer.auth.issuer.endpoint.url"]
        self._pools = {
            url: _pool(given or _environment_proxy(url), self._settings)
            for url in (*self._urls, *([issuer] if issuer else []))
        }
        self._fields = _bearer(self._options, self._fetch_token)

    def close(self) -> None:
        """End the waits between retries, and close the connections that are not in use."""
        self._closed.set()
        for pool in self._pools.values():
            pool.clear()

    def check_open(self) -> None:
        """Raise RuntimeError if the client is closed."""
        if self._closed.is_set():
            raise RuntimeError("the Schema Registry client has been closed")

    def request(
        self,
        method: str,
        path: str,
        parse: Callable[[Any], _Parsed],
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        is_urgent: bool = False,
    ) -> _Parsed:
        """Send a request, and return what `parse` makes of the response's JSON.

        Parameters
        ----------
        method, path : str
            The path begins with a slash, and its parts are quoted.
        parse : callable
            A LookupError, TypeError, ValueError or ArithmeticError means an unexpected response.
        query : mapping, optional
            Values that are None or False are left out. A list gives several parameters.
        body : optional
            What to send as JSON.
        is_urgent : bool, default False
            Fail after one attempt, and after 2 seconds for each URL. An OAuth server also has 2
            seconds.

        Raises
        ------
        SchemaRegistryError
            The registry does not respond, refuses the request or fails.
        RuntimeError
            The client is closed.
        """
        text = _query(query or {})
        content = None if body is None else json.dumps(body).encode()
        url, response, data, sent = self._respond(method, path + text, content, is_urgent)
        return self._parsed(f"{method} {url}{path}", response, data, parse, sent)

    def _respond(
        self, method: str, path: str, content: bytes | None, is_urgent: bool
    ) -> tuple[str, urllib3.BaseHTTPResponse, bytes, str]:
        """Return the URL of the first final response, the response, its content, and the
        credentials that were sent."""
        import urllib3

        self.check_open()
        attempts, timeout = self._retries + 1, self._options["timeout"]
        if is_urgent:
            attempts, timeout = 1, min(timeout, _URGENT_S)
        failed: Exception | None = None
        for attempt in range(attempts):
            if attempt and self._closed.wait(self._pause_s(attempt)):
                self.check_open()
            first = self._first
            for offset in range(len(self._urls)):
                number = (first + offset) % len(self._urls)
                url, failed = self._urls[number], None
                try:
                    headers = self._headers(content is not None, timeout)
                    response, data = _exchange(
                        self._pools[url], method, url + path, timeout, body=content,
                        headers=headers,
                    )  # fmt: skip
                except urllib3.exceptions.HTTPError as error:
                    failed = getattr(error, "reason", None) or error
                    continue
                except SchemaRegistryError as error:  # of the OAuth server
                    if error.http_status_code not in (_UNKNOWN, *_RETRIABLE):
                        raise
                    failed = error
                    break
                if response.status not in _RETRIABLE:
                    self._first = number
                    return url, response, data, headers.get("Authorization", "")
        if failed is None:
            return url, response, data, headers.get("Authorization", "")
        if isinstance(failed, SchemaRegistryError):
            raise failed
        words = (
            f"Schema Registry {url} does not respond ({method} {path.partition('?')[0]}, "
            f"{attempts} attempts): {failed}. Check that it is up, that the address is "
            "right, and the ssl.* options"
        )
        raise SchemaRegistryError(_UNKNOWN, _UNKNOWN, str(failed), text=words) from None

    def _pause_s(self, attempt: int) -> float:
        least, most = self._options["retries.wait.ms"], self._options["retries.max.wait.ms"]
        # The pauses of several clients must differ, or they would all retry at once.
        limit: float = min(least * 2.0 ** (attempt - 1), most)
        return limit / 1000 * random.uniform(0.5, 1)

    def _headers(self, has_content: bool, timeout: float) -> dict[str, str]:
        headers = {"Accept": f"{_CONTENT}, application/json"}
        if has_content:
            headers["Content-Type"] = _CONTENT
        if self._basic:
            headers["Authorization"] = self._basic
        elif self._fields is not None:
            headers |= _bearer_headers(self._fields(timeout))
        return headers

    def _parsed(
        self, request: str, response: Any, data: bytes, parse: Callable[[Any], _Parsed], sent: str
    ) -> _Parsed:
        try:
            content = json.loads(data) if data else None
        except (ValueError, RecursionError):
            content = None
        status = response.status
        if 200 <= status < 300:
            try:
                return parse(content)
            except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
                pass
        given = content if isinstance(content, dict) else {}
        code = given.get("error_code")
        code = code if isinstance(code, int) else _UNKNOWN
        message = _without_credentials(str(given.get("message") or response.reason or ""), sent)
        words = f"{status} {message}".strip()
        # Without such a code the path may be wrong, which does not make records bad.
        if status == 404 and 40401 <= code <= 40499:
            text = f"{message} (HTTP status code {status}, SR code {code}): {request}"
            raise SchemaNotFoundError(status, code, message, text=text)
        if status in (409, 422):
            raise SchemaRefusedError(
                status, code, message, text=f"Schema Registry refuses ({request}): {words}"
            )
        if status in (401, 403):
            option = "bearer.auth.token" if self._fields is not None else "basic.auth.user.info"
            text = (
                f"Schema Registry refuses the request ({request}): {words}. Check the user, the "
                "password or the token, and its permissions"
            )
            raise SchemaRegistryError(status, code, message, text=text, option=option)
        text = (
            f"Schema Registry fails ({request}): {words}. Check that the address belongs to "
            "Schema Registry, and read its log"
        )
        raise SchemaRegistryError(status, code, message, text=text)

    def _fetch_token(self, timeout: float) -> tuple[str, float]:
        """Request a token with OAuth's client credentials. Returns also its seconds to live."""
        import urllib3

        given = self._options
        url = given["bearer.auth.issuer.endpoint.url"]
        user = f"{given['bearer.auth.client.id']}:{given['bearer.auth.client.secret']}"
        try:
            response, data = _exchange(
                self._pools[url],
                "POST",
                url,
                timeout,
                fields={"grant_type": "client_credentials", "scope": given["bearer.auth.scope"]},
                headers={"Authorization": _basic(user)},
                encode_multipart=False,
            )
            answer = json.loads(data)
            return answer["access_token"], float(answer.get("expires_in") or 0)
        except urllib3.exceptions.HTTPError as error:
            status, cause = _UNKNOWN, str(getattr(error, "reason", None) or error)
        except (LookupError, TypeError, ValueError, ArithmeticError):
            status, cause = response.status, f"{response.status} {response.reason or ''}".strip()
        host, _ = _split_user(url.partition("?")[0])
        text = (
            f"the OAuth server {host} returns no token: {cause}. Check the address, and the "
            "client's id, secret and scope in bearer.auth.*"
        )
        option = "bearer.auth.issuer.endpoint.url"
        raise SchemaRegistryError(status, _UNKNOWN, cause, text=text, option=option) from None


def _exchange(
    pool: urllib3.PoolManager, method: str, url: str, timeout: float, **given: Any
) -> tuple[urllib3.BaseHTTPResponse, bytes]:
    """Send a request once, and return the response and its content.

    Raises urllib3's HTTPError, also for a response that does not end. The timeout is for each
    packet of the response's header: urllib3 can limit a header's time only with a further thread.
    """
    from urllib3.exceptions import HTTPError

    until = time.monotonic() + timeout
    try:
        response = pool.request(method, url, timeout=timeout, preload_content=False, **given)
    except HTTPError:
        raise
    except ValueError as error:
        raise HTTPError(f"it redirects to a wrong address: {error}") from None
    parts, size = [], 0
    try:
        # `read1` returns what has arrived: the timeout of `read` is for each of its packets.
        while part := response.read1(_PART_BYTES):
            parts.append(part)
            size += len(part)
            if size > _MOST_BYTES:
                raise HTTPError(f"its response has more than {_MOST_BYTES} bytes")
            if time.monotonic() > until:
                raise HTTPError(f"its response does not end within {timeout:g} seconds")
    except BaseException:
        response.close()
        raise
    response.release_conn()
    return response, b"".join(parts)


def _environment_proxy(url: str) -> str | None:
    """Return the proxy that the environment names for an address, or None."""
    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(_host(parts.netloc)):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not is_address(proxy):
        raise ValueError(
            f"the environment's proxy for {parts.scheme}:// is not http:// or https:// with a "
            'host: set "proxy" or no_proxy'
        )
    return proxy


def _pool(proxy: str | None, settings: dict[str, Any]) -> urllib3.PoolManager:
    import urllib3

    if proxy is None:
        return urllib3.PoolManager(**settings)
    url, user = _split_user(proxy)
    headers = {} if user is None else {"Proxy-Authorization": _basic(user)}
    return urllib3.ProxyManager(url, proxy_headers=headers, **settings)


def _basic(user: str) -> str:
    """Return the header for ``USER:PASSWORD``. Bytes that are not UTF-8 stay as they were."""
    return f"Basic {base64.b64encode(user.encode(errors='surrogateescape')).decode()}"


def _without_credentials(text: str, header: str) -> str:
    """Return what a server responds without what it has from an Authorization header."""
    kind, _, secret = header.partition(" ")
    secrets = [secret]
    if kind == "Basic":
        secrets.append(base64.b64decode(secret).decode(errors="surrogateescape").partition(":")[2])
    for known in filter(None, secrets):
        text = text.replace(known, "***")
    return text


def _host(place: str) -> str:
    return place.rpartition("@")[2]


def _split_user(url: str) -> tuple[str, str | None]:
    """Return an address without its user, and ``USER:PASSWORD`` or None."""
    parts = urlsplit(url)
    user = None
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return urlunsplit(parts._replace(netloc=_host(parts.netloc))), user


def _query(given: Mapping[str, Any]) -> str:
    kept = {
        name: "true" if value is True else value
        for name, value in given.items()
        if value is not None and value is not False
    }
    return f"?{urlencode(kept, doseq=True)}" if kept else ""


def _tls(options: Mapping[str, Any]) -> ssl.SSLContext:
    authority = options["ssl.ca.location"]
    try:
        if authority in (None, False, True):
            context = ssl.create_default_context()
        elif Path(authority).is_dir():
            context = ssl.create_default_context(capath=authority)
        else:
            context = ssl.create_default_context(cafile=authority)
        if authority is False:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if options["ssl.certificate.location"]:
            context.load_cert_chain(
                options["ssl.certificate.location"],
                options["ssl.key.location"],
                # With a function, OpenSSL does not prompt on the terminal for the password.
                lambda: options["ssl.key.password"] or "",
            )
    except OSError as error:
        words = f"cannot read the certificates of ssl.*: {error}"
        raise SchemaRegistryError(
            _UNKNOWN, _UNKNOWN, words, text=words, option="ssl.ca.location"
        ) from None
    return context


def _bearer(
    options: Mapping[str, Any], fetch: Callable[[float], tuple[str, float]]
) -> Callable[[float], Mapping[str, Any]] | None:
    """Return the function that returns a request's ``bearer.auth.*`` fields, or None.

    The function's argument is the request's timeout.
    """
    source = options["bearer.auth.credentials.source"]
    if source == "CUSTOM":
        provide = options["bearer.auth.custom.provider.function"]
        given = options["bearer.auth.custom.provider.config"] or {}
        return lambda _: provide(given)
    if source == "OAUTHBEARER":
        token = _Token(fetch)
        return lambda timeout: {**options, "bearer.auth.token": token.get(timeout)}
    return (lambda _: options) if options["bearer.auth.token"] is not None else None


def _bearer_headers(fields: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(fields, Mapping) or not fields.get("bearer.auth.token"):
        raise ValueError(
            '"bearer.auth.custom.provider.function" returned no "bearer.auth.token": expected a '
            "dict with this key"
        )
    headers = {}
    for name in ("bearer.auth.token", *_HEADERS):
        value = fields.get(name)
        if not is_header(value):
            raise ValueError(f'"{name}": expected printable ASCII, without spaces')
        text = ",".join(value) if isinstance(value, list | tuple) else value
        if text and name in _HEADERS:
            headers[_HEADERS[name]] = text
        elif text:
            headers["Authorization"] = f"Bearer {text}"
    return headers


class _Token:
    """A token that is renewed before it expires. Thread-safe.

    One thread requests the token. Others use the old token, or wait if the token has expired.
    """

    def __init__(self, fetch: Callable[[float], tuple[str, float]]) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._pending: Future[str] | None = None
        self._text = ""
        self._renewal = self._expiry = 0.0

    def get(self, timeout: float) -> str:
        """Return a valid token, or raise SchemaRegistryError after the timeout in seconds."""
        found = None
        while found is None:
            found = self._share(timeout)
        return found

    def _share(self, timeout: float) -> str | None:
        """Return the token, or wait for the thread that renews it; None if that ended."""
        mine: Future[str] = Future()
        try:
            with self._lock:
                now, pending = time.monotonic(), self._pending
                if now < self._expiry and (now < self._renewal or pending is not None):
                    return self._text
                if pending is None:
                    pending = self._pending = mine
            if pending is mine:
                return self._renew(mine, timeout)
        finally:
            if mine.cancel():  # it has no result, because of an interrupt
                self._end(mine)
        try:
            error = pending.exception(timeout)
        except CancelledError:
            return None
        except TimeoutError:
            words = f"the OAuth server returns no token within {timeout:g} seconds"
            raise SchemaRegistryError(_UNKNOWN, _UNKNOWN, words, text=words) from None
        if error is not None:
            raise copy.copy(error)
        return pending.result()

    def _renew(self, mine: Future[str], timeout: float) -> str:
        """Request a token, and pass the result to the threads that wait for it."""
        start = time.monotonic()
        try:
            text, seconds = self._fetch(timeout)
            renewal, expiry = start + seconds * _TOKEN_USE, start + seconds
        except SchemaRegistryError as error:
            text, renewal, expiry = self._text, time.monotonic() + _TOKEN_PAUSE_S, self._expiry
            if time.monotonic() >= expiry:
                self._end(mine)
                mine.set_exception(copy.copy(error))
                raise
        with self._lock:
            self._text, self._renewal, self._expiry = text, renewal, expiry
        self._end(mine)
        mine.set_result(text)
        return text

    def _end(self, mine: Future[str]) -> None:
        with self._lock:
            if self._pending is mine:
                self._pending = None
