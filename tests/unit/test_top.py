"""cykafka top: its page, with fixed samples, compared with texts in snapshots/.

CYKAFKA_UPDATE_SNAPSHOTS=1 writes the texts anew; look at the difference before you commit it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import queue
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from machine import WAIT_S
from textual.pilot import Pilot
from textual.widgets import DataTable, Input
from textual_screen import screen_text

from cykafka.cli.cluster.connection import Connection
from cykafka.cli.cluster.lag import Position
from cykafka.cli.commands.top import top
from cykafka.cli.terminal.failures import Failed
from cykafka.cli.top.sampling import Sample, SampledGroup
from cykafka.cli.top.view import TopApp

SNAPSHOTS = Path(__file__).parent / "snapshots"
NOON = 1_750_000_000.0
Page = Callable[[TopApp, Pilot[None]], Awaitable[None]]


def sample_at(seconds: int, *more: Position, errors: tuple[str, ...] = ()) -> Sample:
    """A sample of two groups; the lag of billing grows, that of shipping shrinks."""
    positions = [
        Position(
            group="billing",
            topic="orders",
            partition=number,
            committed=1000 + seconds * 40,
            end=1500 + number * 900 + seconds * 100,
            client_id="billing-worker-7",
        )
        for number in range(3)
    ]
    positions.append(
        Position(
            group="shipping-of-heavy-goods-europe",
            topic="orders.confirmed.by.warehouse",
            partition=12,
            committed=70 + seconds * 10,
            end=123_456_789_012 - seconds,
        )
    )
    positions.append(
        Position(group="shipping-of-heavy-goods-europe", topic="orders", partition=0,
                 committed=5, error="no leader")
    )  # fmt: skip
    groups = (
        SampledGroup(name="billing", state="stable"),
        SampledGroup(name="idle", state="empty"),
        SampledGroup(name="shipping-of-heavy-goods-europe", state="preparing rebalancing"),
    )
    return Sample(
        clock_s=100.0 + seconds,
        time_s=NOON + seconds,
        groups=groups,
        positions=(*positions, *more),
        errors=errors,
    )


class Feed:
    """Gives samples to the page when a test wants it."""

    def __init__(self, *samples: Sample | Exception) -> None:
        self._samples: queue.SimpleQueue[Sample | Exception] = queue.SimpleQueue()
        for sample in samples:
            self.put(sample)

    def put(self, sample: Sample | Exception) -> None:
        self._samples.put(sample)

    def __call__(self) -> Sample:
        sample = self._samples.get(timeout=WAIT_S)
        if isinstance(sample, Exception):
            raise sample
        return sample


def run(feed: Feed, page: Page, size: tuple[int, int] = (80, 24)) -> None:
    """Run the page in a terminal of this size, without one."""

    async def main() -> None:
        app = TopApp(feed, 0.0, "kafka-1:9092", now=lambda: NOON + 60)
        async with app.run_test(size=size) as pilot:
            await page(app, pilot)
        feed.put(Failed("the test ends"))
        app.sampling.join(WAIT_S)
        assert not app.sampling.is_alive()

    asyncio.run(main())


async def shows(app: TopApp, pilot: Pilot[None], text: str) -> str:
    """Wait until the page shows a text and its keys, and return all of the page.

    Textual fills the footer after it has shown the rest.
    """
    deadline = time.monotonic() + WAIT_S
    while text not in (page := screen_text(app)) or "Filter" not in page.splitlines()[-1]:
        assert time.monotonic() < deadline, f"the page does not show {text!r}:\n{page}"
        await pilot.pause(0.05)
    await pilot.pause()
    return screen_text(app)


def lines_of(app: TopApp) -> list[str]:
    """The first cells of the table's rows."""
    table = app.query_one(DataTable)
    return [
        " ".join(str(cell) for cell in table.get_row_at(row)[:3]) for row in range(table.row_count)
    ]


