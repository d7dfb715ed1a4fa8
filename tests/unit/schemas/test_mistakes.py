"""Mistakes of new users: each error says what to do."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import proto_files
import pyarrow as pa
import pytest

import cykafka
from cykafka.schemas import (
    AsyncSchemaRegistryClient,
    AvroDeserializer,
    AvroSerializer,
    JSONSerializer,
    Schema,
    SchemaRegistryClient,
)
from cykafka.testing import SchemaRegistry

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
TABLE = pa.table({"id": [1]})
EXAMPLE = re.escape('SchemaRegistryClient({"url": "http://localhost:8081"})')
NOWHERE = {"url": "http://localhost:1"}


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as made:
        made.add("orders-value", ORDER)
        yield made


@pytest.fixture
def client(registry: SchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as made:
        yield made


@pytest.mark.parametrize("kind", [SchemaRegistryClient, AsyncSchemaRegistryClient])
@pytest.mark.parametrize("conf", ["http://ada:secret@localhost:8081", None, ["url"]])
def test_the_configuration_of_a_client_is_a_dict(kind: Any, conf: Any) -> None:
    with pytest.raises(TypeError, match=r'dict such as \{"url": "http://localhost') as caught:
        kind(conf)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (ORDER, r'got str: pass Schema\(text, "AVRO"\)'),
        ({"type": "string"}, r'got dict: pass Schema\(json.dumps\(schema\), "AVRO"\)'),
        (None, "got NoneType$"),
    ],
)
@pytest.mark.parametrize(
    "call",
    [
        lambda client, schema: client.register_schema("a", schema),
        lambda client, schema: client.register_schema_full_response("a", schema),
        lambda client, schema: client.lookup_schema("a", schema),
        lambda client, schema: client.test_compatibility("a", schema),
        lambda client, schema: client.test_compatibility_all_versions("a", schema),
        lambda client, schema: client.find_incompatibilities("a", schema),
    ],
)
def test_a_client_needs_a_schema(call: Callable[..., Any], schema: Any, words: str) -> None:
    with pytest.raises(TypeError, match=f"^schema: expected a Schema, {words}"):
        call(SchemaRegistryClient(NOWHERE), schema)


def test_a_dict_is_not_a_schema(client: SchemaRegistryClient) -> None:
    schema: Any = {"type": "record", "name": "Order", "fields": []}
    words = r"got dict: pass json.dumps\(schema\)"

    with pytest.raises(TypeError, match=words):
        AvroSerializer(client, schema)
    with pytest.raises(TypeError, match=words):
        AvroDeserializer(client, schema)
    with pytest.raises(TypeError, match=words):
        JSONSerializer(schema, client)
    with pytest.raises(TypeError, match=f"^schema: expected a Schema, its text .*{words}"):
        client.encode_table("orders", TABLE, schema=schema)
    with pytest.raises(TypeError, match=f"^schema: .*{words}"):
        client.decode_batch(TABLE, schema=schema)
    with pytest.raises(TypeError, match=f"^key_schema: .*{words}"):
        client.decode_batch(TABLE, key="avro", key_schema=schema)
    with pytest.raises(TypeError, match=r"^schema: .* got int$"):
        client.encode_table("orders", TABLE, schema=1)  # type: ignore[arg-type]


def test_a_serializer_needs_the_client_without_await() -> None:
    client: Any = AsyncSchemaRegistryClient(NOWHERE)
    for made in (AvroSerializer, AvroDeserializer):
        name = made.__name__
        words = f"{name} needs a SchemaRegistryClient, got AsyncSchema.*: use Async{name}$"
        with pytest.raises(TypeError, match=words):
            made(client, ORDER)


# -- publish_arrow


@pytest.fixture(scope="module")
def producer() -> Iterator[cykafka.Producer]:
    with cykafka.Producer({"bootstrap.servers": "localhost:1", "log_level": 2}) as made:
        yield made


@pytest.mark.parametrize("name", ["schema", "subject"])
def test_a_schema_needs_a_registry(producer: cykafka.Producer, name: str) -> None:
    given: Any = {name: "orders-value"}
    table = TABLE.append_column("value", [[b"x"]])
    with pytest.raises(TypeError, match=f"^{name}: needs registry=, a client, such as {EXAMPLE}"):
        producer.publish_arrow("orders", table, **given)


@pytest.mark.parametrize("column", ["id", None])
def test_a_registry_does_not_go_with_a_value(
    producer: cykafka.Producer, client: SchemaRegistryClient, column: str | None
) -> None:
    with pytest.raises(ValueError, match=f"^value: {column!r} cannot be combined with registry: "):
        producer.publish_arrow("orders", TABLE, registry=client, value=column)


@pytest.mark.parametrize("wrong", ["http://localhost:8081", {}, 1])
def test_a_registry_is_a_client(producer: cykafka.Producer, wrong: Any) -> None:
    words = f"^registry: expected a client, such as {EXAMPLE}, got {type(wrong).__name__}$"
    with pytest.raises(TypeError, match=words):
        producer.publish_arrow("orders", TABLE, registry=wrong)


def test_an_awaited_client_is_for_another_producer(producer: cykafka.Producer) -> None:
    client = AsyncSchemaRegistryClient(NOWHERE)
    words = "^registry: AsyncSchemaRegistryClient is for asyncio: pass a SchemaRegistryClient, or"
    with pytest.raises(TypeError, match=words):
        producer.publish_arrow("orders", TABLE, registry=client)


# -- missing libraries

PROGRAM = """
import sys
sys.modules[{library!r}] = None
from cykafka.schemas import SchemaRegistryClient
from cykafka.schemas.model.document import Document
try:
    client = SchemaRegistryClient({{"url": "http://localhost:1"}})
    client.document_by_version = lambda *_, **__: Document({form!r}, {text!r}, id=1)
    client.document_by_id = client.document = client.document_by_version
    {call}
