"""The table formats for archives: their packages, and the Spark settings that they need."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cykafka.spark.jobs.config.models import TableKeys

__all__ = [
    "ARCHIVE_NOTE",
    "FOREIGN",
    "ICEBERG_NOTE",
    "MARKERS",
    "is_foreign",
    "mistake",
    "package",
    "settings",
]

# The note about an archive's owner: a file in the directory, or an Iceberg table property. Spark,
# pyarrow, Delta and other readers skip files whose names begin with an underscore.
ARCHIVE_NOTE, ICEBERG_NOTE = "_cykafka.json", "cykafka.note"
FOREIGN = "another writer created this table; an archive needs its own table"
# A directory entry that shows that the directory is a table.
MARKERS = {"delta": "_delta_log", "iceberg": "metadata"}

_DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
# Delta uses internals of Spark, so each minor version of Spark has its own package.
_DELTA = {"4.2": "io.delta:delta-spark_4.2_2.13:4.4.0"}
# From this package the jobs use only Iceberg's own library, which works without a specific Spark
# version. Iceberg's connector is for Spark 4.1 and older.
_ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
# A part of the jar names; iceberg-aws-bundle and similar jars lack the classes for Spark.
_PARTS = {"delta": "delta-spark", "iceberg": "iceberg-spark"}
# The Spark settings that add jars.
_JARS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
_PACKAGES, _EXTENSIONS = "spark.jars.packages", "spark.sql.extensions"
_CATALOG = "spark.sql.catalog.spark_catalog"
_VERSION = re.compile(r"v(\d+)\.metadata\.json")


def mistake(config: TableKeys, given: Mapping[str, str]) -> str | None:
    """Return why the installed Spark cannot write the format; None if it can, or with set jars."""
    if config.format == "parquet" or _has_jar(config.format, given):
        return None
    try:
        if package(config.format):
            return None
    except ImportError:  # without Spark the job fails later, with a clear error
        return None
    version, newest = next(iter(reversed(_DELTA.items())))
    return (
        f"{newest} is for Spark {', '.join(_DELTA)}, and this is PySpark {_spark_version()}. "
        f'Install "pyspark=={version}.*", or give a newer Delta Lake in the keys "spark.jars" or '
        '"spark.jars.packages"'
    )


def is_foreign(folder: Path) -> bool:
    """Whether a local directory is a table that the job archive did not write."""
    if os.path.isdir(folder / MARKERS["delta"]):
        return not (folder / ARCHIVE_NOTE).exists()
    if not os.path.isdir(folder / MARKERS["iceberg"]):
        return False
    # Catalog metadata has other names. This does not read compressed metadata.
    versions = {
        int(match[1]): path
        for path in (folder / MARKERS["iceberg"]).iterdir()
        if (match := _VERSION.fullmatch(path.name))
    }
    newest = versions[max(versions)] if versions else None
    return newest is not None and f'"{ICEBERG_NOTE}"' not in newest.read_text(encoding="utf-8")


def settings(config: TableKeys, given: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings for the format. Keeps the given ones; appends to lists."""
    conf: dict[str, str] = {}
    if config.format == "parquet":
        return conf
    needed = package(config.format)
    if needed and not _has_jar(config.format, given):
        conf[_PACKAGES] = _append(given.get(_PACKAGES), needed)
    if config.format == "delta":
        conf[_EXTENSIONS] = _append(given.get(_EXTENSIONS), _DELTA_EXTENSION)
        if _CATALOG not in given:
            conf[_CATALOG] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    elif "spark.sql.parquet.outputTimestampType" not in given:
        conf["spark.sql.parquet.outputTimestampType"] = "TIMESTAMP_MICROS"
    return conf


def _spark_version() -> str:
    from pyspark import __version__

    return __version__


def package(name: str) -> str | None:
    """Return a format's package for the installed Spark, or None."""
    return _ICEBERG if name == "iceberg" else _DELTA.get(".".join(_spark_version().split(".")[:2]))


def _has_jar(name: str, given: Mapping[str, str]) -> bool:
    return any(_PARTS[name] in given.get(key, "") for key in _JARS)


def _append(before: str | None, element: str) -> str:
    elements = [item.strip() for item in (before or "").split(",") if item.strip()]
    return ",".join(elements if element in elements else [*elements, element])
