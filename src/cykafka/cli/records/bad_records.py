"""Lines that are not records, and records that the command cannot decode."""

from __future__ import annotations

from collections.abc import Callable

from cykafka.cli.terminal.failures import Failed

__all__ = ["BadRecord", "BadRecords"]

_SHOWN = 5


class BadRecord(Failed):
    """A line is not a record, or a record cannot be decoded."""


class BadRecords:
    """Counts bad records, or raises at the first one.

    Parameters
    ----------
    skip : bool
        Whether to continue after bad records.
    report : callable
        Called with a text about each of the first five bad records.
    hint : str
        The error's hint about skipping.
    """

    def __init__(self, skip: bool, report: Callable[[str], None], hint: str) -> None:
        self.skip = skip
        self.count = 0
        self.report = report
        self._hint = hint

    def add(self, place: str, why: str) -> None:
        """Note a bad record.

        Parameters
        ----------
        place : str
            Such as ``orders.txt, line 7``, or ``orders[3] at offset 7``.
        why : str

        Raises
        ------
        BadRecord
            `skip` is False.
        """
        text = f"{place}: {why}"
        if not self.skip:
            raise BadRecord(text + self._hint)
        self.count += 1
        if self.count <= _SHOWN:
            self.report(f"skipped {text}")
