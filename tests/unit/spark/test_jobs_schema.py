"""Schemas of JSON values in a job's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cykafka.spark.jobs.config.load import load
from cykafka.spark.jobs.config.models import JOBS
from cykafka.spark.jobs.config.value_schema import Schema
from cykafka.spark.jobs.problems import ConfigError


def loaded(schema: Any) -> Any:
    given = {"topics": "a", "path": "/p", "checkpoint": "/c", "schema": schema}
    return load(JOBS["archive"], None, {"kafka.bootstrap.servers": "localhost:9092", **given}, {})


def test_json_schema_becomes_ddl_and_required_fields() -> None:
    document = {
        "type": "object",
        "required": ["id", "who"],
        "properties": {
            "id": {"type": "integer"},
            "total": {"type": ["number", "null"]},
            "at": {"type": "string", "format": "date-time"},
            "odd name": {"enum": ["a"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "who": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "adult": {"type": "boolean"}},
            },
            "more": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
    }

    schema = loaded(document).value_schema

    assert schema == Schema(
        "`id` BIGINT, `total` DOUBLE, `at` TIMESTAMP, `odd name` STRING, `tags` ARRAY<STRING>, "
        "`who` STRUCT<`name`: STRING, `adult`: BOOLEAN>, `more` MAP<STRING, BIGINT>",
        (((), "id"), ((), "who"), ((".who",), "name")),
        ('"enum" of odd name',),
    )


def test_required_fields_are_found_in_lists_and_maps() -> None:
    one = {
        "type": "object",
        "required": ["x", "y"],
        "properties": {"x": {"type": "string"}, "y": {"type": ["string", "null"]}},
    }
    document = {
        "required": ["n"],
        "properties": {
            "n": {"type": ["integer", "null"]},
            "list": {"type": "array", "items": one},
            "map": {"type": "object", "additionalProperties": one},
        },
    }

    schema = loaded(document).value_schema

    assert schema.required == (((".list", "[]"), "x"), ((".map", "{}"), "x"))
    assert schema.unchecked == ()


def test_unchecked_schema_keywords_log_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    document = {
        "title": "said for people",
        "additionalProperties": False,
        "anyOf": [{}],
        "properties": {
            "a": {"type": "integer", "minimum": 1, "description": "a number"},
            "b": {"type": "array", "items": {"type": "string", "pattern": "x"}, "minItems": 1},
            "c": {"$ref": "#/definitions/c"},
            "d": {"type": ["string", "integer"]},
            "e": {"type": "object", "additionalProperties": {"type": "string", "enum": ["x"]}},
        },
    }

    loaded(document)

    assert caplog.messages == [
        'key "schema": these are not checked, and all values pass: "additionalProperties" of the '
        'value, "anyOf" of the value, "minimum" of a, "minItems" of b, "pattern" of b[], '
        '"$ref" of c, "type" of d, "enum" of e{}'
    ]


def test_fully_checked_schema_logs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    loaded({"properties": {"a": {"type": "string", "format": "date"}}})
    loaded("a INT")

    assert not caplog.messages


def test_schema_may_be_in_a_file(tmp_path: Path) -> None:
    ddl, document = tmp_path / "a.ddl", tmp_path / "a.json"
    ddl.write_text("id BIGINT,\nname STRING\n")
    document.write_text('{"properties": {"id": {"type": "integer"}}}')

    assert loaded(str(ddl)).value_schema.text == "id BIGINT,\nname STRING"
    assert loaded(str(document)).value_schema.text == "`id` BIGINT"


@pytest.mark.parametrize(
    ("document", "expected_text"),
    [
        ({"properties": {"a": {"type": "date"}}}, "JSON Schema has no type 'date'"),
        ({"properties": {"a": {}}, "required": ["b"]}, 'which is missing from "properties"'),
        ({"properties": {"a": {}}, "required": "a"}, "expected a list of names"),
        ({"type": "struct", "fields": [{}]}, "it is not a Spark struct"),
        ({"type": "struct", "fields": ["a"]}, "it is not a Spark struct"),
    ],
)
def test_invalid_json_schema_is_a_configuration_error(
    document: dict[str, Any], expected_text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(document)

    (found,) = caught.value.problems
    assert expected_text in found