def check(page: str, name: str) -> None:
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("CYKAFKA_UPDATE_SNAPSHOTS"):
        path.write_text(page + "\n", encoding="utf-8")
    assert page + "\n" == path.read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.mark.parametrize("size", [(80, 24), (132, 20)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_page_shows_partitions_by_lag(size: tuple[int, int]) -> None:
    async def page(app: TopApp, pilot: Pilot[None]) -> None:
        check(await shows(app, pilot, "15:06:45"), f"top_partitions_{size[0]}x{size[1]}")

    run(Feed(*(sample_at(second) for second in range(6))), page, size)


def test_page_of_80_columns_needs_no_scrolling() -> None:
    async def page(app: TopApp, pilot: Pilot[None]) -> None:
        text = await shows(app, pilot, "15:06:41")
        table = app.query_one(DataTable)
        assert table.max_scroll_x == 0
        for key in ("q Quit", "l Lag", "n Name", "r Reverse", "g Groups", "/ Filter", "p Pause"):
            assert key in text.splitlines()[-1]

    run(Feed(sample_at(0), sample_at(1)), page)


def test_groups_add_up_their_partitions() -> None:
    async def page(app: TopApp, pilot: Pilot[None]) -> None:
        await shows(app, pilot, "15:06:42")
        await pilot.press("g")
        check(await shows(app, pilot, "x3"), "top_groups_80x24")

    run(Feed(*(sample_at(second) for second in range(3))), page)


def test_failed_sample_is_shown_over_the_last_one_until_the_next() -> None:
    async def page(app: TopApp, pilot: Pilot[None]) -> None:
        await shows(app, pilot, "15:06:41")
        feed.put(Failed("cannot reach kafka-1:9092 within 10 s: Connection refused"))
        check(await shows(app, pilot, "Connection refused"), "top_outage_80x24")
        feed.put(ValueError("odd"))
        await shows(app, pilot, "ValueError: odd")
        feed.put(sample_at(5, errors=("a broker cannot list groups: Not authorized",)))
        text = await shows(app, pilot, "15:06:45")
        assert "trying again" not in text
        assert "a broker cannot list groups" in text
        feed.put(sample_at(6))
        assert "cannot list" not in await shows(app, pilot, "15:06:46")

    feed = Feed(sample_at(0), sample_at(1))
    run(feed, page)


def test_page_waits_for_brokers_that_do_not_answer_at_first() -> None:
    async def page(app: TopApp, pilot: Pilot[None]) -> None:
        text = await shows(app, pilot, "no answer at all")
        assert "waiting for the first sample" in text
        feed.put(sample_at(0))
        await shows(app, pilot, "3 groups")

    feed = Feed(Failed("no answer at all"))
    run(feed, page)


def test_keys_sort_the_rows() -> None:
    async def page(app: TopApp, pilot: Pilot[None]) -> None:
        await shows(app, pilot, "15:06:41")
        by_lag = lines_of(app)
        assert by_lag[0].startswith("ship")
        assert [line[-1] for line in by_lag[1:4]] == ["2", "1", "0"]
        await pilot.press("r")
        assert lines_of(app)[-1] == by_lag[0]
        await pilot.press("n")
        assert [line[-1] for line in lines_of(app)[:3]] == ["0", "1", "2"]
        await pilot.press("e")
        assert "orders 0" in lines_of(app)[0]
        await pilot.press("o")
        assert lines_of(app)[0].startswith("billing")
        await pilot.press("i")
        assert lines_of(app)[0].startswith("billing")

    run(Feed(sample_at(0), sample_at(1)), page)


def test_filter_keeps_names_with_a_text() -> None:
    async def page(app: TopApp, pilot: Pilot[None]) -> None:
        await shows(app, pilot, "15:06:40")
        await pilot.press("slash", *"WAREHOUSE")
        check(await shows(app, pilot, "filter: WAREHOUSE"), "top_filter_80x24")
        assert len(lines_of(app)) == 1
        await pilot.press("enter", "l")  # a key again, not a letter of the filter
        assert app.query_one(Input).value == "WAREHOUSE"
        await pilot.press("slash", *"-nothing")
        await shows(app, pilot, "no group matches")
        await pilot.press("escape")
        await pilot.pause()
        assert len(lines_of(app)) == 6

    run(Feed(sample_at(0)), page)


def test_selected_row_stays_selected_and_shows_its_details() -> None:
    async def page(app: TopApp, pilot: Pilot[None]) -> None:
        await shows(app, pilot, "15:06:40")
        await pilot.press("down")
        await shows(app, pilot, "billing orders[2]  stable  client billing-worker-7")
        await pilot.press("r")
        await shows(app, pilot, "billing orders[2]  stable")
        feed.put(sample_at(1))
        text = await shows(app, pilot, "15:06:41")
        assert "billing orders[2]  stable" in text
        await pilot.press("e", "ctrl+home")
        await shows(app, pilot, "preparing rebalancing  no leader")

    feed = Feed(sample_at(0))
    run(feed, page)


def test_page_stays_at_the_top_until_a_row_is_selected() -> None:
    def sample(seconds: int, *lags: int) -> Sample:
        lagging = [
            Position(group="g", topic="t", partition=number, committed=0, end=10**12 + lag)
            for number, lag in enumerate(lags)
        ]
        ours = SampledGroup(name="g", state="stable")
        base = sample_at(seconds, *lagging)
        return dataclasses.replace(base, groups=(*base.groups, ours))

    async def page(app: TopApp, pilot: Pilot[None]) -> None:
        await shows(app, pilot, "g t[0]")
        feed.put(sample(1, 1, 2))
        await shows(app, pilot, "g t[1]")
        await pilot.press("down")
        await shows(app, pilot, "g t[0]")
        feed.put(sample(2, 3, 2))
        await shows(app, pilot, "15:06:42")
        assert app.query_one(DataTable).cursor_row == 0  # the selected row has moved
        assert "g t[0]" in screen_text(app)

    feed = Feed(sample(0, 2, 1))
    run(feed, page)


def test_page_keeps_the_place_that_the_wheel_has_scrolled_to() -> None:
    many = [
        Position(group="billing", topic="clicks", partition=number, committed=0, end=number)
        for number in range(100)
    ]

    async def page(app: TopApp, pilot: Pilot[None]) -> None:
        await shows(app, pilot, "15:06:40")
        table = app.query_one(DataTable)

        async def is_at_line_50() -> None:
            deadline = time.monotonic() + WAIT_S
            while table.scroll_y != 50:
                assert time.monotonic() < deadline, table.scroll_y
                await pilot.pause(0.05)

        table.scroll_to(y=50, animate=False)
        await is_at_line_50()
        feed.put(sample_at(1, *many))
        await shows(app, pilot, "15:06:41")
        await is_at_line_50()

    feed = Feed(sample_at(0, *many))
    run(feed, page)


def test_pause_keeps_the_page_as_it_is() -> None:
    async def page(app: TopApp, pilot: Pilot[None]) -> None:
        await shows(app, pilot, "15:06:40")
        await pilot.press("p")
        feed.put(sample_at(1, errors=("seen",)))
        assert "15:06:40" in await shows(app, pilot, "seen")
        await pilot.press("p")
        feed.put(sample_at(2))
        await shows(app, pilot, "15:06:42")

    feed = Feed(sample_at(0))
    run(feed, page)


def test_page_shows_the_first_of_many_rows() -> None:
    many = [
        Position(group="billing", topic="clicks", partition=number, committed=0, end=number)
        for number in range(5000)
    ]

    async def page(app: TopApp, pilot: Pilot[None]) -> None:
        await shows(app, pilot, "200 of 5006 rows")
        await pilot.press("r")
        assert "clicks 0" in " ".join(lines_of(app))
        await pilot.press("g")
        assert "5006" not in await shows(app, pilot, "x5000")

    run(Feed(sample_at(0, *many)), page)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("[red]x[/]", "[red]x[/]"), ("x\x1b]0;y\x07\nz", r"x\x1b]0;y\x07\nz")],
)
def test_names_do_not_control_the_page(name: str, shown: str) -> None:
    async def page(app: TopApp, pilot: Pilot[None]) -> None:
        text = await shows(app, pilot, shown)
        assert f"billing {shown}[0]  stable  client {shown}  {shown}" in text
        feed.put(Failed(name))
        await shows(app, pilot, f"trying again: {shown}")

    odd = Position(
        group="billing",
        topic=name,
        partition=0,
        committed=0,
        end=10**15,
        client_id=name,
        error=name,
    )
    feed = Feed(sample_at(0, odd))
    run(feed, page, (132, 24))


