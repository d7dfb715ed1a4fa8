"""Formats of archives, and the expressions that partition them, as far as Spark is not needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cykafka.spark.jobs.archive.ownership import _same
from cykafka.spark.jobs.config import table_formats
from cykafka.spark.jobs.config.load import load
from cykafka.spark.jobs.config.models import JOBS
from cykafka.spark.jobs.config.partition_by import Expression, parse, parse_transform, split
from cykafka.spark.jobs.problems import ConfigError, explain_error, explain_spark_error
from cykafka.spark.jobs.run.session import _settings
from cykafka.spark.jobs.tables.iceberg import _has_aliases

ARCHIVE = {"topics": "a", "path": "/p", "checkpoint": "/c", "kafka.bootstrap.servers": "a:1"}
EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"


@pytest.fixture
def spark_42(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_formats, "_spark_version", lambda: "4.2.9")


@pytest.fixture
def spark_43(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_formats, "_spark_version", lambda: "4.3.0")


def config(**given: Any) -> Any:
    return load(
        JOBS["archive"],
        None,
        {**ARCHIVE, **{name.replace("__", "."): value for name, value in given.items()}},
        {},
    )


def problem(**given: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        config(**given)
    assert len(caught.value.problems) == 1, caught.value.problems
    return caught.value.problems[0]


@pytest.mark.parametrize(
    ("text", "expected", "name"),
    [
        ("topic", Expression("identity", "topic"), "topic"),
        ("hour(timestamp)", Expression("hour", "timestamp"), "timestamp_hour"),
        ("bucket( 16 , key )", Expression("bucket", "key", 16), "key_bucket"),
        ("truncate(10,json.a.b)", Expression("truncate", "json.a.b", 10), "json_a_b_trunc"),
    ],
)
def test_expressions_are_read_with_their_names(text: str, expected: Expression, name: str) -> None:
    assert parse(text) == expected
    assert parse(text).name == name


@pytest.mark.parametrize("text", ["topic", "hour(timestamp)", "bucket(16, json.id)"])
def test_transforms_of_a_table_are_the_expressions(text: str) -> None:
    each = parse(text)
    words = f"{each.function}[{each.number}]" if each.number else each.function

    assert str(parse_transform(words, each.column)) == text


@pytest.mark.parametrize(("names", "expected"), [(["id"], False), (["id", "number"], True)])
def test_renamed_columns_are_noticed_at_any_level(names: list[str], expected: bool) -> None:
    field = {"field-id": 3, "names": names}
    column = {"field-id": 2, "names": ["json"], "fields": [field]}

    assert _has_aliases([{"field-id": 1, "names": ["key"]}, column]) is expected


def test_commas_in_parentheses_do_not_split() -> None:
    assert split("topic, bucket(16, key),day(timestamp)") == [
        "topic",
        "bucket(16, key)",
        "day(timestamp)",
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"partition_by": "minute(timestamp)"}, "'minute(timestamp)' is none of them"),
        ({"partition_by": "bucket(0, key)"}, "'bucket(0, key)' is none of them"),
        ({"partition_by": "hour(offset)"}, "hour of offset: expected one of timestamp"),
        ({"partition_by": "value"}, "identity of value: expected one of date, key, offset"),
        ({"partition_by": "timestamp"}, "identity of timestamp: expected one of date"),
        ({"partition_by": "key"}, "use bucket(16, key)"),
        ({"partition_by": "json.city"}, "identity of json.city: expected one of"),
        (
            {"partition_by": "bucket(16, key)", "keep_raw": False, "schema": "id INT"},
            "bucket of key: expected one of",
        ),
        (
            {"partition_by": ["bucket(2, key)", "bucket(3, key)"]},
            "another expression is also named key_bucket",
        ),
        (
            {"partition_by": "date", "file_names": "deterministic"},
            'expected topic among them with file_names = "deterministic"',
        ),
        ({"merge_schema": True}, 'without format = "delta" or "iceberg"'),
        (
            {"format": "iceberg", "file_names": "deterministic"},
            'key "file_names" = \'deterministic\': only with format = "parquet"',
        ),
        ({"path": "s3a://bucket/t", "format": "iceberg"}, "an object store cannot rename a file"),
        ({"table": "a.b.c", "format": "iceberg"}, 'keys "path" and "table" are both set'),
        ({"table": "a.b.c", "path": None}, 'only with format = "iceberg"'),
        ({"table": "orders", "path": None, "format": "iceberg"}, "catalog.database.table"),
        ({"format": "hudi"}, "expected 'parquet', 'delta' or 'iceberg'"),
    ],
)
def test_mistakes_are_reported_before_spark_starts(given: dict[str, Any], expected: str) -> None:
    assert expected in problem(**given)


def test_parquet_cannot_be_compacted() -> None:
    with pytest.raises(ConfigError, match="Parquet files have no transactions"):
        load(JOBS["compact"], None, {"format": "parquet", "path": "/p"}, {})


def test_delta_names_the_versions_of_spark_that_it_supports(spark_43: None) -> None:
    words = problem(format="delta")

    assert "key \"format\" = 'delta'" in words
    assert "is for Spark 4.2, and this is PySpark 4.3.0" in words
    assert 'Install "pyspark==4.2.*"' in words


@pytest.mark.parametrize("key", ["jars", "jars.packages"])
def test_given_jars_of_delta_are_used_with_any_spark(spark_43: None, key: str) -> None:
    given = {f"spark.{key}": "delta-spark_4.3_2.13-9.jar"}

    conf = _settings(config(format="delta", **given), verbose=False)

    assert conf[f"spark.{key}"] == "delta-spark_4.3_2.13-9.jar"
    assert conf["spark.sql.extensions"] == EXTENSION
    assert key == "jars.packages" or "spark.jars.packages" not in conf


def test_settings_of_a_format_extend_those_that_are_given(spark_42: None) -> None:
    given = {
        "spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.4.2",
        "spark.sql.extensions": "mine",
        "spark.sql.catalog.spark_catalog": "my.Catalog",
    }

    conf = _settings(config(format="delta", **given), verbose=False)

    assert conf["spark.jars.packages"] == (
        "org.apache.hadoop:hadoop-aws:3.4.2,io.delta:delta-spark_4.2_2.13:4.4.0"
    )
    assert conf["spark.sql.extensions"] == f"mine,{EXTENSION}"
    assert conf["spark.sql.catalog.spark_catalog"] == "my.Catalog"


def test_iceberg_needs_its_library_with_any_spark(spark_43: None) -> None:
    conf = _settings(config(format="iceberg"), verbose=False)

    assert conf["spark.jars.packages"].startswith("org.apache.iceberg:iceberg-spark-runtime")
    assert conf["spark.sql.parquet.outputTimestampType"] == "TIMESTAMP_MICROS"
    assert "spark.sql.extensions" not in conf


def test_bundle_of_a_cloud_does_not_replace_the_library() -> None:
    bundle = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"

    conf = _settings(config(format="iceberg", **{"spark.jars.packages": bundle}), verbose=False)

    assert conf["spark.jars.packages"] == f"{bundle},{table_formats.package('iceberg')}"


def test_metadata_that_no_job_has_written_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "metadata"
    folder.mkdir()
    (folder / "v2.gz.metadata.json").write_bytes(b"\x1f\x8b\xff")
    (folder / "00001-1f8b.metadata.json").write_text("{}")
    assert not table_formats.is_foreign(tmp_path)
    (folder / "v9.metadata.json").write_text('{"properties": {"cykafka.note": ""}}')
    (folder / "v10.metadata.json").write_text('{"properties": {}}')

    assert table_formats.is_foreign(tmp_path)


def test_parquet_needs_no_packages() -> None:
    conf = _settings(config(), verbose=False)

    assert not {"spark.jars.packages", "spark.sql.extensions"} & set(conf)


def test_jar_of_another_spark_is_named_as_the_cause() -> None:
    error = Exception(
        "An error occurred while calling o1.count.\n: java.lang.NoSuchMethodError: 'void "
        "org.apache.spark.sql.execution.LogicalRDD.<init>(scala.Option)'\n\tat org.apache.spark"
    )

    assert "a jar of spark.jars or spark.jars.packages is for another version" in explain_error(
        error
    )


@pytest.mark.parametrize("short", [explain_error, explain_spark_error])
def test_numbers_in_brackets_are_no_error_classes(short: Callable[..., str]) -> None:
    error = RuntimeError("[MALFORMED.FIELD] offset 5 of orders [0] has no items[12].x")

    assert short(error) == "offset 5 of orders [0] has no items[12].x"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [("n INT, s STRING", True), ("s STRING", False), ("s STRING, n BIGINT", False)],
)
def test_fields_of_a_table_may_have_any_order(rows: str, expected: bool) -> None:
    """A field that merge_schema added is the table's last one."""
    pytest.importorskip("pyspark")
    from pyspark.sql.types import IntegerType, LongType, StringType, StructType

    there = StructType().add("s", StringType()).add("n", IntegerType(), nullable=False)
    types = {"INT": IntegerType(), "BIGINT": LongType(), "STRING": StringType()}
    now = StructType()
    for field in rows.split(", "):
        name, kind = field.split()
        now = now.add(name, types[kind])

    assert _same(there, now) is expected
