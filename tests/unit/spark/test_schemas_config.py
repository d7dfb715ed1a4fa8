"""The keys of schemas in a job's configuration."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import proto_files
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from cykafka.schemas.codec import Decoder, Encoder
from cykafka.schemas.model.document import Document, SchemaSource
from cykafka.schemas.model.error import SchemaRegistryError as RegistryError
from cykafka.spark.jobs.config.checks import registry_mistakes as mistakes
from cykafka.spark.jobs.config.load import load, to_toml
from cykafka.spark.jobs.config.models import JOBS
from cykafka.spark.jobs.problems import ConfigError, explain_error
from cykafka.spark.jobs.records.decoding import check_schemas
from cykafka.testing import SchemaRegistry

URL = {"registry.url": "http://registry:8081"}
AVRO = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}


def loaded(job: str = "archive", **keys: Any) -> Any:
    given = {
        "archive": {"topics": "a", "path": "/p", "checkpoint": "/c"},
        "mirror": {"topics": "a", "to": "b", "checkpoint": "/c"},
        "replay": {"path": "/p"},
    }[job]
    given = {"kafka.bootstrap.servers": "localhost:9092", **given, **keys}
    return load(JOBS[job], None, given, {"PASSWORD": "se:cret"})


@pytest.mark.parametrize(
    ("decode", "schema", "expected"),
    [
        ("avro", "a.b-value:latest", SchemaSource(None, "a.b-value", "latest")),
        ("avro", AVRO, SchemaSource(Document("avro", json.dumps(AVRO)))),
        ("avro", '"long"', SchemaSource(Document("avro", '"long"'))),
        ("json", "a-value:3", SchemaSource(None, "a-value", "3")),
        ("protobuf", "a:1#shop.Order", SchemaSource(None, "a", "1", "shop.Order")),
    ],
)
def test_forms_of_schemas(decode: str, schema: Any, expected: SchemaSource) -> None:
    config = loaded(decode=decode, schema=schema, **URL)

    assert config.value_schema == expected
    assert config.form == decode
    assert config.uses_registry


def test_files_of_schemas(tmp_path: Path) -> None:
    (tmp_path / "r.avsc").write_text(json.dumps(AVRO))
    part = proto_files.proto("part.proto", "p", {"Part": {"n": (1, "int32")}})
    whole = proto_files.proto("whole.proto", "p", {"W": {"part": (1, ".p.Part")}}, "part.proto")
    files = FileDescriptorSet(file=[part, whole])
    (tmp_path / "w.desc").write_bytes(files.SerializeToString())

    avro = loaded(decode="avro", schema=str(tmp_path / "r.avsc"), **URL).value_schema
    protobuf = loaded(decode="protobuf", schema=f"{tmp_path}/w.desc#p.W", **URL).value_schema

    assert avro == SchemaSource(Document("avro", json.dumps(AVRO)))
    parts = (("part.proto", proto_files.text(part)),)
    assert protobuf == SchemaSource(
        Document("protobuf", proto_files.text(whole), parts), message="p.W"
    )


@pytest.mark.parametrize(
    ("job", "keys", "words"),
    [
        ("archive", {"decode": "avro"}, r'key "decode" needs the table \[registry\]'),
        ("archive", {"schema": "s:latest"}, r'key "schema" needs the table \[registry\]'),
        ("archive", {"decode": "json"}, 'key "schema" is missing'),
        ("archive", {"decode": "avr", "schema": AVRO, **URL}, 'did you mean "avro"'),
        ("archive", {"decode": "avro", "schema": "none.avsc", **URL}, "neither SUBJECT:VERSION"),
        ("archive", {"decode": "avro", "schema": "{", **URL}, "because it is not JSON"),
        ("archive", {"decode": "protobuf", "schema": __file__, **URL}, "not a descriptor set"),
        ("archive", {"decode": "envelope-json", "schema": "s:1", **URL}, "not in the wire format"),
        ("archive", URL, 'key "registry" has no effect'),
        ("archive", {"decode": "avro", "partition_by": "message_type", **URL},
         "identity of message_type: expected one of avro.<field>, date, key"),
        ("archive", {"decode": "avro", "schema": AVRO, "partition_by": "json.id", **URL},
         "identity of json.id: expected one of avro.<field>"),
        ("mirror", {"encode": "avro"}, r'key "encode" needs the table \[registry\]'),
        ("mirror", {"encode": "avro", **URL}, 'key "encode" = \'avro\': it needs values'),
        ("mirror", {"encode_schema": "s:1"}, 'key "encode_schema" has no effect'),
        ("replay", {"encode": "avro", "registry.auto.register.schemas": True, **URL},
         "no effect unless"),
        ("archive", {"decode": "avro", "registry.basic.auth.user.info": "x", **URL},
         'key "registry.basic.auth.user.info": expected USER:PASSWORD'),
    ],
)  # fmt: skip
def test_mistakes_are_reported_with_their_keys(job: str, keys: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        loaded(job, **keys)


@pytest.mark.parametrize("form", ["avro", "json", "protobuf"])
def test_archives_may_be_partitioned_by_decoded_fields(form: str) -> None:
    config = loaded(decode=form, partition_by=["topic", f"{form}.id"], **URL)

    assert config.partitions == ["status", "topic", f"{form}.id"]


def test_wrong_options_of_the_registry_are_named_without_secrets() -> None:
    found = mistakes(
        {
            "url": "https://ada:secret@host",
            "bearer.auth.issuer.endpoint.url": "https://ada:secret@host/token",
            "proxy": "http://ada:secret@proxy",
            "bearer.auth.custom.provider.function": "x",
            "timeout": "-1",
            "auto.register.schemas": "maybe",
            "subject.name.strategy.type": "topic",
            "bearer.auth.tokens": "secret",
        }
    )

    assert sorted(name for name, _ in found) == [
        "auto.register.schemas", "bearer.auth.custom.provider.function",
        "bearer.auth.issuer.endpoint.url", "bearer.auth.tokens", "proxy",
        "subject.name.strategy.type", "timeout", "url",
    ]  # fmt: skip
    assert "ada:" not in str(found)
    assert mistakes({"url": "http://host:8081/path", "auto.register.schemas": "true"}) == []
    assert [name for name, _ in mistakes({"url": "http://[::1"})] == ["url"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"registry.url": "http://localhost:1"}, 'key "registry.url": Schema Registry http://loc'),
        ({"registry.bearer.auth.token": "mistaken"}, 'key "registry.bearer.auth.token": Schema R'),
    ],
)
def test_errors_of_the_registry_name_the_key(options: dict[str, str], words: str) -> None:
    with SchemaRegistry(token="right") as registry:
        keys = {"registry.url": registry.url, "registry.max.retries": 0, **options}

        with pytest.raises(RegistryError, match=words) as caught:
            check_schemas(loaded(decode="avro", **keys))

    assert "mistaken" not in str(caught.value)


def test_secrets_of_the_registry_are_hidden() -> None:
    config = loaded(
        decode="avro",
        **URL,
        **{"registry.schema.registry.basic.auth.user.info": "ada:${PASSWORD}"},
    )

    assert config.registry["basic.auth.user.info"] == "ada:se:cret"
    assert "cret" not in to_toml(config)
    assert "cret" not in repr(config)
    assert config.redact("ada:se:cret; se:cret") == "********; ********"


def test_missing_libraries_name_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "urllib3", None)

    with pytest.raises(ModuleNotFoundError) as caught:
        check_schemas(loaded(decode="avro", **{"registry.url": "http://no-library:1"}))

    assert explain_error(caught.value).endswith("pip install 'cykafka[schemas]'")


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"encode_schema": "none-value:7"}, RegistryError, 'key "encode": .*subject none-value'),
        ({"encode_schema": {"type": "record"}}, ConfigError, '"encode": it is not an Avro schema'),
    ],
)
def test_a_schema_to_write_is_checked_before_the_topics_are_known(
    more: Any, error: type[Exception], words: str
) -> None:
    with SchemaRegistry() as registry:
        config = loaded(
            "mirror",
            to=None,
            decode="none",
            encode="avro",
            transform="SELECT struct(1 AS id) AS value, 't' AS topic FROM records",
            **{"registry.url": registry.url},
            **more,
        )

        with pytest.raises(error, match=words):
            check_schemas(config)


def test_representations_have_no_secrets() -> None:
    options = (("basic.auth.user.info", "ada:secret"),)

    assert "secret" not in repr(Decoder("json", options, None))
    assert "secret" not in repr(Encoder("json", options, None))