def test_interrupt_ends_the_page_also_in_the_filter() -> None:
    async def page(app: TopApp, pilot: Pilot[None]) -> None:
        await shows(app, pilot, "waiting for the first sample")
        await pilot.press("slash", "x", "ctrl+c")
        await pilot.pause()
        assert not app.is_running
        assert app.return_code == 130

    run(Feed(), page)


def test_page_works_while_a_sample_is_being_taken() -> None:
    # The feed is empty, so the thread waits; keys act all the same, and the page ends at once.
    async def page(app: TopApp, pilot: Pilot[None]) -> None:
        await shows(app, pilot, "waiting for the first sample")
        await pilot.press("p")
        await shows(app, pilot, "PAUSED")
        await pilot.press("q")
        await pilot.pause()
        assert not app.is_running

    run(Feed(), page)


def test_page_needs_a_terminal() -> None:
    with pytest.raises(Failed, match="needs a terminal; use --once or --json"):
        top()


@pytest.fixture
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for item in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(getattr(sys, item), "isatty", lambda: True, raising=False)


@pytest.mark.parametrize(
    ("kind", "more", "text"),
    [
        ("dumb", {}, "TERM is 'dumb'"),
        ("xterm", {"overrides": ("debug=broker",)}, "--verbose and the property debug"),
        ("xterm", {"verbose": True}, "--verbose and the property debug"),
    ],
)
def test_page_refuses_what_would_spoil_it(
    kind: str,
    more: dict[str, Any],
    text: str,
    on_a_terminal: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", kind)
    with pytest.raises(Failed, match=text):
        top(connection=Connection(bootstrap_servers="kafka-1:9092", **more))


def test_page_without_textual_names_the_extra(
    on_a_terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "cykafka.cli.top.view")
    monkeypatch.setitem(sys.modules, "textual.app", None)
    with pytest.raises(Failed, match=r"textual.* pip install 'cykafka\[top\]', or use --once"):
        top(connection=Connection(bootstrap_servers="kafka-1:9092"))
