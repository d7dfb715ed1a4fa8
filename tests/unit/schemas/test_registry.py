"""The client of Schema Registry: authentication, TLS, retries, references, and its errors."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import pickle
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trustme
import urllib3
from machine import WAIT_S

from cykafka.schemas.model.document import UnfitError
from cykafka.schemas.model.error import (
    SchemaNotFoundError,
    SchemaRefusedError,
    SchemaRegistryError,
)
from cykafka.schemas.model.rules import check_rules
from cykafka.schemas.model.schema import (
    ConfigCompatibilityLevel,
    Schema,
    SchemaReference,
    SchemaVersion,
    ServerConfig,
)
from cykafka.schemas.registry import transport
from cykafka.schemas.registry.client import SchemaRegistryClient
from cykafka.schemas.serdes.avro_serde import AvroDeserializer
from cykafka.testing import SchemaRegistry

TEXT = '"string"'
SCHEMA = Schema(TEXT)
AGAIN = {"retries.wait.ms": 1}
ONCE = {"max.retries": 0}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as made:
        yield made


@pytest.fixture
def client(registry: SchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url, **AGAIN}) as made:
        yield made


def record(*fields: Any) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


ID, NAME = {"name": "id", "type": "long"}, {"name": "name", "type": "string"}
EXTRA = {"name": "extra", "type": "string", "default": ""}

# -- authentication and TLS


@pytest.mark.parametrize(
    ("server", "right", "wrong"),
    [
        ({"users": {"ada": "sé€cret"}}, {"basic.auth.user.info": "ada:sé€cret"},
         {"basic.auth.user.info": "ada:mistaken"}),
        ({"users": {"bob": "x", "ada": "se:cret"}}, {"basic.auth.user.info": "ada:se:cret"},
         {"basic.auth.user.info": "ada:mistaken"}),
        ({"token": "to.ken"}, {"bearer.auth.token": "to.ken"}, {"bearer.auth.token": "mistaken"}),
        ({"token": "to.ken"}, {"bearer.auth.token": "to.ken"}, {}),
    ],
)  # fmt: skip
def test_authentication(
    server: dict[str, Any], right: dict[str, str], wrong: dict[str, str]
) -> None:
    with SchemaRegistry(**server) as registry:
        number = registry.add("a-value", TEXT)
        url = {"url": registry.url}

        assert SchemaRegistryClient({**url, **right}).get_schema(number) == SCHEMA
        with pytest.raises(SchemaRegistryError, match=r"refuses the request.*401 Un") as caught:
            SchemaRegistryClient({**url, **wrong}).get_schema(number)

    assert caught.value.option == next(iter(wrong), "basic.auth.user.info")
    assert (caught.value.http_status_code, caught.value.error_code) == (401, 401)
    assert caught.value.error_message == "Unauthorized"
    assert "mistaken" not in str(caught.value) + repr(caught.value)


def test_a_user_in_the_url_is_in_no_message() -> None:
    with SchemaRegistry(users={"ada": "s/cret"}) as registry:
        number = registry.add("a-value", TEXT)
        url = registry.url.replace("://", "://ada:s%2Fcret@")
        client = SchemaRegistryClient({"url": url, **ONCE})

        assert client.get_schema(number) == SCHEMA

    with pytest.raises(SchemaRegistryError, match=f"Schema Registry {registry.url} ") as caught:
        client.get_subjects()
    assert "cret" not in str(caught.value) + repr(client)
    with pytest.raises(ValueError, match='"url": it has a user') as refused:
        SchemaRegistryClient({"url": url, "basic.auth.user.info": "bob:pass"})
    assert "cret" not in str(refused.value)


def test_tls_with_an_authority_and_a_client_certificate(tmp_path: Path) -> None:
    authority, ours = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ours))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    client = authority.issue_cert("client")
    client.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "client.pem"))
    with SchemaRegistry(tls=context) as registry:
        number = registry.add("a-value", TEXT)
        given = {"url": registry.url, **ONCE, "ssl.ca.location": str(ours)}
        cert = {"ssl.certificate.location": str(tmp_path / "client.pem")}

        assert SchemaRegistryClient({**given, **cert}).get_schema(number) == SCHEMA
        unchecked = {**given, **cert, "ssl.ca.location": False}
        with pytest.warns(urllib3.exceptions.InsecureRequestWarning):
            assert SchemaRegistryClient(unchecked).get_schema(number) == SCHEMA
        with pytest.raises(SchemaRegistryError, match=r"does not respond.*certificate"):
            SchemaRegistryClient(given | {"ssl.ca.location": None} | cert).get_schema(number)
        with pytest.raises(SchemaRegistryError, match="does not respond"):
            SchemaRegistryClient(given).get_schema(number)
    ours.write_text("no certificate")
    with pytest.raises(SchemaRegistryError, match=r"cannot read the certificates of ssl\.\*"):
        SchemaRegistryClient(given)


@contextmanager
def http_server(respond: Callable[[BaseHTTPRequestHandler, bytes], Any]) -> Iterator[str]:
    """Serve what a function responds: a status, headers and content. Yields the port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, content = respond(self, body)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"localhost:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def raw_server(send: Callable[[socket.socket], Any]) -> Iterator[str]:
    """Let a function send whatever it wants as the response. Yields the address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def respond() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        connection.recv(1 << 16)
                        send(connection)

        thread = threading.Thread(target=respond)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def endless(part: bytes, pause_s: float = 0) -> Callable[[socket.socket], None]:
    def send(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(part)
            time.sleep(pause_s)

    return send


@pytest.mark.parametrize(
    ("send", "words"),
    [
        (endless(b" " * 10**6), "its response has more than 104857600 bytes"),
        (endless(b" ", 0.05), "its response does not end within 0.5 seconds"),
    ],
)
def test_an_endless_response_is_an_error(
    send: Callable[[socket.socket], None], words: str
) -> None:
    timeout = 0.5 if "end within" in words else WAIT_S
    with raw_server(send) as url:
        client = SchemaRegistryClient({"url": url, "timeout": timeout, **ONCE})

        with pytest.raises(SchemaRegistryError, match=words):
            client.get_schema(1)


# urllib3 leaves the response to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_redirect_to_a_wrong_address_is_an_error() -> None:
    head = b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\nContent-Length: 0\r\n\r\n"
    with raw_server(lambda connection: connection.sendall(head)) as url:
        client = SchemaRegistryClient({"url": url, **ONCE})

        with pytest.raises(SchemaRegistryError, match="redirects to a wrong address"):
            client.get_schema(1)
    gc.collect()


@pytest.mark.parametrize(
    "content",
    [
        {"schema": 1},
        {"schema": None},
        {"schema": TEXT, "schemaType": ["AVRO"]},
        {"schema": TEXT, "references": 1},
        {"schema": TEXT, "references": [{"name": "a", "subject": ["b"], "version": 1}]},
        {"schema": TEXT, "ruleSet": 1},
        {"schema": TEXT, "ruleSet": {"domainRules": [1]}},
        {"schema": TEXT, "references": [{"name": "a", "subject": "b", "version": float("inf")}]},
        {"schema": TEXT, "metadata": 1},
    ],
)
def test_values_of_wrong_types_in_a_response_are_an_error(content: Any) -> None:
    with http_server(lambda *_: (200, {}, json.dumps(content).encode())) as place:
        client = SchemaRegistryClient({"url": f"http://{place}", **ONCE})

        with pytest.raises(SchemaRegistryError, match="Check that the address belongs to"):
            client.document_by_id(1)
        with pytest.raises(SchemaRegistryError, match="Check that the address belongs to"):
            AvroDeserializer(client)(b"\0\0\0\0\1\0")


def test_numbers_out_of_range_in_a_response_are_an_error(registry: SchemaRegistry) -> None:
    contents = [b'{"id": 1e999}', b'{"access_token": "a", "expires_in": 1' + b"0" * 400 + b"}"]
    with http_server(lambda *_: (200, {}, contents.pop(0))) as place:
        client = SchemaRegistryClient({"url": f"http://{place}", **ONCE})
        with pytest.raises(SchemaRegistryError, match="Check that the address belongs to"):
            client.register_schema("a-value", SCHEMA)
        client = SchemaRegistryClient({**oauth(registry, place), **ONCE})
        with pytest.raises(SchemaRegistryError, match="returns no token: 200"):
            client.get_subjects()


def oauth(registry: SchemaRegistry, place: str) -> dict[str, Any]:
    return {
        "url": registry.url,
        "bearer.auth.credentials.source": "OAUTHBEARER",
        "bearer.auth.client.id": "ada",
        "bearer.auth.client.secret": "pass-word",
        "bearer.auth.scope": "all",
        "bearer.auth.issuer.endpoint.url": f"http://user:pass-word@{place}/token",
    }


def test_a_token_is_requested_again() -> None:
    statuses = [503, 500, 200]

    def respond(request: BaseHTTPRequestHandler, body: bytes) -> Any:
        status = statuses.pop(0)
        token = b'{"access_token": "to.ken", "expires_in": null}'
        return status, {}, token if status == 200 else b""

    with http_server(respond) as place, SchemaRegistry(token="to.ken") as registry:
        assert SchemaRegistryClient({**oauth(registry, place), **AGAIN}).get_subjects() == []
        statuses += [503, 503]
        conf = {**oauth(registry, place), **AGAIN, "max.retries": 1}
        client = SchemaRegistryClient(conf)
        with pytest.raises(SchemaRegistryError, match="returns no token: 503"):
            client.get_subjects()
    assert statuses == []


def test_a_fork_while_a_token_is_requested_does_not_hang() -> None:
    entered, waiting = threading.Event(), threading.Event()

    def respond(request: BaseHTTPRequestHandler, body: bytes) -> Any:
        if not entered.is_set():
            entered.set()
            waiting.wait(10)
        return 200, {}, b'{"access_token": "to.ken", "expires_in": 3600}'

    with http_server(respond) as place, SchemaRegistry(token="to.ken") as registry:
        client = SchemaRegistryClient(oauth(registry, place))
        thread = threading.Thread(target=client.get_subjects)
        thread.start()
        assert entered.wait(10)
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            os._exit(client.get_subjects() != [])
        assert os.waitpid(child, 0)[1] == 0
        waiting.set()
        thread.join()


@pytest.mark.parametrize(("seconds", "tokens"), [(3600.0, 1), (0.0, 3)])
def test_tokens_of_an_oauth_server_are_renewed(seconds: float, tokens: int) -> None:
    requests = []

    def respond(request: BaseHTTPRequestHandler, body: bytes) -> Any:
        requests.append((request.headers["Authorization"], body))
        content = b'{"access_token": "to.ken", "expires_in": %f}' % seconds
        return (200, {}, content) if b"scope=all" in body else (400, {}, b"{}")

    with http_server(respond) as place, SchemaRegistry(token="to.ken") as registry:
        conf = oauth(registry, place)
        client = SchemaRegistryClient(conf)
        for _ in range(3):
            assert client.get_subjects() == []
        with pytest.raises(SchemaRegistryError, match="returns no token: 400") as caught:
            SchemaRegistryClient({**conf, "bearer.auth.scope": "none"}).get_subjects()

    basic = f"Basic {base64.b64encode(b'ada:pass-word').decode()}"
    assert requests[:-1] == [(basic, b"grant_type=client_credentials&scope=all")] * tokens
    assert caught.value.option == "bearer.auth.issuer.endpoint.url"
    assert "pass-word" not in str(caught.value)


def in_threads(count: int, call: Callable[[], Any]) -> list[Any]:
    """The results or errors of a function that threads call at once."""
    found: list[Any] = []

    def append() -> None:
        try:
            found.append(call())
        except SchemaRegistryError as error:
            found.append(error)

    threads = [threading.Thread(target=append) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("fails", [False, True])
def test_threads_wait_for_one_token(fails: bool) -> None:
    requests = []

    def respond(request: BaseHTTPRequestHandler, body: bytes) -> Any:
        requests.append(body)
        time.sleep(1.0)
        content = b'{"access_token": "to.ken", "expires_in": 3600}'
        return (403, {}, b"") if fails else (200, {}, content)

    with http_server(respond) as place, SchemaRegistry(token="to.ken") as registry:
        client = SchemaRegistryClient(oauth(registry, place))
        found = in_threads(5, client.get_subjects)

    assert len(requests) == 1
    if fails:
        assert len(set(map(id, found))) == 5
        assert all("returns no token: 403" in str(error) for error in found)
    else:
        assert found == [[]] * 5


def test_a_token_is_used_until_it_expires() -> None:
    answers: list[Any] = ["first", SchemaRegistryError(503, -1, "away"), "second"]
    entered, is_slow = threading.Event(), threading.Event()

    def fetch(timeout: float) -> tuple[str, float]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            entered.set()
            is_slow.wait(WAIT_S)
            raise answer
        return answer, 3600.0

    token = transport._Token(fetch)
    assert token.get(1.0) == "first"
    token._renewal = 0.0
    thread = threading.Thread(target=token.get, args=(1.0,))
    thread.start()
    assert entered.wait(WAIT_S)
    assert token.get(1.0) == "first"  # the other thread waits for the new token
    is_slow.set()
    thread.join()
    assert token.get(1.0) == "first"  # the next attempt comes later
    assert answers == ["second"]
    token._renewal = token._expiry = 0.0
    assert token.get(1.0) == "second"


def test_an_interrupted_request_for_a_token_is_repeated() -> None:
    entered = threading.Event()

    def fetch(timeout: float) -> tuple[str, float]:
        if entered.is_set():
            return "second", 3600.0
        entered.set()
        time.sleep(0.3)
        raise KeyboardInterrupt

    token = transport._Token(fetch)

    def interrupted() -> None:
        with suppress(KeyboardInterrupt):
            token.get(WAIT_S)

    thread = threading.Thread(target=interrupted)
    thread.start()
    assert entered.wait(WAIT_S)
    assert token.get(WAIT_S) == "second"
    thread.join()


def test_an_urgent_request_waits_less_for_a_token(
    monkeypatch: pytest.MonkeyPatch, registry: SchemaRegistry
) -> None:
    monkeypatch.setattr(transport, "_URGENT_S", 0.2)
    is_over = threading.Event()

    def respond(request: BaseHTTPRequestHandler, body: bytes) -> Any:
        is_over.wait(WAIT_S)
        return 503, {}, b""

    with http_server(respond) as place:
        client = SchemaRegistryClient({**oauth(registry, place), "max.retries": 0})
        start = time.monotonic()
        found = in_threads(
            3, lambda: client._transport.request("GET", "/subjects", list, is_urgent=True)
        )
        seconds = time.monotonic() - start
        is_over.set()

    assert all("the OAuth server" in str(error) for error in found)
    assert seconds < 5.0


def test_a_function_of_the_program_returns_tokens() -> None:
    tokens = iter(["mistaken", "to.ken"])

    def provide(config: dict[str, str]) -> dict[str, str]:
        return {"bearer.auth.token": next(tokens), **config}

    with SchemaRegistry(token="to.ken") as registry:
        conf = {
            "url": registry.url,
            "bearer.auth.credentials.source": "CUSTOM",
            "bearer.auth.custom.provider.function": provide,
            "bearer.auth.custom.provider.config": {"bearer.auth.logical.cluster": "lsrc-1"},
        }
        client = SchemaRegistryClient(conf)
        with pytest.raises(SchemaRegistryError, match="401"):
            client.get_subjects()
        assert client.get_subjects() == []
        client = SchemaRegistryClient(
            {**conf, "bearer.auth.custom.provider.function": lambda _: {"token": "secret"}}
        )
        with pytest.raises(ValueError, match=r'returned no "bearer.auth.token"') as caught:
            client.get_subjects()
    assert "secret" not in str(caught.value)


# -- retries and several URLs


def test_a_registry_that_recovers_is_asked_again(registry: SchemaRegistry) -> None:
    number = registry.add("a-value", TEXT)
    conf = {"url": registry.url, **AGAIN}
    for break_next in (registry.fail_next, registry.drop_next):
        break_next(3)
        assert SchemaRegistryClient(conf).get_schema(number) == SCHEMA
    registry.fail_next(9)
    with pytest.raises(SchemaRegistryError, match=r"fails .*503 a fault") as caught:
        SchemaRegistryClient(conf).get_schema(number)
    assert (caught.value.http_status_code, caught.value.error_code) == (503, 50303)
    registry.fail_next(0)
    with pytest.raises(SchemaRegistryError, match=r"fails .*404 .*the address belongs to Schema"):
        SchemaRegistryClient({"url": f"{registry.url}/wrong", **AGAIN}).get_schema(number)
    registry.close()

    client = SchemaRegistryClient(conf)
    with pytest.raises(SchemaRegistryError, match=r" 4 attempts\): .*refused") as caught:
        client.get_schema(number)
    assert (caught.value.http_status_code, caught.value.error_code) == (-1, -1)
    assert caught.value.option == "url"


def test_a_refused_request_is_not_retried(registry: SchemaRegistry) -> None:
    client = SchemaRegistryClient({"url": registry.url, "retries.wait.ms": 60_000})
    for status in (400, 404, 409, 422, 501):
        registry.fail_next(1, status)
        with pytest.raises(SchemaRegistryError):
            client.get_subjects()
    assert registry.requests["GET /subjects"] == 5


def test_a_response_that_takes_too_long_is_an_error(registry: SchemaRegistry) -> None:
    client = SchemaRegistryClient({"url": registry.url, "timeout": 0.05, **AGAIN, **ONCE})
    registry.delay_next(1, 60)

    with pytest.raises(SchemaRegistryError, match=r"does not respond.*timed out"):
        client.get_subjects()


@pytest.mark.parametrize("fault", ["gone", "fails"])
def test_the_next_url_is_asked_if_one_fails(fault: str, registry: SchemaRegistry) -> None:
    registry.add("a-value", TEXT)
    with SchemaRegistry() as other:
        other.fail_next(1)
        if fault == "gone":
            other.close()
        client = SchemaRegistryClient({"url": f"{other.url}, {registry.url}/", **ONCE})

        assert client.get_subjects() == ["a-value"]
        # From then on the client asks the registry that has responded first.
        assert client.get_subjects() == ["a-value"]
        assert other.requests.total() == (fault == "fails")


def test_a_pause_that_the_registry_asks_for_is_not_taken(
    registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    registry.fail_next(1, 503, {"Retry-After": "86400"})

    assert client.get_subjects() == []


def test_close_ends_the_retries_of_other_threads(registry: SchemaRegistry) -> None:
    client = SchemaRegistryClient({"url": registry.url, "retries.wait.ms": 600_000,
                                   "retries.max.wait.ms": 600_000})  # fmt: skip
    registry.fail_next(99)
    errors = []

    def ask() -> None:
        try:
            client.get_subjects()
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    while not registry.requests:
        time.sleep(0.01)
    client.close()
    thread.join(30)

    assert errors == ["the Schema Registry client has been closed"]


def test_a_closed_client_is_an_error(registry: SchemaRegistry) -> None:
    number = registry.add("a-value", TEXT)
    with SchemaRegistryClient({"url": registry.url}) as client:
        client.get_schema(number)
    client.close()

    for call in (lambda: client.get_schema(number), client.get_subjects):
        with pytest.raises(RuntimeError, match="has been closed"):
            call()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_has_its_own_connections_and_no_pending_requests() -> None:
    ports, is_slow = [], threading.Event()

    def respond(request: BaseHTTPRequestHandler, _: bytes) -> Any:
        ports.append(request.client_address[1])
        if request.path == "/schemas/ids/1" and len(ports) == 2:
            is_slow.wait(60)
        return 200, {}, b'{"schema": ""}'

    with http_server(respond) as place, SchemaRegistryClient({"url": f"http://{place}"}) as client:
        client.get_schema(2)
        thread = threading.Thread(target=client.get_schema, args=(1,))
        thread.start()
        while len(ports) < 2:
            time.sleep(0.01)
        child = os.fork()
        if not child:
            try:
                client.get_schema(1)  # the parent's thread requests the same schema
                os._exit(7)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        is_slow.set()
        thread.join()

    assert os.waitstatus_to_exitcode(status) == 7
    assert ports[0] == ports[1]
    assert ports[2] != ports[0]


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_closes_a_client_whose_retries_waited(is_closed: bool) -> None:
    client = SchemaRegistryClient({"url": "http://localhost:1"})
    if is_closed:
        client.close()
    with client._transport._closed._cond:  # as a thread that begins to wait
        child = os.fork()
        if not child:
            signal.alarm(10)
            try:
                assert is_closed == client._transport._closed.is_set()
                client.close()
                os._exit(7)
            finally:
                os._exit(1)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 7


# -- options


def test_wrong_options_are_named_without_secrets() -> None:
    conf = {
        "url": "https://ada:secret@host,ftp://x",
        "basic.auth.userinfo": "x",
        "bearer.auth.token": "secret",
        "ssl.ca.location": "/missing",
        "ssl.key.location": "/missing",
        "timeout": "-1",
        "max.retries": True,
        "cache.capacity": 0,
        "basic.auth.credentials.source": "SASL_INHERIT",
    }

    with pytest.raises(
        ValueError, match=r'"basic.auth.userinfo": the registry has no such'
    ) as got:
        SchemaRegistryClient(conf)

    found = str(got.value)
    assert 'did you mean "basic.auth.user.info"?' in found
    assert [name for name in conf if f'"{name}"' not in found] == []
    assert "secret" not in found
    for wrong, words in (
        ({"url": None}, '"url" is missing'),
        ({"url": 5}, '"url": expected a str'),
        ({"url": "mock://x"}, r'"url": for tests use .*cykafka\.testing\.SchemaRegistry'),
        ({"url": "http://[::1"}, '"url": expected http'),
        ({"url": "http://host:abc"}, '"url": expected http'),
        ({"url": "http://host/?token=secret"}, '"url": expected http'),
        ({"url": "http://host/#secret"}, '"url": expected http'),
        ({"url": "http://ada:/secret@host"}, '"url": expected http'),
        ({"url": "http://host,http://ada:12/secret@host/path"}, '"url": expected http'),
        ({"proxy": "http://ada:12/secret@host"}, '"proxy": expected http'),
        ({"bearer.auth.issuer.endpoint.url": "http://ada:/secret@host"}, 'url": expected http'),
        ({"bearer.auth.issuer.endpoint.url": "http://ada:1?secret@host"}, 'url": expected http'),
        ({"bearer.auth.issuer.endpoint.url": "http://host/#secret"}, 'url": expected http'),
        ({"basic.auth.user.info": "secret"}, "expected USER:PASSWORD"),
        ({"basic.auth.user.info": "a:b", "bearer.auth.token": "secret"}, "expected one"),
        ({"timeout": "9" * 5000}, '"timeout": expected a number'),
        ({"timeout": True}, '"timeout": expected a number'),
        ({"max.retries": 1.5}, '"max.retries": expected a whole number'),
        ({"bearer.auth.token": "secret\n"}, '"bearer.auth.token": expected printable'),
        ({"bearer.auth.token": "secr€t"}, '"bearer.auth.token": expected printable'),
        ({"basic.auth.user.info": "a:secret\ud800"}, '"basic.auth.user.info": expected a text'),
        ({"proxy": "http://a:secret\ud800@host"}, '"proxy": expected a text that UTF-8'),
        ({"bearer.auth.client.secret": "secret\ud800"}, 'client.secret": expected a text'),
        ({"bearer.auth.logical.cluster": "a b"}, '"bearer.auth.logical.cluster": expected'),
        ({"bearer.auth.credentials.source": "OAUTHBEARER"}, '"bearer.auth.client.id" is missing'),
        ({"bearer.auth.credentials.source": "OAUTHBEARER_AZURE_IMDS"}, "expected STATIC_TOKEN"),
        ({"bearer.auth.credentials.source": "CUSTOM"}, 'provider.function" is missing'),
        ({"bearer.auth.custom.provider.function": "f"}, "expected a function"),
        ({"bearer.auth.custom.provider.function": asyncio.sleep}, "function without async"),
    ):
        with pytest.raises(ValueError, match=words) as got:
            SchemaRegistryClient({"url": "http://host", **wrong})
        assert "secr" not in repr(got.value).replace("client.secret", "")


def test_options_may_be_texts_and_numbers_or_not_set(registry: SchemaRegistry) -> None:
    conf = {"url": registry.url, "timeout": "2.5", "max.retries": "1", "cache.capacity": 10.0,
            "cache.latest.ttl.sec": 0.5, "basic.auth.user.info": "", "proxy": None}  # fmt: skip
    client = SchemaRegistryClient(conf)

    assert client.get_subjects() == []
    assert client.config() is conf


# -- references and documents


def test_references_follow_those_that_they_refer_to(
    registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    before: list[dict[str, Any]] = []
    for name in ("a", "b", "c"):
        registry.add(f"{name}-value", f'"{name}"', references=before)
        before = [{"name": name, "subject": f"{name}-value", "version": 1}]
    top = registry.add("top-value", '"top"', references=before)
    assert client.get_referenced_by("a-value", 1) == [2]
    for name in ("top", "c", "b", "a"):
        client.delete_subject(f"{name}-value")

    document = client.document_by_id(top)

    assert document.parts == (("a", '"a"'), ("b", '"b"'), ("c", '"c"'))
    assert document.references == (SchemaReference("c", "c-value", 1),)
    assert document.id == top


def test_references_in_a_circle_are_an_error(
    registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    for name, other in ("ab", "ba"):
        references = [{"name": other, "subject": other, "version": 1}]
        registry.add(name, f'"{name}"', references=references)
    with pytest.raises(UnfitError, match="refer to each other in a circle"):
        client.document_by_id(1)


def test_a_long_chain_of_references(
    registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    before: list[dict[str, Any]] = []
    for number in range(400):
        name = f"s{number}"
        registry.add(name, f'"{name}"', references=before)
        before = [{"name": name, "subject": name, "version": 1}]
    assert len(client.document_by_version("s399", 1).parts) == 399


def test_a_version_may_be_a_text(registry: SchemaRegistry, client: SchemaRegistryClient) -> None:
    registry.add("a-value", TEXT)
    version: Any = "1"
    assert client.get_version("a-value", version) == client.get_version("a-value", 1)
    assert registry.requests.total() == 1


def test_only_protobuf_is_requested_in_its_serialized_form(
    registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    avro = registry.add("a-value", TEXT)
    part = registry.add("part.proto", "UGFydA==", "PROTOBUF")
    references = [{"name": "part.proto", "subject": "part.proto", "version": 1}]
    whole = registry.add("p-value", "V2hvbGU=", "PROTOBUF", references)

    assert client.document_by_id(avro) == client.document_by_version("a-value", 1)
    assert client.document_by_id(whole).parts == (("part.proto", "UGFydA=="),)
    assert client.document_by_id(part).text == "UGFydA=="
    for path, count in ((f"ids/{avro}", 1), (f"ids/{part}", 2)):
        assert registry.requests[f"GET /schemas/{path}"] == count
    with pytest.raises(SchemaRegistryError, match="500"):
        client.get_schema(avro, fmt="serialized")


def test_rules_are_an_error_that_names_them(
    registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    off = {"name": "old", "type": "CEL", "disabled": True}
    rules = {
        "domainRules": [{"name": "hide", "type": "ENCRYPT"}, off],
        "migrationRules": [{"name": "move", "type": "JSONATA"}],
    }
    number = registry.add("r-value", TEXT, ruleSet=rules)
    words = r"rules, which cykafka does not apply: hide \(ENCRYPT\), move \(JSONATA\)\. "

    schema = client.get_schema(number)
    assert schema.rule_set == rules
    for call in (lambda: check_rules(schema), lambda: client.document_by_id(number)):
        with pytest.raises(UnfitError, match=words):
            call()
    check_rules(Schema(TEXT, rule_set={"domainRules": [off], "migrationRules": None}))


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (200, b""),
        (200, b"<html>"),
        (200, b"[1, 2]"),
        (200, b'"schema"'),
        (200, b'{"schema": "x", "references": [{}]}'),
        (200, b'{"schema": "x", "references": 5}'),
        (200, b"[" * 100_000),
        (200, b"\xff"),
        (404, b"<html>"),
        (404, b'{"error_code": "40403"}'),
        (418, b"[]"),
    ],
)
def test_unusable_responses_are_errors(status: int, content: bytes) -> None:
    words = r"fails .*the address belongs to"
    with (
        http_server(lambda *_: (status, {}, content)) as place,
        pytest.raises(SchemaRegistryError, match=words) as caught,
    ):
        SchemaRegistryClient({"url": f"http://{place}"}).get_schema(1)

    assert type(caught.value) is SchemaRegistryError
    assert (caught.value.http_status_code, caught.value.error_code) == (status, -1)


@pytest.mark.parametrize(
    ("options", "secrets"),
    [
        ({"bearer.auth.token": "t0ken"}, ["t0ken"]),
        ({"basic.auth.user.info": "ada:pass-word"}, ["YWRhOnBhc3Mtd29yZA==", "pass-word"]),
    ],
)
def test_credentials_that_a_server_repeats_are_in_no_message(
    options: dict[str, str], secrets: list[str]
) -> None:
    def respond(request: BaseHTTPRequestHandler, _: bytes) -> Any:
        words = f"refused: {request.headers['Authorization']}, {secrets[-1]}"
        return 401, {}, json.dumps({"error_code": 40101, "message": words}).encode()

    with http_server(respond) as place:
        client = SchemaRegistryClient({"url": f"http://{place}", **options})
        with pytest.raises(SchemaRegistryError, match=r"refused: (Bearer|Basic) \*{3}") as caught:
            client.get_subjects()
    seen = f"{caught.value} {caught.value!r} {caught.value.error_message}"
    assert not [secret for secret in secrets if secret in seen]


def test_redirects_keep_the_password_to_the_registry() -> None:
    seen = []

    def elsewhere(request: BaseHTTPRequestHandler, _: bytes) -> Any:
        seen.append(request.headers["Authorization"])
        return 200, {}, b'["a"]'

    with http_server(elsewhere) as other:
        moved = 307, {"Location": f"http://{other}/subjects"}, b""
        with http_server(lambda *_: moved) as place:
            conf = {"url": f"http://{place}", "basic.auth.user.info": "ada:secret"}
            assert SchemaRegistryClient(conf).get_subjects() == ["a"]

    assert seen == [None]


def test_requests_go_to_the_proxy() -> None:
    seen = []

    def respond(request: BaseHTTPRequestHandler, _: bytes) -> Any:
        seen.append((request.path, request.headers["Proxy-Authorization"]))
        return 200, {"Connection": "close"}, b"[]"

    with http_server(respond) as place:
        conf = {"url": "http://registry:8081", "proxy": f"http://ada:s€cret@{place}", **ONCE}
        client = SchemaRegistryClient(conf)
        assert client.get_subjects() == []
    with pytest.raises(SchemaRegistryError, match="does not respond") as caught:
        client.get_subjects()

    basic = f"Basic {base64.b64encode('ada:s€cret'.encode()).decode()}"
    assert seen == [("http://registry:8081/subjects", basic)]
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("proxy", "seen"),
    [
        ({"http_proxy": "http://ada:secret@{}"}, 1),
        ({"http_proxy": "{}"}, 1),
        ({"all_proxy": "http://{}"}, 1),
        ({"https_proxy": "http://{}"}, 0),
        ({"http_proxy": "http://{}", "no_proxy": "localhost"}, 0),
    ],
)
def test_requests_go_to_the_environments_proxy(
    proxy: dict[str, str], seen: int, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = []

    def respond(request: BaseHTTPRequestHandler, _: bytes) -> Any:
        paths.append(request.path)
        return 200, {}, b"[]"

    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with http_server(respond) as place:
        for name, value in proxy.items():
            monkeypatch.setenv(name, value.format(place))
        assert SchemaRegistryClient({"url": registry.url, **ONCE}).get_subjects() == []
    assert paths == [f"{registry.url}/subjects"] * seen


@pytest.mark.parametrize(
    "proxy",
    ["socks5://ada:secret@host", "http://host:secret", "http://[secret", "ada:1/secret@host"],
)
def test_the_environments_proxy_is_unusable(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.setenv("all_proxy", proxy)
    with pytest.raises(ValueError, match='set "proxy" or no_proxy') as caught:
        SchemaRegistryClient({"url": "http://registry:8081"})
    assert "secret" not in repr((caught.value, caught.value.__context__))


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "urllib3", None)

    with pytest.raises(ModuleNotFoundError, match=r"pip install 'cykafka\[schemas\]'"):
        SchemaRegistryClient({"url": "http://registry:8081"})


# -- contexts and GUIDs


def test_contexts_have_their_own_ids(
    registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    other = Schema('"long"', references=())
    first = client.register_schema("a-value", SCHEMA)
    assert client.register_schema(":.other:a-value", other) == first
    reference = SchemaReference("part", "a-value", 1)
    number = client.register_schema(":.other:b", Schema('"int"', references=[reference]))

    assert client.get_contexts() == [".", ".other"]
    assert client.get_subjects() == ["a-value", ":.other:a-value", ":.other:b"]
    assert client.get_subjects(":.other:a") == [":.other:a-value"]
    assert client.get_schema(first) == SCHEMA
    assert client.get_schema(first, ":.other:") == other
    assert client.get_schema(first, ":.other:a-value") == other
    assert client.document_by_id(number, ":.other:").parts == (("part", '"long"'),)
    within = SchemaRegistryClient({"url": f"{registry.url}/contexts/.other"})
    assert within.get_latest_version("a-value").schema == other


def test_guids_are_the_same_in_all_contexts(
    registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    registry.add("a-value", TEXT)
    registry.add(":.other:b-value", '"long"')
    registry.add(":.other:a-value", TEXT)
    guid = client.get_latest_version("a-value").guid
    assert guid is not None

    assert client.get_latest_version(":.other:a-value").guid == guid
    assert client.get_schema_by_guid(guid) == SCHEMA
    assert client.document_by_id(UUID(guid)).text == TEXT
    with pytest.raises(SchemaNotFoundError, match="SR code 40403"):
        client.get_schema_by_guid(str(UUID(int=0)))
    proto = registry.add("p-value", "UGFydA==", "PROTOBUF")
    number = UUID(client.get_version("p-value", 1).guid)
    assert client.document_by_id(number) == client.document_by_id(proto)


# -- subjects


def test_registration_and_lookup(registry: SchemaRegistry, client: SchemaRegistryClient) -> None:
    schema = Schema(record(ID), metadata={"properties": {"owner": "ada"}})
    with pytest.raises(SchemaNotFoundError, match=r"Subject 'a/ value' not found.*40401"):
        client.lookup_schema("a/ value", schema)

    number = client.register_schema("a/ value", schema)
    full = client.register_schema_full_response("a/ value", Schema(record(ID, EXTRA)))
    assert (full.subject, full.version, full.schema_id) == ("a/ value", 2, number + 1)
    found = client.lookup_schema("a/ value", schema)
    assert (found.schema_id, found.version, found.schema) == (number, 1, schema)
    with pytest.raises(SchemaNotFoundError, match="40403"):
        client.lookup_schema("a/ value", Schema('"int"'))
    assert client.get_latest_with_metadata("a/ value", {"owner": "ada"}).version == 1
    assert client.get_versions("a/ value") == [1, 2]
    assert client.get_versions("a/ value", offset=1, limit=1) == [2]
    assert client.get_schema_versions(number) == [SchemaVersion("a/ value", 1)]
    assert client.get_subjects_by_schema_id(number) == ["a/ value"]
    assert client.get_schema_types() == ["AVRO", "JSON", "PROTOBUF"]
    for version in (9, "latest"):
        with pytest.raises(SchemaNotFoundError):
            client.get_version("none" if version == "latest" else "a/ value", version)


def test_normalized_schemas_differ_in_meaning_only(client: SchemaRegistryClient) -> None:
    number = client.register_schema("a-value", Schema('{"type": "string", "doc": "x"}'))
    same, other = Schema('{"type":"string","doc":"x"}'), Schema('{"doc": "x", "type": "string"}')

    assert client.lookup_schema("a-value", same).schema == same

    with pytest.raises(SchemaNotFoundError):
        client.lookup_schema("a-value", other)
    assert client.lookup_schema("a-value", other, normalize_schemas=True).schema_id == number
    assert client.register_schema("a-value", other, normalize_schemas=True) == number


def test_deleted_subjects_and_versions(client: SchemaRegistryClient) -> None:
    for schema in (Schema(record(ID)), Schema(record(ID, EXTRA))):
        client.register_schema("a-value", schema)
    assert client.delete_version("a-value", 1) == 1
    assert client.get_versions("a-value") == [2]
    assert client.get_versions("a-value", deleted=True) == [1, 2]
    assert client.get_versions("a-value", deleted_only=True) == [1]
    with pytest.raises(SchemaNotFoundError, match="40402"):
        client.get_version("a-value", 1)
    assert client.get_version("a-value", 1, deleted=True).version == 1
    with pytest.raises(SchemaNotFoundError, match="40402"):
        client.get_version("a-value", 1)
    with pytest.raises(SchemaNotFoundError, match="40405"):
        client.delete_subject("a-value", permanent=True)
    assert client.delete_subject("a-value") == [2]
    assert client.get_subjects() == []
    assert client.get_subjects(deleted=True) == ["a-value"]
    assert client.get_schema(2).schema_str == record(ID, EXTRA)  # records have this id
    assert client.delete_subject("a-value", permanent=True) == [1, 2]
    client.clear_caches()
    with pytest.raises(SchemaNotFoundError):
        client.get_schema(2)


def test_refused_schemas(client: SchemaRegistryClient) -> None:
    client.register_schema("a-value", Schema(record(ID)))

    for schema, status, code in (
        (Schema(record(ID, NAME)), 409, 409),
        (Schema('{"type": "record"'), 422, 42201),
        (Schema('"unknown"'), 422, 42201),
        (Schema(TEXT, "XML"), 422, 42201),
        (Schema(TEXT, references=[SchemaReference("x", "none", 1)]), 422, 42201),
    ):
        with pytest.raises(SchemaRefusedError, match="Schema Registry refuses") as caught:
            client.register_schema("a-value", schema)
        assert (caught.value.http_status_code, caught.value.error_code) == (status, code)
        assert isinstance(caught.value, UnfitError)


def test_compatibility_by_level(client: SchemaRegistryClient) -> None:
    client.register_schema("a-value", Schema(record(ID, EXTRA)))
    more, less = Schema(record(ID, EXTRA, NAME)), Schema(record(ID))

    expected = {"BACKWARD": (False, True), "FORWARD": (True, True), "FULL": (False, True),
                "NONE": (True, True)}  # fmt: skip
    for level, outcomes in expected.items():
        client.set_compatibility("a-value", level.lower())
        assert client.get_compatibility("a-value") == level
        found = [client.test_compatibility("a-value", schema) for schema in (more, less)]
        assert tuple(found) == outcomes
        assert client.test_compatibility_all_versions("a-value", more, verbose=True) == outcomes[0]
    with pytest.raises(SchemaNotFoundError, match="40402"):
        client.test_compatibility("a-value", more, 7)


def test_configuration_and_modes(client: SchemaRegistryClient) -> None:
    assert client.get_compatibility() == "BACKWARD"
    with pytest.raises(SchemaNotFoundError, match="40408"):
        client.get_config("a-value")
    config = ServerConfig(ConfigCompatibilityLevel.FULL, compatibility_group="major")
    assert client.set_config("a-value", config)["compatibility"] == "FULL"
    found = client.get_config("a-value")
    assert found.compatibility_level is ConfigCompatibilityLevel.FULL
    assert found.compatibility_group == "major"
    assert client.delete_config("a-value") == found
    with pytest.raises(SchemaRefusedError, match="Invalid compatibility level"):
        client.set_compatibility(level="much")
    assert client.get_global_mode() == "READWRITE"
    assert client.update_mode("a-value", "READONLY") == client.get_mode("a-value") == "READONLY"
    with pytest.raises(SchemaRefusedError, match="read-only"):
        client.register_schema("a-value", SCHEMA)
    assert client.delete_mode("a-value") == "READONLY"
    assert client.update_global_mode("READONLY", force=True) == "READONLY"
    with pytest.raises(SchemaRefusedError, match="read-only"):
        client.register_schema("a-value", SCHEMA)
    for call in (client.set_compatibility, client.set_config):
        with pytest.raises(ValueError, match="is missing"):
            call()


def test_associations(registry: SchemaRegistry, client: SchemaRegistryClient) -> None:
    registry.associate("orders", "a-value", "value", "cluster")
    registry.associate("orders", "a-key", "key", "cluster")
    registry.associate("others", "b-value")

    def subjects(*args: Any, **kwargs: Any) -> list[str | None]:
        found = client.get_associations_by_resource_name(*args, **kwargs)
        return [each.subject for each in found]

    assert subjects("orders", "-") == subjects("orders", "cluster") == ["a-value", "a-key"]
    assert subjects("orders", "-", "topic", ["key"]) == ["a-key"]
    assert subjects("orders", "elsewhere") == subjects("none", "-") == []


# -- errors


def test_errors_are_like_those_of_confluent_kafka() -> None:
    error = SchemaRegistryError(404, 40401, "Subject 'x' not found.")

    assert str(error) == "Subject 'x' not found. (HTTP status code 404, SR code 40401)"
    whole = SchemaRefusedError(409, 409, "no", text="all of it", option=None)
    again = pickle.loads(pickle.dumps(whole))
    assert (str(again), again.option, again.http_status_code) == ("all of it", None, 409)
