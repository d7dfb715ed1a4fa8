"""`SchemaRegistry`: a Schema Registry for tests, in this process."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cykafka.testing._registry_state import RegistryState, RequestError

__all__ = ["SchemaRegistry"]

_CONTENT = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True)
class _Fault:
    status: int | None = None  # None: close the connection
    headers: Mapping[str, str] | None = None


class SchemaRegistry:
    """A Schema Registry in this process, which keeps schemas in memory.

    It has the routes that clients use: schemas by id and GUID, subjects, versions, references,
    contexts, deletion, compatibility, configuration and modes. It listens on this machine only.

    It differs from Confluent's registry:

    - It checks that Avro schemas are valid and compatible. It accepts other types of schemas
      unchecked, and responds with the status 501 to the question whether they are compatible.
    - It returns schemas as they were registered. A Protobuf schema that clients request as
      ``serialized`` must be registered as a FileDescriptorProto in base64, as serializers do.
    - Of the modes, only READONLY has an effect.

    Parameters
    ----------
    port : int, default 0
        The port; 0 chooses a free one.
    users : mapping of str to str, optional
        Users and their passwords. With users or a token, other requests fail with the status 401.
    token : str, optional
        The bearer token.
    tls : ssl.SSLContext, optional
        Serve HTTPS. To verify the clients' certificates, set its ``verify_mode``.

    Raises
    ------
    OSError
        The port is in use.

    Attributes
    ----------
    url : str
        The address for clients on this machine.
    requests : Counter of str
        The numbers of requests by method and path, such as ``GET /schemas/ids/1``.

    Examples
    --------
    >>> with SchemaRegistry(users={"ada": "secret"}) as registry:
    ...     registry.add("orders-value", {"type": "string"})
    ...     registry.fail_next(2, 503)
    1
    """

    def __init__(
        self,
        *,
        port: int = 0,
        users: Mapping[str, str] | None = None,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.requests: Counter[str] = Counter()
        self._state = RegistryState()
        self._authorized = {
            f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"
            for name, password in (users or {}).items()
        } | ({f"Bearer {token}"} if token else set())
        self._faults: deque[_Fault] = deque()
        self._delays: deque[float] = deque()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _Server(self, port, tls)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://localhost:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()

    def __enter__(self) -> SchemaRegistry:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server and close its port. May be called again."""
        if not self._closing.is_set():
            self._closing.set()
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def add(
        self,
        subject: str,
        schema: Any,
        schema_type: str = "AVRO",
        references: Iterable[Mapping[str, Any]] = (),
        **more: Any,
    ) -> int:
        """Register a schema without a check for compatibility, and return its id.

        Parameters
        ----------
        subject : str
            The subject; ``:.context:subject`` in another context.
        schema : str or JSON
            The schema's text, or an object that becomes JSON.
        schema_type : str, default "AVRO"
            ``AVRO``, ``PROTOBUF`` or ``JSON``.
        references : iterable of mappings, optional
            Each with ``name``, ``subject`` and ``version``.
        **more
            ``metadata`` and ``ruleSet``, as in the registry's JSON.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text, "schemaType": schema_type, "references": list(references), **more}
        return self._state.add(subject, body).id

    def associate(
        self,
        topic: str,
        subject: str,
        association_type: str = "value",
        cluster_id: str = "-",
    ) -> None:
        """Associate a subject with a topic, for the subject name strategy ``ASSOCIATED``.

        Parameters
        ----------
        topic, subject : str
        association_type : str, default "value"
            ``key`` or ``value``.
        cluster_id : str, default "-"
            The id of the topic's cluster.
        """
        self._state.associate(
            {
                "subject": subject,
                "resourceName": topic,
                "resourceNamespace": cluster_id,
                "resourceId": f"{cluster_id}:{topic}",
                "resourceType": "topic",
                "associationType": association_type,
                "frozen": False,
            }
        )

    def subjects(self) -> dict[str, list[int]]:
        """Return the ids of each subject's versions."""
        return self._state.subjects()

    def fail_next(
        self, count: int, status: int = 503, headers: Mapping[str, str] | None = None
    ) -> None:
        """Respond to the next requests with an error.

        Parameters
        ----------
        count : int
            The number of requests. 0 ends all faults.
        status : int, default 503
        headers : mapping of str to str, optional
            Headers of these responses, such as ``Retry-After``.
        """
        self._set(_Fault(status, headers), count)

    def drop_next(self, count: int) -> None:
        """Close the connections of the next requests without a response. 0 ends all faults."""
        self._set(_Fault(), count)

    def delay_next(self, count: int, seconds: float) -> None:
        """Wait before the responses to the next requests.

        Parameters
        ----------
        count : int
            The number of requests. 0 ends all delays.
        seconds : float
        """
        with self._lock:
            self._delays = deque([seconds] * count)

    def _set(self, fault: _Fault, count: int) -> None:
        with self._lock:
            self._faults = deque([fault] * count)

    def _respond(self, handler: BaseHTTPRequestHandler) -> None:
        """Respond to a request."""
        size = int(handler.headers.get("Content-Length") or 0)
        data = handler.rfile.read(size)
        parts = urlsplit(handler.path)
        with self._lock:
            self.requests[f"{handler.command} {parts.path}"] += 1
            fault = self._faults.popleft() if self._faults else None
            delay = self._delays.popleft() if self._delays else 0.0
        if self._closing.wait(delay) or (fault is not None and fault.status is None):
            handler.close_connection = True
            return
        status, content, headers = 200, None, {}
        try:
            if fault is not None and fault.status is not None:
                headers = dict(fault.headers or {})
                raise RequestError(fault.status, fault.status * 100 + 3, "a fault for tests")
            if self._authorized and handler.headers.get("Authorization") not in self._authorized:
                raise RequestError(401, 401, "Unauthorized")
            body = json.loads(data) if data else None
            query = parse_qs(parts.query)
            content = self._state.respond(handler.command, parts.path, query, body)
        except RequestError as error:
            status, content = error.status, error.content
        except ValueError as error:  # the body, or a number in the query
            status, content = 400, {"error_code": 400, "message": str(error)}
        octets = json.dumps(content).encode()
        handler.send_response(status)
        headers |= {"Content-Type": _CONTENT, "Content-Length": str(len(octets))}
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(octets)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, registry: SchemaRegistry, port: int, tls: ssl.SSLContext | None) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # With a packet for the headers, clients would delay its acknowledgment for 40 ms.
            wbufsize = -1

            def do_GET(self) -> None:
                registry._respond(self)

            do_POST = do_PUT = do_DELETE = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        try:
            super().__init__(("127.0.0.1", port), Handler)
        except OSError as error:
            words = f"cannot serve the Schema Registry on port {port}: {error.strerror}"
            raise OSError(error.errno, words) from None
        if tls is not None:
            # The handler's thread makes the handshake, so that no client holds up the others.
            self.socket = tls.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that close the connection or refuse the certificate."""
