"""Iceberg tables, by Iceberg's own library in Spark's JVM.

Iceberg's connector supports Spark 4.1 and older: newer versions of Spark cannot load it. So Spark
writes and reads the Parquet files, and Iceberg's library manages the table: its schema, its
partitions, its files and its transactions. Other readers see a regular Iceberg table.

Experimental: the calls go through private members of PySpark's sessions (`_jvm`,
`_jsparkSession`). docs/design/jobs.md says what PyIceberg lacks to replace them.
"""

from __future__ import annotations

import fcntl
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cykafka.spark.jobs.config.models import TableKeys
from cykafka.spark.jobs.config.partition_by import TIMES, Expression, parse_transform
from cykafka.spark.jobs.config.table_formats import ICEBERG_NOTE
from cykafka.spark.jobs.folders import Folder
from cykafka.spark.jobs.problems import ConfigError, explain_error, wrong_value
from cykafka.spark.jobs.run.session import JobRun

__all__ = ["MAPPING", "DataFile", "Table"]

MAPPING = "schema.name-mapping.default"
_ATTEMPTS = 10
# Types whose values Iceberg does not read as text, or (decimals) truncates differently.
_UNFIT = {"identity": ("timestamp", "timestamp_ntz", "binary"), "truncate": ("decimal", "binary")}


def _has_aliases(mapping: list[dict[str, Any]]) -> bool:
    """Whether a name mapping contains a column with an older name."""
    return any(
        len(field["names"]) > 1 or _has_aliases(field.get("fields", [])) for field in mapping
    )


@dataclass(frozen=True)
class DataFile:
    """A table's file. `java` is Iceberg's object."""

    path: str
    spec: int
    partition: str
    records: int
    size: int
    java: Any


@dataclass(frozen=True)
class _TableAccess:
    """How to find, load and create a table: by its path, or by its name in a catalog."""

    exists: Callable[[], bool]
    load: Callable[[], Any]
    create: Callable[[Any, Any, Any], Any]


