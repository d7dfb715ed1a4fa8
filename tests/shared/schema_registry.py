"""A Schema Registry for tests: the routes that clients use, TLS, and two ways to authenticate.

It keeps schemas in memory. Its answers are those of Confluent's documentation of the API. A schema
of Protobuf stays as it was registered: as a FileDescriptorProto in base64.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

CONTENT = "application/vnd.schemaregistry.v1+json"
ROUTE = re.compile(
    r"/schemas/ids/(?P<id>\d+)|/subjects/(?P<subject>[^/]+)(?:/versions(?:/(?P<version>[^/]+))?)?"
)


class SchemaRegistry:
    """The registry, on a free port of this machine.

    Attributes
    ----------
    requests : Counter
        The numbers of requests by method and path.
    fails : int
        How many of the next requests fail with 503.
    retry_after : str
        The header Retry-After of these answers.
    deleted : set of str
        Subjects that are found only with deleted=true; the ids of their schemas stay.
    """

    def __init__(
        self, *, user: str = "", token: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        self._basic = "Basic " + base64.b64encode(user.encode()).decode() if user else ""
        self._bearer = f"Bearer {token}" if token else ""
        self.requests: Counter[str] = Counter()
        self.fails = 0
        self.retry_after = ""
        self.deleted: set[str] = set()
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        self._lock = threading.Lock()
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                registry._answer(self)

            do_POST = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://localhost:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        """End the server; clients then find nobody at its port."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def add(self, subject: str, schema: Any, kind: str = "AVRO", references: Any = ()) -> int:
        """Register a schema and return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        document = {"schema": text, "schemaType": kind, "references": list(references)}
        with self._lock:
            if document not in self._schemas:
                self._schemas.append(document)
            number = self._schemas.index(document) + 1
            versions = self._subjects.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
        return number

    def subjects(self) -> dict[str, list[int]]:
        """The ids of each subject's versions."""
        return {name: list(ids) for name, ids in self._subjects.items()}

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        size = int(request.headers.get("Content-Length") or 0)
        body = json.loads(request.rfile.read(size)) if size else {}
        path, query = urlsplit(request.path)[2:4]
        with self._lock:
            self.requests[f"{request.command} {path}"] += 1
            failing = self.fails > 0
            self.fails -= failing
        given = request.headers.get("Authorization", "")
        expected = self._basic or self._bearer
        if failing:
            status, answer = 503, {"error_code": 50003, "message": "the leader is not known"}
        elif expected and given != expected:
            status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
        else:
            status, answer = self._found(request.command, path, body, "deleted=true" in query)
            if "format=" in query and answer.get("schemaType") != "PROTOBUF":
                # So do some versions of Confluent's registry with Avro.
                status, answer = 500, {"error_code": 500, "message": "Internal Server Error"}
        content = json.dumps(answer).encode()
        request.send_response(status)
        request.send_header("Content-Type", CONTENT)
        request.send_header("Content-Length", str(len(content)))
        if failing and self.retry_after:
            request.send_header("Retry-After", self.retry_after)
        request.end_headers()
        request.wfile.write(content)

    def _found(
        self, method: str, path: str, body: dict[str, Any], has_deleted: bool
    ) -> tuple[int, Any]:
        match = ROUTE.fullmatch(path)
        if match is None:
            return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
        if match["id"]:
            number = int(match["id"])
            if not 1 <= number <= len(self._schemas):
                return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
            return 200, self._schema(number)
        subject, version = unquote(match["subject"]), match["version"]
        if method == "POST":
            return self._posted(subject, path.endswith("/versions"), body)
        ids = self._subjects.get(subject, [])
        if not ids or (subject in self.deleted and not has_deleted):
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        place = len(ids) if version == "latest" else int(version)
        if not 1 <= place <= len(ids):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        number = ids[place - 1]
        return 200, {"subject": subject, "version": place, "id": number, **self._schema(number)}

    def _posted(self, subject: str, registers: bool, body: dict[str, Any]) -> tuple[int, Any]:
        kind, references = body.get("schemaType") or "AVRO", body.get("references") or ()
        document = {"schema": body["schema"], "schemaType": kind, "references": list(references)}
        if registers:
            return 200, {"id": self.add(subject, body["schema"], kind, references)}
        ids = self._subjects.get(subject, [])
        for place, number in enumerate(ids):
            if self._schemas[number - 1] == document:
                found = {"subject": subject, "version": place + 1, "id": number}
                return 200, {**found, **self._schema(number)}
        if not ids:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _schema(self, number: int) -> dict[str, Any]:
        # The registry leaves out what is empty, and the type of Avro.
        document = dict(self._schemas[number - 1])
        if document["schemaType"] == "AVRO":
            del document["schemaType"]
        return {name: value for name, value in document.items() if value}


@contextmanager
def schema_registry(**kwargs: Any) -> Iterator[SchemaRegistry]:
    """A registry that ends with the block."""
    registry = SchemaRegistry(**kwargs)
    try:
        yield registry
    finally:
        registry.close()
