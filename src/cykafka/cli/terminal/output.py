"""Prints a command's rows: a table for people, aligned text in a pipe, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cykafka.cli.terminal.texts import printable, printable_json

__all__ = ["json_line", "show", "table"]

_GAP = "  "
_ANY_WIDTH = 100_000
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


def json_line(value: object) -> str:
    """Return a value as JSON on one line. For a terminal, escape control characters."""
    line = _encode(value)
    return printable_json(line) if sys.stdout.isatty() else line


def show(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    as_json: bool = False,
    title: str | None = None,
) -> None:
    """Print rows to standard output.

    A table that is too wide for the terminal becomes lines, as in a pipe.

    Parameters
    ----------
    columns : sequence of str
        The column names; with `as_json` the member names.
    rows : iterable of sequence
        The cells. None becomes ``-``, or null in JSON.
    as_json : bool
        Print one JSON object per line.
    title : str, optional
        A line above the table; only on a terminal.
    """
    if as_json:
        for row in rows:
            print(json_line(dict(zip(columns, row, strict=True))))
        return
    rows = list(rows)
    if sys.stdout.isatty():
        console, made = Console(), table(columns, rows, title)
        needed = console.measure(made, options=console.options.update(max_width=_ANY_WIDTH))
        if needed.minimum <= console.width:  # otherwise Rich would break names
            console.print(made)
            return
        if title is not None:
            print(title)
    cells = [list(columns), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    right = _numeric(columns, rows)
    for line in cells:
        padded = map(_padded, line, widths, right)
        print(_GAP.join(padded).rstrip())


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    title: str | None = None,
    *,
    cut: bool = False,
) -> Table:
    """Return rows as a table for a terminal. `show` describes the other parameters.

    Parameters
    ----------
    cut : bool
        Cut texts that are too long for the terminal, instead of folding them.
    """
    made = Table(title=title and Text(title), title_justify="left")
    for name, to_right in zip(columns, _numeric(columns, rows), strict=True):
        # Rich narrows columns without wrapping last, so numbers stay whole.
        made.add_column(
            Text(name),
            justify="right" if to_right else "left",
            overflow="ellipsis" if cut else "fold",
            no_wrap=cut and to_right,
        )
    for row in rows:  # Text: cells are not markup
        made.add_row(*(Text(_text(cell), no_wrap=cut) for cell in row))
    return made


def _numeric(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[bool]:
    """Return whether each column contains only numbers."""
    kinds = [{type(row[at]) for row in rows} - {type(None)} for at in range(len(columns))]
    return [bool(types) and types <= {int, float} for types in kinds]


def _padded(cell: str, width: int, to_right: bool) -> str:
    gap = " " * (width - cell_len(cell))
    return gap + cell if to_right else cell + gap


def _text(cell: Any) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return printable(str(cell))
