"""Rows of a command's answer: a table for people, aligned text in a pipe, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["json_line", "show"]

_GAP = "  "
json_line = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


def show(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    as_json: bool = False,
    title: str | None = None,
) -> None:
    """Print rows to standard output.

    Parameters
    ----------
    columns : sequence of str
        The names of the columns; with `as_json` the names of the members.
    rows : iterable of sequence
        The cells. None is ``-``, and null in JSON.
    as_json : bool
        Print one JSON object a line.
    title : str, optional
        A line above the table; only on a terminal.
    """
    if as_json:
        for row in rows:
            print(json_line(dict(zip(columns, row, strict=True))))
        return
    kept = [list(row) for row in rows]
    right = [_is_numeric([row[at] for row in kept]) for at in range(len(columns))]
    cells = [[_text(cell) for cell in row] for row in kept]
    if sys.stdout.isatty():
        _table(columns, cells, right, title)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for line in (list(columns), *cells):
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        )
        print(_GAP.join(padded).rstrip())


def _table(
    columns: Sequence[str], cells: list[list[str]], right: list[bool], title: str | None
) -> None:
    table = Table(title=title and Text(title), title_justify="left")
    for name, to_right in zip(columns, right, strict=True):
        table.add_column(Text(name), justify="right" if to_right else "left", overflow="fold")
    for line in cells:
        table.add_row(*(Text(cell) for cell in line))  # Text: cells are no markup
    Console().print(table)


def _is_numeric(column: list[Any]) -> bool:
    kinds = {type(cell) for cell in column if cell is not None}
    return bool(kinds) and kinds <= {int, float}


def _text(cell: Any) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return str(cell)
