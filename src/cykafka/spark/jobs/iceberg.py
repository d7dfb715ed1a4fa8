"""Iceberg tables, by Iceberg's own library in Spark's JVM.

Iceberg's connector for Spark exists for Spark 4.1 and older: newer versions of Spark cannot load
it. So Spark writes and reads the Parquet files, and Iceberg's library keeps the table: its schema,
its partitions, its files and its transactions. Other readers see a table like any other.
"""

from __future__ import annotations

import fcntl
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from cykafka.spark.jobs.errors import explained
from cykafka.spark.jobs.folders import Folder
from cykafka.spark.jobs.formats import ICEBERG_NOTE as NOTE
from cykafka.spark.jobs.partitions import TIMES, Expression, of_transform
from cykafka.spark.jobs.problems import ConfigError, wrong_value
from cykafka.spark.jobs.tables import check_loaded

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from cykafka.spark.jobs.config import TableKeys
    from cykafka.spark.jobs.session import Run

__all__ = ["MAPPING", "DataFile", "Table"]

MAPPING = "schema.name-mapping.default"
_ATTEMPTS = 10
# Types whose values Iceberg does not read as text, or (decimals) truncates by another rule.
_UNFIT = {"identity": ("timestamp", "timestamp_ntz", "binary"), "truncate": ("decimal", "binary")}


def _has_aliases(mapping: list[dict[str, Any]]) -> bool:
    """Whether a mapping of names has a column with an older name."""
    return any(len(each["names"]) > 1 or _has_aliases(each.get("fields", [])) for each in mapping)


@dataclass(frozen=True)
class DataFile:
    """A file of a table. `java` is Iceberg's object."""

    path: str
    spec: int
    partition: str
    records: int
    size: int
    java: Any


@dataclass(frozen=True)
class _Place:
    """How to find, load and create a table: by its path, or by its name in a catalog."""

    exists: Callable[[], bool]
    load: Callable[[], Any]
    create: Callable[[Any, Any, Any], Any]


