"""Columns: Spark's types, Arrow's types, and projections of them."""

from __future__ import annotations

import pickle

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.pandas.types import to_arrow_schema  # noqa: E402
from pyspark.sql.types import (  # noqa: E402
    BinaryType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

from cykafka.spark.source.schema import Projection, source_schema  # noqa: E402

OFFSET = StructType([StructField("offset", LongType(), nullable=False)])
VALUE = StructType([StructField("value", BinaryType(), nullable=False)])


def test_arrow_schema_matches_spark_exactly() -> None:
    for headers in (False, True):
        schema = source_schema(headers)
        assert all(field.nullable for field in schema.fields)
        assert Projection(schema).arrow.equals(to_arrow_schema(schema, timezone="UTC"))
    assert Projection(source_schema(True)).names[-1] == "headers"
    assert "headers" not in Projection(source_schema(False)).names


def test_column_order_and_not_null_follow_the_user_schema() -> None:
    schema = StructType([*OFFSET.fields, StructField("key", BinaryType())])
    made = Projection(schema)

    assert made.names == ("offset", "key")
    assert made.arrow.equals(to_arrow_schema(schema, timezone="UTC"))
    assert not made.arrow.field("offset").nullable
    assert pickle.loads(pickle.dumps(made)).arrow == made.arrow


def test_batches_get_not_null_columns() -> None:
    given = pa.record_batch({"offset": pa.array([1, 2], pa.int64())})

    assert Projection(OFFSET).finish(given).schema == Projection(OFFSET).arrow


def test_null_in_a_column_that_is_not_null_is_an_error() -> None:
    given = pa.record_batch({"value": pa.array([b"x", None], pa.binary())})

    with pytest.raises(
        ValueError, match="column value is NOT NULL, but it is null in row 1 of a b"
    ):
        Projection(VALUE).finish(given)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([("Key", BinaryType())], "unknown column 'Key'; did you mean \"key\"?"),
        (
            [("payload", BinaryType())],
            "unknown column 'payload'; the columns are key, value, topic",
        ),
        ([("partition", LongType())], "column partition is int, not bigint"),
        ([("offset", IntegerType())], "column offset is bigint, not int"),
        ([("key", BinaryType()), ("key", BinaryType())], "column key appears twice"),
        ([], "at least one column"),
    ],
)
def test_invalid_projections_are_refused(fields: list, expected: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match="schema: ") as caught:
        Projection(StructType([StructField(*each) for each in fields]))
    assert expected in str(caught.value)
