"""The Schema Registry for tests: compatibility of Avro schemas, faults, and TLS."""

from __future__ import annotations

import json
import socket
import ssl
import urllib.request
from typing import Any
from urllib.error import HTTPError

import pytest
import trustme

from cykafka.schemas.model.error import (
    SchemaNotFoundError,
    SchemaRefusedError,
    SchemaRegistryError,
)
from cykafka.schemas.model.schema import Schema, SchemaReference
from cykafka.schemas.registry.client import SchemaRegistryClient
from cykafka.testing import SchemaRegistry
from cykafka.testing._avro_compatibility import AvroSchema


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    named = [{"name": f"f{number}", **field} for number, field in enumerate(fields)]
    return {"type": "record", "name": "shop.R", "fields": named, **more}


def field(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": kind, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": symbols, **more}


TREE = record(field(["null", "R"]), field("int"))


@pytest.mark.parametrize(
    ("reader", "writer", "words"),
    [
        ("long", "int", None),
        ("int", "long", "int cannot read long"),
        ("double", "float", None),
        ("float", "double", "float cannot read double"),
        ("bytes", "string", None),
        ("string", "bytes", None),
        ("string", "int", "string cannot read int"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "int", None),
        (["null", "string"], "string", None),
        ("string", ["null", "string"], "string cannot read null"),
        (["null", "int"], ["null", "string"], "no branch of the reader's union reads string"),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, None),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, "/items: int"),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, "/values: int"),
        ({"type": "map", "values": "int"}, {"type": "array", "items": "int"}, "map cannot read"),
        (enum("A", "B"), enum("A"), None),
        (enum("A"), enum("A", "B"), r"no symbols \['B'\]"),
        (enum("A", default="A"), enum("A", "B"), None),
        ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 5},
         "the size is 4, expected 5"),
        (record(field("int")), record(field("int"), field("int")), None),
        (record(field("int"), field("int")), record(field("int")), "/f1: a new field needs a"),
        (record(field("int"), field("int", default=0)), record(field("int")), None),
        (record(field("int", name="a", aliases=["f0"])), record(field("int")), None),
        (record(field("int"), name="S"), record(field("int")), "the name is S, expected shop.R"),
        (record(field("int"), name="S", aliases=["R"]), record(field("int")), None),
        (record(field("int"), name="else.R"), record(field("int")), None),
        (TREE, TREE, None),
        (record(field(["null", "R"]), field("string")), TREE, "/f1: string cannot read int"),
    ],
)  # fmt: skip
def test_avro_compatibility(reader: Any, writer: Any, words: str | None) -> None:
    found = AvroSchema(writer).mistakes_of_reader(AvroSchema(reader))

    assert (found == []) == (words is None)
    if words is not None:
        with pytest.raises(ValueError, match=words):
            raise ValueError(found[0])


@pytest.mark.parametrize(
    "schema",
    ["unknown", {"type": "record", "name": "R"}, {"name": "R"}, 5, {"type": "array"},
     record(field({"type": "record", "name": "R", "fields": []}))],
)  # fmt: skip
def test_schemas_that_are_not_avro_are_refused(schema: Any) -> None:
    with SchemaRegistry() as registry, SchemaRegistryClient({"url": registry.url}) as client:
        with pytest.raises(SchemaRefusedError) as caught:
            client.register_schema("a-value", Schema(json.dumps(schema)))
        assert caught.value.error_code == 42201


def test_compatibility_follows_references() -> None:
    part = {"type": "record", "name": "shop.Part", "fields": [{"name": "x", "type": "int"}]}
    more = {**part, "fields": [*part["fields"], {"name": "y", "type": "int"}]}
    text = json.dumps(record(field("Part")))
    with SchemaRegistry() as registry, SchemaRegistryClient({"url": registry.url}) as client:
        registry.add("part", part)
        registry.add("part", more)
        old, new = (
            Schema(text, references=[SchemaReference("shop.Part", "part", number)])
            for number in (1, 2)
        )
        client.register_schema("a-value", old)
        assert client.test_compatibility("a-value", old)
        assert not client.test_compatibility("a-value", new)
        with pytest.raises(SchemaRefusedError) as caught:
            client.delete_version("part", 1)
        assert caught.value.error_code == 42206


@pytest.mark.parametrize("kind", ["JSON", "PROTOBUF"])
def test_what_the_registry_cannot_compare_it_does_not_call_compatible(kind: str) -> None:
    with SchemaRegistry() as registry, SchemaRegistryClient({"url": registry.url}) as client:
        first, second = Schema('{"title": "a"}', kind), Schema('{"title": "b"}', kind)
        client.register_schema("a-value", first)
        assert client.test_compatibility("a-value", first)
        with pytest.raises(SchemaRegistryError, match=f"cannot compare schemas of {kind}"):
            client.test_compatibility("a-value", second)
        assert not client.test_compatibility("a-value", Schema('"int"'))
        assert client.register_schema("a-value", second) == 2


