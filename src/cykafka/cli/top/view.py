"""The ``cykafka top`` page, drawn by Textual."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

from rich.console import JustifyMethod
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.message import Message
from textual.widgets import DataTable, Footer, Input, Static

from cykafka.cli.terminal.failures import Failed, Status
from cykafka.cli.terminal.texts import printable
from cykafka.cli.top.sampling import History, Row, Sample, by_group, sparkline

__all__ = ["TopApp"]

# The columns and their widths; the names share the rest of the line.
_NUMBERS = {"PART": 5, "LAG": 9, "IN/s": 7, "OUT/s": 7}
_COURSE = 8
_NARROW = 80
_SERVERS = 20
# More rows would freeze the page for part of a second at every sample.
_MOST_ROWS = 200
_PADDING = 1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SORTS: dict[str, Callable[[Row], Any]] = {
    "lag": lambda row: -1 if row.lag is None else row.lag,
    "in": lambda row: -1.0 if row.produced_s is None else row.produced_s,
    "out": lambda row: -1.0 if row.consumed_s is None else row.consumed_s,
    "errors": lambda row: len(row.errors),
    "name": lambda row: 0,  # the rows are already sorted by name
}
# The column whose title shows the sort order.
_SORTED = {"lag": "LAG", "in": "IN/s", "out": "OUT/s", "errors": "COURSE", "name": "GROUP"}


class TopApp(App[None]):
    """Shows the groups and takes samples until the user quits.

    Parameters
    ----------
    sample : callable
        Takes a sample, in a thread; it may block, and may raise Failed.
    interval : float
        Seconds between samples.
    servers : str
        The addresses of the brokers, for the title.
    now : callable
        The time in seconds since the epoch.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary { height: 1; text-style: bold; }
    #failure { height: auto; max-height: 3; background: $error; color: $text; display: none; }
    #detail { height: 2; color: $text-muted; }
    #filter { display: none; height: 1; border: none; padding: 0; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("l", "sort('lag')", "Lag"),
        Binding("i", "sort('in')", "In"),
        Binding("o", "sort('out')", "Out"),
        Binding("e", "sort('errors')", "Errors"),
        Binding("n", "sort('name')", "Name"),
        Binding("r", "reverse", "Reverse"),
        Binding("g", "groups", "Groups"),
        Binding("slash", "filter", "Filter"),
        Binding("p", "pause", "Pause"),
        Binding("escape", "clear", "Clear", show=False),
        Binding("ctrl+c", "interrupt", show=False, priority=True),  # not "copy", as in Textual
    ]

    class Sampled(Message):
        """A sample succeeded."""

        def __init__(self, sample: Sample, rows: list[Row]) -> None:
            self.sample = sample
            self.rows = rows
            super().__init__()

    class Unanswered(Message):
        """A sample failed."""

        def __init__(self, error: str) -> None:
            self.error = error
            super().__init__()

    def __init__(
        self,
        sample: Callable[[], Sample],
        interval: float,
        servers: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self._sample = sample
        self._interval = interval
        self._servers = servers
        self._now = now
        self._history = History()
        self._rows: list[Row] = []
        self._shown: list[Row] = []
        self._found = 0
        self._latest: Sample | None = None
        self._sort = "lag"
        self._reverse = False
        self._grouped = False
        self._paused = False
        self._pattern = ""
        # Kept here: a sample may arrive during shutdown, when the page no longer has widgets.
        self._summary = Static(id="summary", markup=False)
        self._failure = Static(id="failure", markup=False)
        self._table: DataTable[Text] = DataTable(cursor_type="row", cell_padding=_PADDING)
        self._detail = Static(id="detail", markup=False)
        self._filter = Input(
            placeholder="part of a group's or topic's name; Esc clears", id="filter", compact=True
        )
        self._stop = threading.Event()
        # A daemon, so that the program's exit does not wait for a broker response.
        self.sampling = threading.Thread(target=self._take_samples, name="top", daemon=True)

    def compose(self) -> ComposeResult:
        yield self._summary
        yield self._failure
        yield self._table
        yield self._detail
        yield self._filter
        yield Footer(compact=True)

    def on_mount(self) -> None:
        # Without a handler the process would end at once and not restore the terminal.
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self.action_interrupt)
        self._table.focus()
        self._show()
        self.sampling.start()

    def on_unmount(self) -> None:
        self._stop.set()

    def on_resize(self, event: Resize) -> None:
        self._show()

    def _take_samples(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                sample = self._sample()
                # In this thread, because the rows of 10,000 partitions take a tenth of a second.
                self.post_message(self.Sampled(sample, self._history.add(sample)))
            except Failed as error:
                self.post_message(self.Unanswered(str(error)))
            except Exception as error:  # the page must not freeze silently
                if not self._stop.is_set():  # otherwise the client has been closed
                    self.post_message(self.Unanswered(f"{type(error).__name__}: {error}"))
            self._stop.wait(max(0.0, begun + self._interval - time.monotonic()))

    # -- messages

    def on_top_app_sampled(self, message: Sampled) -> None:
        self._set_failure("\n".join(map(printable, message.sample.errors)))
        if not self._paused:
            self._latest, self._rows = message.sample, message.rows
            self._show()

    def on_top_app_unanswered(self, message: Unanswered) -> None:
        age = f", {self._now() - self._latest.time_s:.0f} s old" if self._latest else ""
        self._set_failure(f"no new sample{age}; trying again: {printable(message.error)}")

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        self._show_detail()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._pattern = event.value
        self._show()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._table.focus()

    # -- keys

    def action_interrupt(self) -> None:
        self.exit(return_code=Status.INTERRUPTED)

    def action_sort(self, column: str) -> None:
        self._sort, self._reverse = column, False
        self._show()

    def action_reverse(self) -> None:
        self._reverse = not self._reverse
        self._show()

    def action_groups(self) -> None:
        self._grouped = not self._grouped
        self._show()

    def action_pause(self) -> None:
        self._paused = not self._paused
        self._show()

    def action_filter(self) -> None:
        self._filter.display = True
        self._filter.focus()

    def action_clear(self) -> None:
        self._filter.value = ""
        self._filter.display = False
        self._table.focus()

    # -- drawing

    def _set_failure(self, text: str) -> None:
        self._failure.update(text)
        self._failure.display = bool(text)

    def _show(self) -> None:
        rows = by_group(self._rows) if self._grouped else self._rows
        if pattern := self._pattern.casefold():
            rows = [row for row in rows if pattern in f"{row.group}\n{row.topic}".casefold()]
        # The sort is stable, so rows with the same figure stay sorted by name.
        descending = self._descending
        if self._sort == "name":
            rows = rows[::-1] if descending else rows
        else:
            rows = sorted(rows, key=_SORTS[self._sort], reverse=descending)
        self._found = len(rows)
        self._show_table(rows[:_MOST_ROWS])
        self._show_summary()
        self._show_detail()

    @property
    def _descending(self) -> bool:
        """Names sort upward and figures downward, unless the user has reversed the order."""
        return self._reverse != (self._sort != "name")

    def _show_table(self, rows: list[Row]) -> None:
        table = self._table
        # The cursor follows the row that the user selected. On the first line it stays in place.
        selected = self._row_at(table.cursor_row) if table.cursor_row > 0 else None
        scrolled = table.scroll_y
        widths = _widths(self.size.width)
        table.clear(columns=True)
        for title, width in widths.items():
            justify: JustifyMethod = "right" if title in _NUMBERS else "left"
            arrow = "▾" if self._descending else "▴"
            text = f"{title}{arrow}" if title == _SORTED[self._sort] else title
            table.add_column(Text(text, justify=justify), width=width)
        for row in rows:
            table.add_row(*_cells(row, widths))
        self._shown = rows
        if selected is None:
            self.call_after_refresh(table.scroll_to, y=scrolled, animate=False)
        else:
            key = _key(selected)
            at = next((at for at, row in enumerate(rows) if _key(row) == key), 0)
            table.move_cursor(row=at, animate=False)

    def _row_at(self, line: int) -> Row | None:
        return self._shown[line] if 0 <= line < len(self._shown) else None

    def _show_summary(self) -> None:
        parts = [f"cykafka top  {_shortened(self._servers, _SERVERS)}"]
        if self._paused:
            parts.append("PAUSED")
        if self._latest is None:
            parts.append("waiting for the first sample")
        else:
            lag = sum(row.lag or 0 for row in self._rows)
            at = time.strftime("%H:%M:%S", time.localtime(self._latest.time_s))
            parts += [f"{len(self._latest.groups)} groups", f"lag {_count(lag)}", at]
        if self._found > len(self._shown):
            parts.append(f"{len(self._shown)} of {self._found} rows")
        if self._pattern:
            parts.append(f"filter: {self._pattern}")
        self._summary.update("  ".join(parts))

    def _show_detail(self) -> None:
        row = self._row_at(self._table.cursor_row)
        if row is None:
            nothing = "no group matches" if self._latest is not None else ""
            self._detail.update(nothing)
            return
        where = row.group if not row.topic else f"{row.group} {row.topic}"
        if row.partition is not None:
            where += f"[{row.partition}]"
        parts = [where, row.state]
        if row.client_id is not None:
            parts.append(f"client {row.client_id}")
        text = Text(printable("  ".join(parts)))
        for error in row.errors:
            text.append(f"  {printable(error)}", style="bold red")
        self._detail.update(text)


def _key(row: Row) -> tuple[str, str, int | None]:
    return row.group, row.topic, row.partition


def _widths(width: int) -> dict[str, int]:
    """Return the column widths for a page of this width."""
    course = _COURSE + max(0, width - _NARROW) // 4
    scroll_bar = 2
    fixed = sum(_NUMBERS.values()) + course + 2 * _PADDING * (len(_NUMBERS) + 3) + scroll_bar
    left = max(2 * 8, width - fixed)
    return {"GROUP": left - left // 2, "TOPIC": left // 2, **_NUMBERS, "COURSE": course}


def _cells(row: Row, widths: dict[str, int]) -> list[Text]:
    style = "red" if row.errors else ""
    figures = (
        f"x{row.partitions}" if row.partition is None else str(row.partition),
        "-" if row.lag is None else _count(row.lag),
        _per_second(row.produced_s),
        _per_second(row.consumed_s),
    )
    last = (
        _shortened("; ".join(row.errors), widths["COURSE"])
        if row.errors
        else sparkline(row.course, widths["COURSE"])
    )
    return [
        Text(_shortened(row.group, widths["GROUP"]), style=style),
        Text(_shortened(row.topic, widths["TOPIC"]), style=style),
        *(Text(figure, style=style, justify="right") for figure in figures),
        Text(last, style=style),
    ]


def _shortened(name: str, width: int) -> str:
    """Omit the middle of a long name, because names often differ at their ends."""
    name = printable(name)
    if len(name) <= width:
        return name
    end = (width - 1) // 2
    return f"{name[: width - 1 - end]}…{name[len(name) - end :]}"


def _count(number: int) -> str:
    """Return at most nine characters."""
    if number < 100_000_000:
        return str(number)
    return f"{number / 1e9:.2f}G" if number < 1e12 else f"{number / 1e12:.2f}T"


def _per_second(rate: float | None) -> str:
    """Return at most seven characters."""
    if rate is None:
        return "-"
    if 0 < rate < 10:
        return f"{rate:.1f}"
    return f"{rate:.0f}" if rate < 1e6 else f"{rate / 1e6:.1f}M"