class Table:
    """The Iceberg table that a job's keys `path` or `table` name.

    Parameters
    ----------
    run : JobRun

    Raises
    ------
    ConfigError
        The catalog is not configured, or cannot be reached.
    """

    def __init__(self, run: JobRun[TableKeys]) -> None:
        self._config = run.config
        self._spark: SparkSession = run.spark
        jvm: Any = run.spark._jvm
        self._jvm = jvm
        self._iceberg = jvm.org.apache.iceberg
        self._table: Any = None
        inner: Any = run.spark._jsparkSession
        conf = inner.sessionState().newHadoopConf()
        with self._convert_errors():
            self._place: _TableAccess = (
                self._by_path(run.config.folder, conf)
                if run.config.table is None
                else self._by_name(run.config.table, conf)
            )
            if self._place.exists():
                self.load()

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Convert a Java error to one paragraph with the cause and the key."""
        try:
            yield
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"{self._config.place}: {explain_error(error)}") from error

    def _by_path(self, path: str, conf: Any) -> _TableAccess:
        tables = self._iceberg.hadoop.HadoopTables(conf)
        # With its scheme, so that workers and other readers find the same directory.
        address = self._jvm.org.apache.hadoop.fs.Path(path)
        name = str(address.getFileSystem(conf).makeQualified(address).toString())
        return _TableAccess(
            exists=lambda: tables.exists(name),
            load=lambda: tables.load(name),
            create=lambda schema, spec, properties: tables.create(schema, spec, properties, name),
        )

    def _by_name(self, table: str, conf: Any) -> _TableAccess:
        name, *levels, last = table.split(".")
        prefix = f"spark.sql.catalog.{name}."
        given: Any = self._spark.sparkContext.getConf().getAll()
        every = {**dict(given), **self._config.spark_options()}
        options = {k.removeprefix(prefix): v for k, v in every.items() if k.startswith(prefix)}
        if not {"type", "catalog-impl"} & set(options):
            raise ConfigError(
                f'key "table" = {table!r}: the catalog {name} has no type; set '
                f"sql.catalog.{name}.type (hadoop, hive, rest, jdbc, ...) in [spark] "
                f"and its other options, such as sql.catalog.{name}.uri or .warehouse"
            )
        catalog = self._iceberg.CatalogUtil.buildIcebergCatalog(
            name, self._jvm.java.util.HashMap(options), conf
        )
        gateway: Any = self._spark.sparkContext._gateway
        strings = gateway.new_array(self._jvm.java.lang.String, len(levels))
        for index, level in enumerate(levels):
            strings[index] = level
        namespace = self._iceberg.catalog.Namespace.of(strings)
        identifier = self._iceberg.catalog.TableIdentifier.of(namespace, last)

        def create(schema: Any, spec: Any, properties: Any) -> Any:
            if not catalog.namespaceExists(namespace):
                catalog.createNamespace(namespace)
            return catalog.createTable(identifier, schema, spec, properties)

        return _TableAccess(
            exists=lambda: catalog.tableExists(identifier),
            load=lambda: catalog.loadTable(identifier),
            create=create,
        )

    def load(self) -> None:
        """Load the table, or refresh it."""
        if self._table is None:
            self._table = self._place.load()
        else:
            self._table.refresh()

    @property
    def exists(self) -> bool:
        """Whether the table existed when it was last loaded."""
        return self._table is not None

    def get(self, name: str) -> str | None:
        """Return a table property as of the last load."""
        value = self._table.properties().get(name)
        return None if value is None else str(value)

    def names(self) -> str:
        """The mapping from names to the table's columns: a catalog may assign other ids."""
        mapping = self._iceberg.mapping
        return str(
            mapping.NameMappingParser.toJson(mapping.MappingUtil.create(self._table.schema()))
        )

    @property
    def columns(self) -> StructType:
        """The table's columns."""
        return self._to_spark(self._table.schema())

    def stored(self, columns: StructType) -> StructType:
        """Return these columns with table types: Iceberg lacks 8-bit and 16-bit integers."""
        with self._convert_errors():
            return self._to_spark(self._schema(columns))

    def _to_spark(self, schema: Any) -> StructType:
        converted = self._iceberg.spark.SparkSchemaUtil.convert(schema)
        return StructType.fromJson(json.loads(converted.json()))

    @property
    def expressions(self) -> list[Expression]:
        """Return the table's current partition expressions. Another writer may change them."""
        schema = self._table.schema()
        return [
            parse_transform(str(field.transform()), str(schema.findColumnName(field.sourceId())))
            for field in self._table.spec().fields()
        ]

    def create(self, columns: StructType, expressions: list[Expression], note: str) -> None:
        """Create the table.

        Raises
        ------
        ConfigError
            The catalog rejects the table.
        """
        schema = self._schema(columns)
        properties = {
            "format-version": "2",
            "write.metadata.delete-after-commit.enabled": "true",
            ICEBERG_NOTE: note,
        }
        spec = self.spec(columns, expressions)
        with self._convert_errors():
            self._table = self._place.create(schema, spec, properties)

    def spec(self, columns: StructType, expressions: list[Expression]) -> Any:
        """Return Iceberg's object for a table's partition expressions.

        Raises
        ------
        ConfigError
            Iceberg rejects the expressions.
        """
        builder = self._iceberg.PartitionSpec.builderFor(self._schema(columns))
        try:
            for expression in expressions:
                numbers = [expression.number] if expression.number else []
                getattr(builder, expression.function)(expression.column, *numbers, expression.name)
            return builder.build()
        except Exception as error:  # of Java
            words = ", ".join(map(str, expressions))
            raise wrong_value("partition_by", words, explain_error(error)) from error

    def check(self, rows: DataFrame, columns: StructType, expressions: list[Expression]) -> None:
        """Check that files can have the rows' partitions; `columns` are the table's columns.

        Raises
        ------
        ConfigError
            Files cannot have these partitions.
        """
        self.spec(columns, expressions)
        for expression in expressions:
            kind = rows.select(expression.column).schema[0].dataType.typeName()
            if kind in _UNFIT.get(expression.function, ()) or (
                expression.function in TIMES and kind != "timestamp"
            ):
                words = ", ".join(map(str, expressions))
                raise wrong_value(
                    "partition_by", words, f"{expression}: cannot partition by a {kind}"
                )

    def _schema(self, columns: StructType) -> Any:
        inner: Any = self._jvm.org.apache.spark.sql.types.DataType.fromJson(columns.json())
        # Rows from other schemas may lack any column, so all columns may be null.
        schema = self._iceberg.spark.SparkSchemaUtil.convert(inner.asNullable())
        return self._iceberg.types.TypeUtil.assignIncreasingFreshIds(schema)  # from 1

    def attempt(self, change: Callable[[Any], bool]) -> None:
        """Apply a change without committing it, so that Iceberg checks the change."""
        change(self._table.newTransaction())

    def add_columns(self, transaction: Any, columns: StructType) -> None:
        """Add new columns and fields, and widen types, as far as Iceberg supports it."""
        with self._convert_errors():
            transaction.updateSchema().unionByNameWith(self._schema(columns)).commit()

    # -- files

    def files(self) -> list[DataFile]:
        """Return the files in the table's newest snapshot.

        Raises
        ------
        ConfigError
            Another writer deleted single rows or renamed columns, which files alone do not show.
        """
        if _has_aliases(json.loads(self.get(MAPPING) or "[]")):
            raise ConfigError(
                f"{self._config.place}: another writer has renamed columns of this table. "
                "This job reads columns by their names, and older files have the old ones"
            )
        found = []
        tasks = self._table.newScan().planFiles()
        try:
            iterator = tasks.iterator()
            while iterator.hasNext():
                task = iterator.next()
                file = task.file()
                if task.deletes().size():
                    raise ConfigError(
                        f"{self._config.place}: another writer has deleted rows of this "
                        "table; rewrite its files with that writer first"
                    )
                found.append(
                    DataFile(
                        str(file.location()),
                        int(file.specId()),
                        str(file.partition().toString()),
                        int(file.recordCount()),
                        int(file.fileSizeInBytes()),
                        file,
                    )
                )
        finally:
            tasks.close()
        return found

    def write(self, rows: DataFrame, expressions: list[Expression], most_records: int = 0,
              compression: str = "zstd") -> list[Any]:  # fmt: skip
        """Write rows to new files, invisible until a commit. Returns Iceberg's objects.

        Raises
        ------
        RuntimeError
            Files are missing: workers wrote them to another file system.
        """
        # Do not start with an underscore: remove_orphan_files would skip these directories.
        names = [f"cykafka_{number}" for number in range(len(expressions))]
        seen = Observation()
        values = self.values(rows, expressions)
        # Prefix a letter, because Spark's directory names cannot represent empty texts.
        values = [F.concat(F.lit("v"), value.cast("string")) for value in values]
        staged = rows.withColumns(dict(zip(names, values, strict=True)))
        staged = staged.observe(seen, F.count(F.lit(1)).alias("count"))
        folder = f"{self._table.location()}/data/cykafka-{uuid.uuid4().hex}"
        writer = staged.write.partitionBy(*names).option("compression", compression)
        # remove_orphan_files would skip a file _SUCCESS.
        writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        if most_records:
            writer = writer.option("maxRecordsPerFile", most_records)
        writer.parquet(folder)
        count = int(seen.get.get("count") or 0)
        if not count:  # the directory may not exist
            return []
        listed = (
            self._spark.read.schema(", ".join(f"{name} STRING" for name in names))
            .parquet(folder)
            .groupBy(F.col("_metadata.file_path").alias("file"), *names)
            .agg(F.count(F.lit(1)).alias("records"))
            .collect()
        )
        there = sum(row.records for row in listed)
        if there != count:
            raise RuntimeError(
                f"{count} records were written, but only {there} of them are in the files in "
                f"{folder}: check that all workers and the driver use the same file system"
            )
        # Spark returns URIs, and Iceberg takes paths literally.
        return self._data_files(
            {unquote(row.file): [row[name] and row[name][1:] for name in names] for row in listed}
        )

    def values(self, rows: DataFrame, expressions: list[Expression]) -> list[Column]:
        """Return partition values by Iceberg's rules, in forms that its library reads as text."""

        def value(expression: Expression) -> Column:
            column = F.col(expression.column)
            if expression.function in TIMES:
                # In UTC, regardless of the session's time zone.
                hour = F.floor(F.unix_seconds(column) / 3600)
                day = F.date_from_unix_date(F.floor(F.unix_seconds(column) / 86400).cast("int"))
                return {
                    "year": F.year(day) - 1970,
                    "month": (F.year(day) - 1970) * 12 + F.month(day) - 1,
                    "day": day,
                    "hour": hour,
                }[expression.function]
            if expression.function == "bucket":
                kind: Any = rows.select(column.alias("x"))
                function = f"cykafka_bucket_{expression.name}_{expression.number}"
                self._iceberg.spark.IcebergSpark.registerBucketUDF(
                    rows.sparkSession._jsparkSession, function,
                    kind._jdf.schema().apply(0).dataType(), expression.number,
                )  # fmt: skip
                return F.call_function(function, column)
            return expression.truncated(rows) if expression.function == "truncate" else column

        return [value(expression) for expression in expressions]

    def _data_files(self, files: dict[str, list[str | None]]) -> list[Any]:
        """Return Iceberg's objects for files, from paths and partition values."""
        library, table = self._iceberg, self._table
        mapping = library.mapping.MappingUtil.create(table.schema())
        metrics = library.MetricsConfig.forTable(table)
        footers, spec, io = library.parquet.ParquetUtil, table.spec(), table.io()

        def data_file(path: str, values: list[str | None]) -> Any:
            file = io.newInputFile(path)
            return (
                library.DataFiles.builder(spec)
                .withInputFile(file)
                .withFormat("parquet")
                .withMetrics(footers.fileMetrics(file, metrics, mapping))
                .withPartitionValues(values)
                .build()
            )

        return [data_file(path, values) for path, values in files.items()]

    # -- transactions

    def snapshot(self) -> int | None:
        """Return the newest snapshot's id, or None without a snapshot."""
        newest = self._table.currentSnapshot()
        return None if newest is None else int(newest.snapshotId())

    def partitions(self) -> int:
        """Return the id of the table's current partition spec: older files may use another one."""
        return int(self._table.spec().specId())

    def replace(
        self, transaction: Any, snapshot: int | None, old: list[DataFile], new: list[Any]
    ) -> bool:
        """Replace files, which must be unchanged since the snapshot."""
        update = transaction.newRewrite()
        if snapshot is not None:
            update.validateFromSnapshot(snapshot)
        for file in old:
            update.deleteFile(file.java)
        for file in new:
            update.addFile(file)
        update.commit()
        return True

    def commit(self, change: Callable[[Any], bool]) -> None:
        """Commit a transaction that replaces exactly the version of the table that `change` saw.

        `change` gets the transaction and adds to it. It returns True, or False if there is nothing
        to do. If another writer commits in the meantime, this calls `change` again with the newer
        version. Iceberg's own commit would repeat the change without checking the newer version.

        Raises
        ------
        RuntimeError
            Other writers kept committing.
        """
        for _ in range(_ATTEMPTS):
            self.load()
            transaction = self._table.newTransaction()
            if not change(transaction):
                return
            try:
                with self._locked():
                    self._table.operations().commit(
                        transaction.startMetadata(), transaction.currentMetadata()
                    )
                self.load()
                return
            except Exception as error:  # of Java
                # Also raise if it is unknown whether this committed: a restart checks.
                if "CommitFailedException" not in str(error):
                    raise
        raise RuntimeError(
            f"{self._config.place}: other writers of the Iceberg table committed {_ATTEMPTS} "
            "times before this job could; an archive needs its own table"
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock a table without a catalog in a local directory, for the jobs on this machine.

        Iceberg checks whether the next version exists, and then renames its own file to that
        version. Between the two steps another process may commit, and a local rename would replace
        that commit.
        """
        operations = str(self._table.operations().getClass().getName())
        folder = Folder(self._spark, str(self._table.location())).address
        if not operations.endswith(".HadoopTableOperations") or not folder.startswith("file:"):
            yield
            return
        name = f"{folder.removeprefix('file:')}/metadata/.cykafka.lock"
        with open(name, "w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