def test_all_versions_are_compared_if_the_level_is_transitive() -> None:
    first, second = record(field("int")), record(field("int"), field("int", default=0))
    third = record(field("int"), field("int"))
    with SchemaRegistry() as registry, SchemaRegistryClient({"url": registry.url}) as client:
        for schema in (first, second):
            client.register_schema("a-value", Schema(json.dumps(schema)))
        new = Schema(json.dumps(third))
        assert client.test_compatibility_all_versions("a-value", new)
        client.set_compatibility("a-value", "BACKWARD_TRANSITIVE")
        assert not client.test_compatibility_all_versions("a-value", new)
        assert client.test_compatibility("a-value", new)
        with pytest.raises(SchemaRefusedError, match="409"):
            client.register_schema("a-value", new)


def test_ids_are_not_used_again() -> None:
    with SchemaRegistry() as registry, SchemaRegistryClient({"url": registry.url}) as client:
        assert registry.add("a-value", '"int"') == registry.add("b-value", '"int"') == 1
        for subject in ("a-value", "b-value"):
            client.delete_subject(subject)
            client.delete_subject(subject, permanent=True)
        with pytest.raises(SchemaNotFoundError):
            client.get_schema(1)
        assert registry.add("a-value", '"int"') == 2
        assert registry.subjects() == {"a-value": [2], "b-value": []}
        assert client.get_versions("a-value") == [2]


def test_faults_are_those_of_the_next_requests() -> None:
    def status(url: str) -> Any:
        try:
            with urllib.request.urlopen(url) as response:
                return response.status
        except HTTPError as error:
            return error.code, error.headers["Retry-After"]
        except OSError as error:
            return type(error)

    with SchemaRegistry() as registry:
        url = f"{registry.url}/subjects"
        registry.fail_next(2, 429, {"Retry-After": "9"})
        assert [status(url) for _ in range(3)] == [(429, "9"), (429, "9"), 200]
        registry.drop_next(1)
        assert issubclass(status(url), ConnectionError)
        registry.drop_next(5)
        registry.drop_next(0)
        assert status(url) == 200
    registry.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url)


def test_a_client_without_a_handshake_does_not_hold_up_others() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority = trustme.CA()
    authority.issue_cert("localhost").configure_cert(context)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    with SchemaRegistry(tls=context) as registry:
        port = int(registry.url.rpartition(":")[2])
        with (
            socket.create_connection(("127.0.0.1", port)),
            urllib.request.urlopen(f"{registry.url}/subjects", context=trust) as response,
        ):
            assert response.read() == b"[]"


def test_wrong_requests_are_refused() -> None:
    with SchemaRegistry() as registry:

        def send(method: str, path: str, body: bytes | None = None) -> Any:
            request = urllib.request.Request(registry.url + path, body, method=method)
            try:
                with urllib.request.urlopen(request) as response:
                    return response.status
            except HTTPError as error:
                return error.code, json.load(error)["error_code"]

        assert send("GET", "/nothing") == (404, 404)
        assert send("POST", "/subjects/a/versions", b"{") == (400, 400)
        assert send("POST", "/subjects/a/versions", b"[]") == (422, 42201)
        assert send("GET", "/subjects?offset=x") == (400, 400)
        registry.add("a", '"int"')
        assert send("GET", "/subjects/a/versions/x") == (422, 42202)
        assert send("GET", "/subjects/a/versions/-1") == 200


def test_an_older_schema_may_be_registered_again() -> None:
    with SchemaRegistry() as registry:
        schemas = [Schema(json.dumps(record(*fields))) for fields in
                   ((field("int"), field("int")), (field("int"),))]  # fmt: skip
        for _ in range(2):
            with SchemaRegistryClient({"url": registry.url}) as client:
                assert [client.register_schema("s", each) for each in schemas] == [1, 2]


@pytest.mark.parametrize("path", ["/config", "/config/s", "/mode", "/mode/s"])
@pytest.mark.parametrize("body", [b"[]", b"[1]", b"5"])
def test_a_setting_is_an_object(path: str, body: bytes) -> None:
    with SchemaRegistry() as registry:
        request = urllib.request.Request(f"{registry.url}{path}", body, method="PUT")
        with pytest.raises(HTTPError, match="422"):
            urllib.request.urlopen(request)
