"""cykafka top: rates and courses from successive samples."""

from __future__ import annotations

import pytest

from cykafka.cli.cluster.lag import Position
from cykafka.cli.top.sampling import History, Row, Sample, SampledGroup, by_group, sparkline


def sample(clock_s: float, *positions: Position, groups: tuple[SampledGroup, ...] = ()) -> Sample:
    named = {position.group for position in positions} - {group.name for group in groups}
    groups += tuple(SampledGroup(name=name, state="stable") for name in sorted(named))
    return Sample(clock_s=clock_s, time_s=0, groups=groups, positions=positions)


def position(committed: int | None, end: int | None, number: int = 0, **more: str) -> Position:
    return Position(
        **{"group": "billing", "topic": "orders", **more},  # type: ignore[arg-type]
        partition=number,
        committed=committed,
        end=end,
    )


@pytest.mark.parametrize(
    ("committed", "end", "lag"), [(3, 10, 7), (12, 10, 0), (None, 10, None), (3, None, None)]
)
def test_lag_is_known_if_both_offsets_are(
    committed: int | None, end: int | None, lag: int | None
) -> None:
    assert position(committed, end).lag == lag


def test_rates_come_from_two_samples() -> None:
    history = History()
    (first,) = history.add(sample(100.0, position(10, 20)))
    (second,) = history.add(sample(104.0, position(18, 60)))

    assert (first.produced_s, first.consumed_s) == (None, None)
    assert (second.produced_s, second.consumed_s) == (10, 2)
    assert second.course == (10, 42)


@pytest.mark.parametrize("now", [position(5, 10), position(None, None)])
def test_rate_is_unknown_after_an_offset_went_back_or_vanished(now: Position) -> None:
    history = History()
    history.add(sample(100.0, position(10, 20)))
    (row,) = history.add(sample(101.0, now))

    assert (row.produced_s, row.consumed_s) == (None, None)


def test_partition_that_is_gone_leaves_nothing() -> None:
    history = History()
    history.add(sample(1, position(1, 2, 0), position(1, 2, 1)))
    history.add(sample(2, position(1, 2, 1)))
    rows = history.add(sample(3, position(1, 5, 0), position(1, 2, 1)))

    assert [row.course for row in rows] == [(4,), (1, 1, 1)]


def test_group_without_partitions_has_a_row() -> None:
    idle = SampledGroup(name="idle", state="empty", error="no offsets: not authorized")
    (row,) = History().add(sample(1, groups=(idle,)))

    assert (row.group, row.topic, row.partition, row.partitions) == ("idle", "", None, 0)
    assert row.errors == ("no offsets: not authorized",)


def test_by_group_adds_the_partitions_of_a_topic() -> None:
    history = History()
    history.add(sample(1, position(0, 5, 0)))
    rows = by_group(
        history.add(
            sample(
                2,
                position(1, 7, 0),
                position(2, 5, 1),
                position(None, None, 2),
                position(4, 4, 0, topic="refunds"),
            )
        )
    )

    orders, refunds = rows
    assert (orders.partitions, orders.lag, orders.produced_s, orders.consumed_s) == (3, 9, 2, 1)
    assert orders.course == (5, 9)
    assert (refunds.topic, refunds.lag, refunds.produced_s) == ("refunds", 0, None)


def test_by_group_names_each_error_once() -> None:
    rows = [
        Row(group="g", topic="t", partition=number, errors=("no leader",)) for number in range(3)
    ]

    (row,) = by_group(rows)
    assert row.errors == ("no leader",)


@pytest.mark.parametrize(
    ("values", "width", "bars"),
    [
        ((), 5, ""),
        ((0, 0), 5, "▁▁"),
        ((0, 50, 100), 5, "▁▄█"),
        ((9, 9, 1, 2), 2, "▄█"),
        ((1, 2), 0, ""),
    ],
)
def test_sparkline_shows_the_latest_values(values: tuple[int, ...], width: int, bars: str) -> None:
    assert sparkline(values, width) == bars
