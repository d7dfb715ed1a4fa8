"""A Schema Registry client, which caches responses for the life of the process."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote, urlsplit

from cykafka.internal import did_you_mean
from cykafka.spark.jobs.schemas.document import FORMS, Document, Reference, UnfitError

__all__ = ["DEFAULTS", "NotFoundError", "Registry", "RegistryError", "mistakes", "registry_of"]

# The options, with the names from Confluent's clients, and their defaults.
DEFAULTS = {
    "url": "",
    "basic.auth.credentials.source": "USER_INFO",
    "basic.auth.user.info": "",
    "bearer.auth.credentials.source": "STATIC_TOKEN",
    "bearer.auth.token": "",
    "bearer.auth.logical.cluster": "",
    "bearer.auth.identity.pool.id": "",
    "ssl.ca.location": "",
    "ssl.certificate.location": "",
    "ssl.key.location": "",
    "ssl.key.password": "",
    "timeout": "30",  # s
    "max.retries": "3",
    "retries.wait.ms": "1000",
    "cache.latest.ttl.sec": "60",
    "auto.register.schemas": "false",
    "subject.name.strategy.type": "TOPIC",
}
# The allowed values of options with a fixed set of values.
_CHOICES = {
    "basic.auth.credentials.source": ("USER_INFO",),
    "bearer.auth.credentials.source": ("STATIC_TOKEN",),
    "auto.register.schemas": ("true", "false"),
    "subject.name.strategy.type": ("TOPIC", "RECORD", "TOPIC_RECORD"),
}
_NUMBERS = ("timeout", "max.retries", "retries.wait.ms", "cache.latest.ttl.sec")
_WHOLE = re.compile(r"[0-9]{1,9}")
# The options whose values become headers unchanged.
_HEADERS = ("bearer.auth.token", "bearer.auth.logical.cluster", "bearer.auth.identity.pool.id")
_NO_HEADER = re.compile(r"[^!-~]")
_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
_CONTENT = "application/vnd.schemaregistry.v1+json"
_MOST_REFERENCES = 1000
# The registry's codes for a missing subject, version or schema.
_ABSENT = (40401, 40402, 40403)


class RegistryError(RuntimeError):
    """The registry does not respond, or rejects a request. The records may be good."""


class NotFoundError(LookupError):
    """The registry does not contain the subject, version, id or schema."""


def mistakes(options: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the wrong options, each with the reason. Reasons never contain secrets."""
    found = []
    for name in options:
        if name not in DEFAULTS:
            found.append((name, f"the registry has no such option{did_you_mean(name, DEFAULTS)}"))
    settings = {**DEFAULTS, **options}
    if not settings["url"]:
        found.append(
            ("url", 'is missing: the address of Schema Registry, such as "http://host:8081"')
        )
    for url in settings["url"].split(",") if settings["url"] else []:
        try:
            parts = urlsplit(url.strip())
            is_url = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # the host or the port
            is_url = False
        if not is_url:
            found.append(("url", "expected http:// or https:// and a host"))
        elif "@" in parts.netloc:
            found.append(("url", 'put the user and the password into "basic.auth.user.info"'))
    if settings["basic.auth.user.info"] and ":" not in settings["basic.auth.user.info"]:
        found.append(("basic.auth.user.info", "expected USER:PASSWORD"))
    if settings["basic.auth.user.info"] and settings["bearer.auth.token"]:
        found.append(("bearer.auth.token", '"basic.auth.user.info" is also set: expected one'))
    if settings["ssl.key.location"] and not settings["ssl.certificate.location"]:
        found.append(("ssl.key.location", '"ssl.certificate.location" is missing'))
    for name in _FILES:
        if settings[name] and not Path(settings[name]).is_file():
            found.append((name, f"the file {settings[name]} does not exist"))
    for name in _NUMBERS:
        if not _WHOLE.fullmatch(settings[name]):
            found.append((name, "expected a whole number"))
        elif name == "timeout" and not int(settings[name]):
            found.append((name, "expected a whole number greater than 0"))
    for name in _HEADERS:
        if _NO_HEADER.search(settings[name]):  # the error of the HTTP library would quote it
            found.append((name, "expected printable ASCII, without spaces and line breaks"))
    for name, choices in _CHOICES.items():
        if settings[name] not in choices:
            found.append((name, f"expected {' or '.join(choices)}"))
    return found


