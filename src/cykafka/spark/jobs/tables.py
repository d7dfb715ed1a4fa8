"""Checks of an archive that is a table: its format's classes, and its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cykafka.spark.jobs.formats import package
from cykafka.spark.jobs.problems import ConfigError, wrong_value

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cykafka.spark.jobs.config import TableKeys
    from cykafka.spark.jobs.session import Run

__all__ = ["check_columns", "check_loaded"]

# A class of each format.
_CLASSES = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.hadoop.HadoopTables",
}


def check_loaded(run: Run[TableKeys]) -> None:
    """Check that the job can use the format in this Spark.

    Raises
    ------
    ConfigError
        Spark has no classes of it: with spark-submit, only spark-submit itself can bring packages.
        Or the job is a client of Spark Connect, which has no JVM.
    """
    name = run.config.format
    if name == "parquet":
        return
    if run.driver.is_remote:
        words = "tables need a driver with a JVM: use another master than sc://..."
        raise wrong_value("format", name, words)
    jvm = run.spark._jvm
    assert jvm is not None
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_CLASSES[name])
    except Exception:  # of Java
        advice = f" --packages {needed}" if (needed := package(name)) else ""
        raise wrong_value(
            "format",
            name,
            f"Spark {run.spark.version} has no jar of it; give one in spark.jars, or start with "
            f"spark-submit{advice}",
        ) from None


def check_columns(run: Run[TableKeys], there: StructType, rows: StructType) -> None:
    """Compare the columns of an existing table with those of the rows to write.

    Raises
    ------
    ConfigError
        A column has another type, or is new without the key `merge_schema`.
    """
    before = {field.name: field.dataType for field in there}
    new = [field.name for field in rows if field.name not in before]
    other = [
        f"{field.name} is {before[field.name].simpleString()} there, and "
        f"{field.dataType.simpleString()} now"
        for field in rows
        if field.name in before and not _same(before[field.name], field.dataType)
    ]
    merges = getattr(run.config, "merge_schema", False)
    if other and not merges:
        raise ConfigError(
            [
                f"{run.config.place}: its columns have other types: {'; '.join(other)}. Keep "
                '"decode" and "schema" as they were, or set merge_schema = true if the format can '
                "widen them"
            ]
        )
    if new and not merges:
        raise ConfigError(
            [
                f"{run.config.place}: the table has no column {', '.join(new)}; set "
                "merge_schema = true to add what is missing"
            ]
        )


def _same(one: object, other: object) -> bool:
    """Whether two types are the same, whatever may be null in them and in any order of fields."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(one, StructType) and isinstance(other, StructType):
        return sorted(one.names) == sorted(other.names) and all(
            _same(one[name].dataType, other[name].dataType) for name in one.names
        )
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return _same(one.elementType, other.elementType)
    if isinstance(one, MapType) and isinstance(other, MapType):
        return _same(one.keyType, other.keyType) and _same(one.valueType, other.valueType)
    return one == other