class Table:
    """The Iceberg table of a job's keys `path` or `table`.

    Parameters
    ----------
    run : Run

    Raises
    ------
    ConfigError
        The catalog is not configured, or cannot be reached.
    """

    def __init__(self, run: Run[TableKeys]) -> None:
        check_loaded(run)
        self._config = run.config
        self._spark: SparkSession = run.spark
        jvm: Any = run.spark._jvm
        self._jvm = jvm
        self._iceberg = jvm.org.apache.iceberg
        self._table: Any = None
        inner: Any = run.spark._jsparkSession
        conf = inner.sessionState().newHadoopConf()
        with self._naming():
            self._place: _Place = (
                self._by_path(run.config.folder, conf)
                if run.config.table is None
                else self._by_name(run.config.table, conf)
            )
            if self._place.exists():
                self.load()

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Turn an error of Java into one paragraph with the cause and the key."""
        try:
            yield
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError([f"{self._config.place}: {explained(error)}"]) from error

    def _by_path(self, path: str, conf: Any) -> _Place:
        tables = self._iceberg.hadoop.HadoopTables(conf)
        # With its scheme, so that workers and other readers find the same folder.
        address = self._jvm.org.apache.hadoop.fs.Path(path)
        name = str(address.getFileSystem(conf).makeQualified(address).toString())
        return _Place(
            exists=lambda: tables.exists(name),
            load=lambda: tables.load(name),
            create=lambda schema, spec, properties: tables.create(schema, spec, properties, name),
        )

    def _by_name(self, table: str, conf: Any) -> _Place:
        name, *levels, last = table.split(".")
        prefix = f"spark.sql.catalog.{name}."
        given: Any = self._spark.sparkContext.getConf().getAll()
        every = {**dict(given), **self._config.spark_options()}
        options = {k.removeprefix(prefix): v for k, v in every.items() if k.startswith(prefix)}
        if not {"type", "catalog-impl"} & set(options):
            raise ConfigError(
                [
                    f'key "table" = {table!r}: the catalog {name} has no type; set '
                    f"sql.catalog.{name}.type (hadoop, hive, rest, jdbc, ...) in [spark] "
                    f"and its other options, such as sql.catalog.{name}.uri or .warehouse"
                ]
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

        return _Place(
            exists=lambda: catalog.tableExists(identifier),
            load=lambda: catalog.loadTable(identifier),
            create=create,
        )

    def load(self) -> None:
        """Load the table, or what is new of it."""
        if self._table is None:
            self._table = self._place.load()
        else:
            self._table.refresh()

    @property
    def exists(self) -> bool:
        """Whether the table existed when it was last loaded."""
        return self._table is not None

    def get(self, name: str) -> str | None:
        """A property of the table as it was last loaded."""
        value = self._table.properties().get(name)
        return None if value is None else str(value)

    def names(self) -> str:
        """The mapping of names to the table's columns: a catalog may give them other ids."""
        mapping = self._iceberg.mapping
        return str(
            mapping.NameMappingParser.toJson(mapping.MappingUtil.create(self._table.schema()))
        )

    @property
    def columns(self) -> StructType:
        """The table's columns."""
        return self._by_spark(self._table.schema())

    def stored(self, columns: StructType) -> StructType:
        """These columns with a table's types: Iceberg has no integers of 8 or 16 bits."""
        with self._naming():
            return self._by_spark(self._schema(columns))

    def _by_spark(self, schema: Any) -> StructType:
        from pyspark.sql.types import StructType

        converted = self._iceberg.spark.SparkSchemaUtil.convert(schema)
        return StructType.fromJson(json.loads(converted.json()))

    @property
    def expressions(self) -> list[Expression]:
        """What partitions the table now, which another writer may have changed."""
        schema = self._table.schema()
        return [
            of_transform(str(field.transform()), str(schema.findColumnName(field.sourceId())))
            for field in self._table.spec().fields()
        ]

    def create(self, columns: StructType, expressions: list[Expression], note: str) -> None:
        """Create the table.

        Raises
        ------
        ConfigError
            The catalog refuses it.
        """
        schema = self._schema(columns)
        properties = {
            "format-version": "2",
            "write.metadata.delete-after-commit.enabled": "true",
            NOTE: note,
        }
        spec = self.spec(columns, expressions)
        with self._naming():
            self._table = self._place.create(schema, spec, properties)

    def spec(self, columns: StructType, expressions: list[Expression]) -> Any:
        """Iceberg's object for what partitions a table.

        Raises
        ------
        ConfigError
            Iceberg refuses it.
        """
        builder = self._iceberg.PartitionSpec.builderFor(self._schema(columns))
        try:
            for each in expressions:
                numbers = [each.number] if each.number else []
                getattr(builder, each.function)(each.column, *numbers, each.name)
            return builder.build()
        except Exception as error:  # of Java
            words = ", ".join(map(str, expressions))
            raise wrong_value("partition_by", words, explained(error)) from error

    def check(self, rows: DataFrame, columns: StructType, expressions: list[Expression]) -> None:
        """Check that files can have the partitions of rows; `columns` are those of the table.

        Raises
        ------
        ConfigError
            They cannot.
        """
        self.spec(columns, expressions)
        for each in expressions:
            kind = rows.select(each.column).schema[0].dataType.typeName()
            if kind in _UNFIT.get(each.function, ()) or (
                each.function in TIMES and kind != "timestamp"
            ):
                words = ", ".join(map(str, expressions))
                raise wrong_value("partition_by", words, f"{each}: cannot partition by a {kind}")

    def _schema(self, columns: StructType) -> Any:
        inner: Any = self._jvm.org.apache.spark.sql.types.DataType.fromJson(columns.json())
        # Rows of other schemas may lack any column, so all may be null.
        schema = self._iceberg.spark.SparkSchemaUtil.convert(inner.asNullable())
        return self._iceberg.types.TypeUtil.assignIncreasingFreshIds(schema)  # from 1

    def attempt(self, change: Callable[[Any], bool]) -> None:
        """Make a change without its commit, so that Iceberg checks it."""
        change(self._table.newTransaction())

    def add_columns(self, transaction: Any, columns: StructType) -> None:
        """Add new columns and fields, and widen types, as Iceberg can."""
        with self._naming():
            transaction.updateSchema().unionByNameWith(self._schema(columns)).commit()

    # -- files

    def files(self) -> list[DataFile]:
        """The files of the table's newest snapshot.

        Raises
        ------
        ConfigError
            Another writer deleted single rows or renamed columns, which files alone do not show.
        """
        if _has_aliases(json.loads(self.get(MAPPING) or "[]")):
            raise ConfigError(
                [
                    f"{self._config.place}: another writer has renamed columns of this table. "
                    "This job reads columns by their names, and older files have the old ones"
                ]
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
                        [
                            f"{self._config.place}: another writer has deleted rows of this "
                            "table; rewrite its files with that writer first"
                        ]
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
        """Write rows to new files, which no reader sees before a commit; return Iceberg's objects.

        Raises
        ------
        RuntimeError
            Files are missing: workers wrote them to another file system.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        # No underscore in front: remove_orphan_files would skip these folders.
        names = [f"cykafka_{number}" for number in range(len(expressions))]
        seen = Observation()
        values = self.values(rows, expressions)
        # The letter in front, because Spark's folders have no empty texts.
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
        if not count:  # there may be no folder
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
        # Spark gives URIs, and Iceberg takes paths as they are.
        return self._data_files(
            {unquote(row.file): [row[name] and row[name][1:] for name in names] for row in listed}
        )

    def values(self, rows: DataFrame, expressions: list[Expression]) -> list[Column]:
        """The partitions' values by Iceberg's rules, in forms that its library reads as text."""
        from pyspark.sql import functions as F

        def value(each: Expression) -> Column:
            column = F.col(each.column)
            if each.function in TIMES:
                # Of UTC, whatever the time zone of the session is.
                hour = F.floor(F.unix_seconds(column) / 3600)
                day = F.date_from_unix_date(F.floor(F.unix_seconds(column) / 86400).cast("int"))
                return {
                    "year": F.year(day) - 1970,
                    "month": (F.year(day) - 1970) * 12 + F.month(day) - 1,
                    "day": day,
                    "hour": hour,
                }[each.function]
            if each.function == "bucket":
                kind: Any = rows.select(column.alias("x"))
                function = f"cykafka_bucket_{each.name}_{each.number}"
                self._iceberg.spark.IcebergSpark.registerBucketUDF(
                    rows.sparkSession._jsparkSession, function,
                    kind._jdf.schema().apply(0).dataType(), each.number,
                )  # fmt: skip
                return F.call_function(function, column)
            return each.truncated(rows) if each.function == "truncate" else column

        return [value(each) for each in expressions]

    def _data_files(self, files: dict[str, list[str | None]]) -> list[Any]:
        """Iceberg's objects for files: their paths, and the values of their partitions."""
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
        """The id of the newest snapshot; None if the table has none."""
        newest = self._table.currentSnapshot()
        return None if newest is None else int(newest.snapshotId())

    def partitions(self) -> int:
        """The id of the table's current partitions: older files may have others."""
        return int(self._table.spec().specId())

    def replace(
        self, transaction: Any, snapshot: int | None, old: list[DataFile], new: list[Any]
    ) -> bool:
        """Replace files, which must be as they were in the snapshot."""
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

        `change` gets the transaction, adds to it and returns True; False if nothing is to do. If
        another writer has committed meanwhile, it is called again with the newer version.
        Iceberg's own commit would repeat the change without this look at the newer version.

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
                # Raise also if it is unknown whether this has committed: a restart looks.
                if "CommitFailedException" not in str(error):
                    raise
        raise RuntimeError(
            f"{self._config.place}: other writers of the Iceberg table committed {_ATTEMPTS} "
            "times before this job could; an archive needs a table of its own"
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock a table without a catalog in a local folder, for the jobs of this machine.

        Iceberg looks whether the next version exists and renames its own to it. Between the two
        steps another process may commit, and a local rename would replace that commit.
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