_made: dict[tuple[tuple[str, str], ...], Registry] = {}
_making = Lock()


def registry_of(options: Mapping[str, str]) -> Registry:
    """Return this process's registry client with these options."""
    key = tuple(sorted(options.items()))
    with _making:
        if key not in _made:
            _made[key] = Registry(options)
        return _made[key]


class Registry:
    """A Schema Registry client. Thread-safe.

    Caches a schema by its id or its version number forever. Caches a subject's latest version, and
    the absence of a schema, for ``cache.latest.ttl.sec``.

    Parameters
    ----------
    options : mapping of str to str
        Without mistakes (`mistakes`).
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        import ssl

        import urllib3

        self.options = {**DEFAULTS, **options}
        given = self.options
        self._urls = [url.strip().rstrip("/") for url in given["url"].split(",")]
        self._attempts = int(given["max.retries"]) + 1
        self._ttl = float(given["cache.latest.ttl.sec"])
        self._cache: dict[str, tuple[float, Any]] = {}
        self._lock = Lock()
        headers = {"Accept": _CONTENT}
        if given["basic.auth.user.info"]:
            octets = base64.b64encode(given["basic.auth.user.info"].encode())
            headers["Authorization"] = f"Basic {octets.decode()}"
        elif given["bearer.auth.token"]:
            headers["Authorization"] = f"Bearer {given['bearer.auth.token']}"
        for name, header in (
            ("bearer.auth.logical.cluster", "target-sr-cluster"),
            ("bearer.auth.identity.pool.id", "Confluent-Identity-Pool-Id"),
        ):
            if given[name]:
                headers[header] = given[name]
        try:
            context = ssl.create_default_context(cafile=given["ssl.ca.location"] or None)
            if given["ssl.certificate.location"]:
                context.load_cert_chain(
                    given["ssl.certificate.location"],
                    given["ssl.key.location"] or None,
                    # With a function, OpenSSL does not prompt on the terminal for the password.
                    lambda: given["ssl.key.password"],
                )
        except OSError as error:
            raise RegistryError(
                f'key "registry": cannot read the certificates of ssl.*: {error}'
            ) from None
        self._pool = urllib3.PoolManager(
            headers=headers,
            ssl_context=context,
            timeout=float(given["timeout"]),
            retries=urllib3.Retry(
                self._attempts - 1,
                status_forcelist=(429, 500, 502, 503, 504),
                allowed_methods=None,
                # urllib3 retries at once, and then after twice this time.
                backoff_factor=int(given["retries.wait.ms"]) / 2000,
                backoff_jitter=int(given["retries.wait.ms"]) / 4000,
                raise_on_status=False,
                respect_retry_after_header=False,  # it may be hours
            ),
        )

    def by_id(self, number: int) -> Document:
        """Return the schema with an id.

        Raises
        ------
        NotFoundError
        RegistryError
        UnfitError
            The schema's type is not a supported format.
        """
        path = f"/schemas/ids/{number}"
        found: Document = self._cached(path, lambda: self._document(self._request_schema(path)))
        return replace(found, id=number)

    def version(self, subject: str, version: str = "latest") -> Document:
        """Return a version of a subject. Raises like `by_id`."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"

        def find() -> Document:
            answer = self._request_schema(path)
            return replace(self._document(answer), id=int(answer["id"]))

        found: Document = self._cached(path, find, expires=version == "latest")
        return found

    def id_of(self, subject: str, document: Document) -> int:
        """Return a schema's id in a subject. With auto.register.schemas, registers the schema."""
        # The registry knows Google's own files.
        imports = [name for name, _ in document.parts if not name.startswith("google/protobuf/")]
        if imports and not document.references:
            raise UnfitError(
                "the schema imports others: register them and the schema, and name it as "
                "SUBJECT:VERSION"
            )
        body = {
            "schema": document.text,
            "schemaType": FORMS[document.form],
            "references": [vars(reference) for reference in document.references],
        }
        path = f"/subjects/{quote(subject, safe='')}"
        path += "/versions" if self.options["auto.register.schemas"] == "true" else ""
        key = f"{path} {document.form} {document.text}"
        return int(self._cached(key, lambda: self._send("POST", path, body)["id"]))

    def _cached(self, key: str, find: Any, *, expires: bool = False) -> Any:
        # Hold the lock during a request, so that threads do not request the same schema.
        with self._lock:
            until, found = self._cache.get(key, (0.0, None))
            if time.monotonic() >= until:
                try:
                    found = find()
                except (NotFoundError, UnfitError) as error:
                    found, expires = error, True
                until = time.monotonic() + self._ttl if expires else float("inf")
                self._cache[key] = until, found
        if isinstance(found, Exception):
            raise found.with_traceback(None)
        return found

    def _document(self, answer: Mapping[str, Any]) -> Document:
        """Return a schema with the schemas that it refers to."""
        kind = answer.get("schemaType", "AVRO")
        form = next((form for form, name in FORMS.items() if name == kind), None)
        if form is None:
            raise UnfitError(f"its type is {kind}, which the key decode does not support")
        references = _references(answer)
        parts: dict[str, str] = {}
        for reference in references:
            self._collect(reference, parts)
        return Document(form, answer["schema"], tuple(parts.items()), references)

    def _collect(self, reference: Reference, parts: dict[str, str]) -> None:
        if reference.name in parts:
            return
        if len(parts) >= _MOST_REFERENCES:
            raise UnfitError(f"it refers to more than {_MOST_REFERENCES} other schemas")
        path = f"/subjects/{quote(reference.subject, safe='')}/versions/{reference.version}"
        # Records for deleted subjects may still exist. An id also finds a deleted schema.
        answer = self._request_schema(path, "?deleted=true")
        for needed in _references(answer):
            self._collect(needed, parts)
        parts[reference.name] = answer["schema"]

    def _request_schema(self, path: str, query: str = "") -> Any:
        answer = self._send("GET", path + query)
        if answer.get("schemaType") == FORMS["protobuf"]:
            # Only Protobuf has this format: with Avro some registries fail.
            query += "&" if query else "?"
            answer = self._send("GET", f"{path}{query}format=serialized")
        return answer

    def _send(self, method: str, path: str, body: Any = None) -> Any:
        import urllib3

        for number, url in enumerate(self._urls):
            content = None if body is None else json.dumps(body).encode()
            headers = {**self._pool.headers, "Content-Type": _CONTENT}
            try:
                answer = self._pool.request(method, url + path, body=content, headers=headers)
            except urllib3.exceptions.HTTPError as error:
                if number + 1 < len(self._urls):
                    continue
                cause = getattr(error, "reason", None) or error
                raise RegistryError(
                    f'key "registry.url": Schema Registry {url} does not respond '
                    f"({method} {path}, {self._attempts} attempts): {cause}. "
                    "Check that it is up, that the address is right, and the ssl.* options"
                ) from None
            if answer.status < 500 or number + 1 == len(self._urls):
                return self._content(method, url + path, answer)
        raise AssertionError

    def _content(self, method: str, address: str, answer: Any) -> Any:
        """Return a response's content, or raise the exception for its status."""
        try:
            content = json.loads(answer.data)
        except ValueError:
            content = None
        words = content.get("message") if isinstance(content, dict) else None
        words = f"{answer.status} {words or answer.reason or ''}".strip()
        expected = "schema" if method == "GET" else "id"
        if 200 <= answer.status < 300 and isinstance(content, dict) and expected in content:
            return content
        # Without such a code the path may be wrong, which does not make records bad.
        code = content.get("error_code") if isinstance(content, dict) else None
        if answer.status == 404 and code in _ABSENT:
            raise NotFoundError(words)
        if answer.status in (401, 403):
            given = self.options
            name = "bearer.auth.token" if given["bearer.auth.token"] else "basic.auth.user.info"
            raise RegistryError(
                f'key "registry.{name}": Schema Registry refuses the request ({method} '
                f"{address}): {words}. Check the user, the password or the token, and "
                "its permissions"
            )
        if answer.status in (409, 422):
            raise UnfitError(f"Schema Registry refuses the schema ({method} {address}): {words}")
        raise RegistryError(
            f'key "registry.url": Schema Registry fails ({method} {address}): {words}. Check that '
            "the address belongs to Schema Registry, and read its log"
        )


def _references(answer: Mapping[str, Any]) -> tuple[Reference, ...]:
    return tuple(
        Reference(reference["name"], reference["subject"], int(reference["version"]))
        for reference in answer.get("references") or ()
    )