except ImportError as error:
    print(error)
"""
PROTO = proto_files.text(proto_files.proto("mistakes.proto", "m", {"Order": {"id": (1, "int64")}}))
JSON = '{"type": "object", "properties": {"id": {"type": "integer"}}}'
ENCODE = "import pyarrow as pa; client.encode_table('orders', pa.table({'id': [1]}))"
DECODE = (
    "import pyarrow as pa; client.decode_batch(pa.table({'topic': ['t'], 'partition': [0], "
    "'offset': [0], 'timestamp': [0], 'key': [b''], 'value': [b'\\0\\0\\0\\0\\1\\2']}), FORM)"
)


@pytest.mark.parametrize(
    ("library", "form", "text", "call"),
    [
        ("numpy", "avro", ORDER, "client.decode_batch(None)"),
        ("pyarrow", "avro", ORDER, "client.decode_batch(None)"),
        ("pyarrow", "avro", ORDER, "client.encode_table('orders', None)"),
        ("fastavro", "avro", ORDER, DECODE),
        ("fastavro", "avro", ORDER, ENCODE),
        ("fastavro", "avro", ORDER, "from cykafka.schemas import AvroSerializer"),
        ("pyruhvro", "avro", ORDER, DECODE),
        ("pyruhvro", "avro", ORDER, ENCODE),
        ("jsonschema_rs", "json", JSON, DECODE),
        ("jsonschema_rs", "json", JSON, ENCODE),
        ("jsonschema_rs", "json", JSON, "from cykafka.schemas import JSONSerializer"),
        ("ptars", "protobuf", PROTO, DECODE),
        ("ptars", "protobuf", PROTO, ENCODE),
        ("google.protobuf", "protobuf", PROTO, DECODE),
        ("google.protobuf", "protobuf", PROTO, "from cykafka.schemas import ProtobufSerializer"),
        ("urllib3", "avro", ORDER, "pass"),
    ],
)
def test_a_missing_library_names_the_extra(library: str, form: str, text: str, call: str) -> None:
    program = PROGRAM.format(
        library=library, form=form, text=text, call=call.replace("FORM", repr(form))
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.stderr == ""
    assert library.partition(".")[0] in done.stdout
    assert done.stdout.endswith("pip install 'cykafka[schemas]'\n")
    assert done.stdout.count("pip install") == 1


def test_schemas_may_be_given_as_text(client: SchemaRegistryClient) -> None:
    assert client.encode_table("orders", TABLE, schema=ORDER) == client.encode_table(
        "orders", TABLE, schema=Schema(ORDER)
    )
