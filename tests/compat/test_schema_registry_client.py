"""Programs get the same from confluent_kafka's client of Schema Registry and from cykafka's."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.ours

# It prints what each call returns, or its error, for the client whose modules are its arguments.
SCRIPT = """
import asyncio, importlib, json, sys
from cykafka.testing import SchemaRegistry

names = {name: getattr(importlib.import_module(module), name)
         for module in sys.argv[2:] for name in (
             "SchemaRegistryClient", "AsyncSchemaRegistryClient", "Schema", "SchemaReference",
             "ServerConfig", "ConfigCompatibilityLevel", "SchemaRegistryError")
         if hasattr(importlib.import_module(module), name)}
globals().update(names)
FIELD = '{"name": "id", "type": "long"}'
MORE = '{"name": "x", "type": "int", "default": 0}'
def record(*fields):
    return '{"type": "record", "name": "Order", "fields": [%s]}' % ", ".join(fields)
first, second = Schema(record(FIELD), "AVRO"), Schema(record(FIELD, MORE), "AVRO")
wrong = Schema(record(FIELD, '{"name": "y", "type": "int"}'), "AVRO")
text = Schema('"string"', "AVRO", [SchemaReference("x", "a/ value", 1)])

def calls(client):
    yield lambda: client.get_subjects()
    yield lambda: client.get_latest_version("a/ value")
    yield lambda: client.register_schema("a/ value", first)
    yield lambda: client.register_schema_full_response("a/ value", second)
    yield lambda: client.register_schema("a/ value", wrong)
    yield lambda: client.register_schema("a/ value", Schema("{", "AVRO"))
    yield lambda: client.register_schema(":.ctx:b", first, normalize_schemas=True)
    yield lambda: client.register_schema("c", text)
    yield lambda: client.get_schema(1)
    yield lambda: client.get_schema(1, subject_name=":.ctx:")
    yield lambda: client.get_schema(99)
    yield lambda: client.get_schema(3, fmt="serialized")
    yield lambda: client.get_schema_by_guid("none")
    yield lambda: client.lookup_schema("a/ value", second)
    yield lambda: client.lookup_schema("a/ value", wrong, deleted=True)
    yield lambda: client.get_version("a/ value", 2)
    yield lambda: client.get_version("a/ value", 9)
    yield lambda: client.get_version("a/ value")
    yield lambda: client.get_versions("a/ value", limit=1)
    yield lambda: client.get_latest_version("a/ value")
    yield lambda: client.get_referenced_by("a/ value", 1)
    yield lambda: client.get_subjects_by_schema_id(1)
    yield lambda: client.get_schema_versions(1, deleted=True)
    yield lambda: client.get_schema_types()
    yield lambda: client.get_contexts()
    yield lambda: client.test_compatibility("a/ value", wrong)
    yield lambda: client.test_compatibility_all_versions("a/ value", first, verbose=True)
    yield lambda: client.get_compatibility()
    yield lambda: client.get_compatibility("a/ value")
    yield lambda: client.set_compatibility("a/ value", "full")
    yield lambda: client.set_compatibility(level="none")
    yield lambda: client.set_config("c", ServerConfig(ConfigCompatibilityLevel.FORWARD))
    yield lambda: client.get_config("c")
    yield lambda: client.delete_config("c")
    yield lambda: client.update_mode("c", "READONLY")
    yield lambda: client.get_mode("c")
    yield lambda: client.delete_mode("c")
    yield lambda: client.get_global_mode()
    yield lambda: client.update_global_mode("READWRITE")
    yield lambda: client.get_associations_by_resource_name("t", "-", "topic", ["value"])
    yield lambda: client.delete_version("c", 1)
    yield lambda: client.delete_version("c", 1, permanent=True)
    yield lambda: client.delete_subject("a/ value")
    yield lambda: client.delete_subject("a/ value", permanent=True)
    yield lambda: client.get_subjects(deleted=True)

FIELDS = ("subject", "version", "schema_id", "guid", "schema_str", "schema_type", "name",
          "compatibility_level", "resource_name", "association_type")

def plain(value):
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    found = {name: getattr(value, name) for name in FIELDS if hasattr(value, name)}
    if hasattr(value, "schema"):
        found["schema"] = plain(value.schema)
    if hasattr(value, "references"):
        found["references"] = plain(value.references)
    return found or value

async def main():
    kind = AsyncSchemaRegistryClient if sys.argv[1] == "async" else SchemaRegistryClient
    with SchemaRegistry(users={"ada": "secret"}) as registry:
        registry.associate("t", "c")
        client = kind({"url": registry.url, "basic.auth.user.info": "ada:secret",
                       "retries.wait.ms": 1})
        for call in calls(client):
            try:
                found = call()
                found = await found if sys.argv[1] == "async" else found
                print(json.dumps(plain(found), sort_keys=True))
            except SchemaRegistryError as error:
                print(error.http_status_code, error.error_code, error.error_message)

asyncio.run(main())
"""
THEIRS = "confluent_kafka.schema_registry", "confluent_kafka.schema_registry.error"
THEIRS_TOO = "confluent_kafka.schema_registry.common.schema_registry_client"
OURS = ("cykafka.schemas.registry.client", "cykafka.schemas.registry.aio",
        "cykafka.schemas.model.schema", "cykafka.schemas.model.error")  # fmt: skip


def results(kind: str, *modules: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, kind, *modules],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_clients_return_the_same(kind: str) -> None:
    pytest.importorskip("confluent_kafka.schema_registry")

    ours = results(kind, *OURS)

    assert ours == results(kind, THEIRS_TOO, *THEIRS)
    assert len(ours) == 45
    assert json.loads(ours[0]) == []
