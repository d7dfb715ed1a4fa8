"""Expressions that partition an archive: columns, parts of times, buckets and truncated values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["TIMES", "Expression", "parse", "parse_transform", "split"]

_COLUMN = r"(?P<column>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
_EXPRESSION = re.compile(
    rf"{_COLUMN}|(?P<time>year|month|day|hour)\(\s*{_COLUMN.replace('column', 'moment')}\s*\)"
    rf"|(?P<part>bucket|truncate)\(\s*(?P<number>[1-9]\d{{0,8}})\s*,\s*"
    rf"{_COLUMN.replace('column', 'source')}\s*\)"
)
# The formats of the values: as text they sort like the times.
TIMES = {"year": "yyyy", "month": "yyyy-MM", "day": "yyyy-MM-dd", "hour": "yyyy-MM-dd-HH"}
_ENDINGS = {"truncate": "trunc"}


@dataclass(frozen=True)
class Expression:
    """An expression that partitions an archive.

    Parameters
    ----------
    function : str
        ``identity``, ``year``, ``month``, ``day``, ``hour``, ``bucket`` or ``truncate``.
    column : str
        The column, or the path of a field in a column that is a struct.
    number : int
        The number of buckets, or the width of truncated values.
    """

    function: str
    column: str
    number: int = 0

    def __str__(self) -> str:
        if self.function == "identity":
            return self.column
        number = f"{self.number}, " if self.number else ""
        return f"{self.function}({number}{self.column})"

    @property
    def name(self) -> str:
        """The name of the column with the expression's value: ``timestamp_hour``."""
        plain = self.column.replace(".", "_")
        if self.function == "identity":
            return plain
        return f"{plain}_{_ENDINGS.get(self.function, self.function)}"

    def value(self, records: DataFrame) -> Column:
        """The expression's value, by Spark's own functions."""
        from pyspark.sql import functions as F

        if self.function in TIMES:
            return F.date_format(self.column, TIMES[self.function])
        if self.function == "bucket":
            return F.pmod(F.hash(self.column), F.lit(self.number))
        if self.function == "truncate":
            return self.truncated(records)
        return F.col(self.column)

    def truncated(self, records: DataFrame) -> Column:
        """The beginning of a text, or the largest multiple of the width up to a number."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType

        column = F.col(self.column)
        if isinstance(records.select(column).schema[0].dataType, StringType):
            return F.left(column, F.lit(self.number))
        return column - F.pmod(column, F.lit(self.number))


def split(value: object) -> object:
    """Split one text into expressions, at commas outside parentheses."""
    if not isinstance(value, str):
        return value
    return [part.strip() for part in re.split(r",(?![^()]*\))", value)]


def parse(text: str) -> Expression:
    """Read an expression.

    Raises
    ------
    ValueError
        The text is not an expression.
    """
    match = _EXPRESSION.fullmatch(text)
    if match is None:
        raise ValueError(
            "expected columns, year(timestamp), month(timestamp), day(timestamp), "
            f"hour(timestamp), bucket(16, key) or truncate(10, offset); {text!r} is none of them"
        )
    if match["time"]:
        return Expression(match["time"], match["moment"])
    if match["part"]:
        return Expression(match["part"], match["source"], int(match["number"]))
    return Expression("identity", match["column"])


def parse_transform(words: str, column: str) -> Expression:
    """The expression of a transform as Iceberg writes it, such as ``bucket[16]``."""
    function, _, number = words.rstrip("]").partition("[")
    return Expression(function, column, int(number or 0))
