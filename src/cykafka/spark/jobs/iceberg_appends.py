"""Appends the micro-batches of the job ``archive`` to an Iceberg table, each exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cykafka.spark.jobs.formats import ICEBERG_NOTE as NOTE
from cykafka.spark.jobs.iceberg import MAPPING
from cykafka.spark.jobs.tables import check_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cykafka.spark.jobs.archive_claim import Owner
    from cykafka.spark.jobs.config import Archive
    from cykafka.spark.jobs.iceberg import Table
    from cykafka.spark.jobs.partitions import Expression
    from cykafka.spark.jobs.session import Run

__all__ = ["Appends"]

# A property of the table: the number of its last micro-batch.
BATCH = "cykafka.batch"


class Appends:
    """Appends micro-batches to a table, each with its number in the same transaction.

    Parameters
    ----------
    run : Run
    table : Table
    owner : Owner
    rows : DataFrame
        The rows to write.
    expressions : list of Expression
    """

    def __init__(self, run: Run[Archive], table: Table, owner: Owner, rows: DataFrame,
                 expressions: list[Expression]) -> None:  # fmt: skip
        self._config = run.config
        self._run = run
        self._table = table
        self._owner = owner
        self._merged = False
        self._columns = table.stored(rows.schema)
        self._rows = rows
        self._expressions = expressions

    def check(self) -> None:
        """Check the table before the query starts.

        Raises
        ------
        ConfigError
            The table belongs to another writer, or has other partitions or columns. Or the
            checkpoint is not as new as the table.
        """
        if not self._table.exists:
            if self._owner.has_committed():
                raise self._owner.lost()
            self._table.check(self._rows, self._columns, self._expressions)
            return
        self._check_owner(self._table.get(NOTE))
        last = self._table.get(BATCH)
        if last is not None and int(last) > self._owner.planned():
            raise self._owner.outdated(int(last))
        check_columns(self._run, self._table.columns, self._columns)
        if self._config.merge_schema:
            self._table.attempt(self._merge)

    def _check_owner(self, note: str | None) -> None:
        if note is None:
            raise self._owner.not_ours()
        self._owner.check(note, f"property {NOTE}")
        there = [str(each) for each in self._table.expressions]
        if there != self._owner.form["folders"]:  # another writer has changed them
            raise self._owner.other_folders(there)

    def write(self, batch: DataFrame, number: int) -> None:
        """Append a micro-batch, unless the table has it."""
        table = self._table
        if not table.exists:
            table.create(self._columns, self._expressions, self._owner.note())
        table.load()
        self._check_owner(table.get(NOTE))
        if self._config.merge_schema and not self._merged:
            table.commit(self._merge)
            self._merged = True
        if self._has(table.get(BATCH), number):
            return
        files = table.write(batch, self._expressions, compression=self._config.compression)

        def append(transaction: Any) -> bool:
            properties = transaction.table().properties()
            self._check_owner(properties.get(NOTE))
            if self._has(properties.get(BATCH), number):
                return False
            update = transaction.newAppend()
            for file in files:
                update.appendFile(file)
            update.set(BATCH, str(number))
            update.commit()
            changes = transaction.updateProperties().set(BATCH, str(number))
            if properties.get(MAPPING) is None:  # it comes with the first files, which need it
                changes.set(MAPPING, table.names())
            changes.commit()
            return True

        table.commit(append)

    def _merge(self, transaction: Any) -> bool:
        there = {field.name: field.dataType.simpleString() for field in self._table.columns}
        rows = {field.name: field.dataType.simpleString() for field in self._columns}
        if rows.items() <= there.items():
            return False
        self._table.add_columns(transaction, self._columns)
        return True

    @staticmethod
    def _has(last: str | None, number: int) -> bool:
        return last is not None and int(last) >= number
