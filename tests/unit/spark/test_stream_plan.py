"""The offsets of a stream's batches, tested with fake partitions."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from cykafka.spark.source.offsets import Offsets, PartitionRange, take_start
from cykafka.spark.source.planner import Ends, Planner
from cykafka.spark.source.read_options import DataLossError, ReadOptions
from cykafka.spark.source.reading import OldStreamReader
from cykafka.spark.source.schema import source_schema
from cykafka.spark.source.stream import StreamPlan


class Fake(Planner):
    """Partitions with the offsets of the test."""

    def __init__(self, options: ReadOptions, latest: Offsets) -> None:
        super().__init__(options)
        self.earliest = dict.fromkeys(latest, 0)
        self.latest = latest

    def partitions(self, known: Any = ()) -> list[tuple[str, int]]:
        return sorted(self.latest)

    def ends(self, partitions: Any, known: Any = None) -> Ends:
        return Ends(
            {each: self.earliest.get(each, 0) for each in partitions},
            {each: self.latest[each] for each in partitions},
        )


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def planned(latest: Offsets, **options: str) -> tuple[StreamPlan, Fake, Clock]:
    given = {key.lower(): value for key, value in options.items()}
    base = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "a"}
    read = ReadOptions.of({**base, **given}, "stream")
    clock = Clock()
    plan = StreamPlan(read, clock)
    broker = Fake(read, latest)
    plan.planner = broker
    return plan, broker, clock


def test_start_is_remembered() -> None:
    plan, broker, _ = planned({("a", 0): 5})
    assert plan.initial() == {"a": {"0": 5}}
    broker.latest = {("a", 0): 9}
    assert plan.initial() == {"a": {"0": 5}}


def test_first_batch_of_a_later_process_starts_at_its_planned_offsets() -> None:
    plan, broker, _ = planned({("a", 0): 5})
    end = plan.latest(plan.initial(), limited=False)
    broker.latest = {("a", 0): 9}
    again, later, _ = planned({("a", 0): 9})
    later.latest = {("a", 0): 12}

    assert again.ranges(again.initial(), end) == []
    assert take_start(end)[1] == {("a", 0): 5}

    plan, broker, _ = planned({("a", 0): 5})
    start = plan.initial()
    broker.latest = {("a", 0): 7}
    end = plan.latest(start, limited=False)
    assert again.ranges(again.initial(), end) == [PartitionRange("a", 0, 5, 7)]


def test_without_new_records_the_end_equals_the_start() -> None:
    plan, broker, _ = planned({("a", 0): 5})
    first = plan.latest(plan.initial(), limited=False)
    assert plan.latest(first, limited=False) == first
    broker.latest = {("a", 0): 6}
    second = plan.latest(first, limited=False)
    assert second == {"a": {"0": 6}}
    assert plan.latest(second, limited=False) == second
    assert plan.ranges(first, second) == [PartitionRange("a", 0, 5, 6)]


def test_start_after_the_end_is_an_error_or_skipped() -> None:
    for strict in ("true", "false"):
        plan, _, _ = planned({("a", 0): 5}, failOnDataLoss=strict)
        start, end = {"a": {"0": 9}}, {"a": {"0": 5}}
        if strict == "true":
            with pytest.raises(DataLossError, match=r"a \[0\]: the batch would begin at 9"):
                plan.ranges(start, end)
        else:
            assert plan.ranges(start, end) == []


def test_stop_before_the_first_batch_leaves_a_usable_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs PySpark 4.2")
    from cykafka.spark.jobs.run.job_source import STOP_FILE, StoppableSource

    stop_file = tmp_path / "stop"
    stop_file.touch()
    options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "a"}
    source = StoppableSource({**options, STOP_FILE: str(stop_file)})
    reader: Any = source.streamReader(source_schema(False))
    reader.plan, broker, _ = planned({("a", 0): 9}, startingOffsets="earliest")
    broker.earliest = {("a", 0): 7}

    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())

    assert reader.partitions(start, end) == []
    # If a crash comes before the commit, a restart repeats the batch.
    again, later, _ = planned({("a", 0): 9}, startingOffsets="earliest")
    later.earliest = {("a", 0): 8}
    assert again.ranges(again.initial(), end) == []
    following = again.latest(end, limited=False)
    assert again.ranges(end, following) == [PartitionRange("a", 0, 7, 9)]
    assert again.stay(following) == following


def test_frozen_ends_do_not_change() -> None:
    plan, broker, _ = planned({("a", 0): 5}, startingOffsets="earliest")
    plan.freeze()
    broker.latest = {("a", 0): 9, ("a", 1): 3}
    assert take_start(plan.latest(plan.initial(), limited=True))[0] == {"a": {"0": 5}}


def test_frozen_ends_that_miss_read_offsets_are_requested_again() -> None:
    plan, broker, _ = planned({("a", 0): 5}, failOnDataLoss="false")
    plan.freeze()  # by a broker that has just started
    broker.latest = {("a", 0): 9, ("a", 1): 7, ("a", 2): 3, ("b", 0): 4}
    start = {"a": {"0": 2, "1": 7, "2": 1}}

    assert plan.latest(start, limited=True) == {"a": {"0": 5, "1": 7, "2": 3}}
    broker.latest = {("a", 0): 20, ("a", 1): 20, ("a", 2): 20}
    assert plan.latest(start, limited=True) == {"a": {"0": 5, "1": 7, "2": 3}}
    # The same holds for a frozen end before the read offsets.
    broker.latest = {("a", 0): 6}
    plan.freeze()
    broker.latest = {("a", 0): 9}
    assert plan.latest({"a": {"0": 8}}, limited=True) == {"a": {"0": 9}}


def test_start_of_a_frozen_stream_is_not_after_its_end() -> None:
    plan, broker, _ = planned({("a", 0): 5})
    plan.freeze()
    broker.latest = {("a", 0): 9}
    assert plan.initial() == {"a": {"0": 5}}
    assert plan.ranges(plan.initial(), plan.latest(plan.initial(), limited=True)) == []


@pytest.mark.parametrize(
    ("options", "fails"),
    [
        ({}, True),
        ({"startingTimestamp": "5"}, True),
        ({"startingOffsets": "earliest"}, True),
        ({"startingOffsets": '{"a":{"0":-1,"1":5}}'}, True),
        ({"startingOffsets": '{"a":{"0":-2,"1":5}}'}, True),
        ({"startingOffsets": '{"a":{"0":7,"1":5}}'}, False),
        ({"failOnDataLoss": "false"}, False),
    ],
)
def test_first_batch_of_another_connector_needs_a_known_start(
    options: dict[str, str], fails: bool
) -> None:
    plan, _, _ = planned({("a", 0): 7, ("a", 1): 5}, **options)
    plan._initial = {("a", 0): 7, ("a", 1): 5}
    start = end = {"a": {"0": 7, "1": 5}}
    if fails:
        with pytest.raises(DataLossError, match=r'another connector planned.*"0": 7.*sources/0'):
            plan.ranges(start, end)
        return
    assert plan.ranges(start, end) == []
    later, _, _ = planned({("a", 0): 7, ("a", 1): 5})
    # The start may come from the log, in a process without a start, or from a running query.
    assert later.ranges(start, end) == []
    later._initial = {("a", 0): 7, ("a", 1): 5}
    assert later.ranges(start, end) == []


def test_first_batch_of_another_connector_from_offset_0_is_accepted() -> None:
    plan, _, _ = planned({("a", 0): 7}, startingOffsets="earliest")
    assert plan.ranges(plan.initial(), {"a": {"0": 6}}) == [PartitionRange("a", 0, 0, 6)]


def test_limit_applies_unless_all_records_are_requested() -> None:
    plan, _, _ = planned({("a", 0): 100}, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    start = plan.initial()
    assert take_start(plan.latest(start, limited=True))[0] == {"a": {"0": 10}}
    assert take_start(plan.latest(start, limited=False))[0] == {"a": {"0": 100}}
    assert plan.report() == {"a": {"0": 100}}


def test_new_partitions_are_limited_from_their_beginning() -> None:
    plan, broker, _ = planned({("a", 0): 10, ("a", 1): 30}, maxOffsetsPerTrigger="20")
    broker.earliest = {("a", 0): 0, ("a", 1): 20}
    end = plan.latest({"a": {"0": 0}}, limited=True)
    assert end == {"a": {"0": 10, "1": 30}}


def test_too_few_records_wait_for_the_delay() -> None:
    plan, broker, clock = planned(
        {("a", 0): 5}, startingOffsets="earliest", minOffsetsPerTrigger="3", maxTriggerDelay="1m"
    )
    first = plan.latest(plan.initial(), limited=True)
    assert take_start(first)[0] == {"a": {"0": 5}}
    broker.latest = {("a", 0): 7}
    assert plan.latest(first, limited=True) == first
    clock.now += 59
    assert plan.latest(first, limited=True) == first
    clock.now += 1
    second = plan.latest(first, limited=True)
    assert second == {"a": {"0": 7}}
    broker.latest = {("a", 0): 10}
    assert plan.latest(second, limited=True) == {"a": {"0": 10}}


def test_vanished_partitions_are_a_loss() -> None:
    topics = {"subscribe": "a,b"}
    plan, _, _ = planned({("a", 0): 5}, **topics)
    start, end = {"a": {"0": 1}, "b": {"0": 3}}, {"a": {"0": 5}}
    with pytest.raises(DataLossError, match=r"b \[0\] are gone"):
        plan.ranges(start, end)
    plan, _, _ = planned({("a", 0): 5}, **topics, failOnDataLoss="false")
    assert plan.ranges(start, end) == [PartitionRange("a", 0, 1, 5)]


def test_topics_that_are_not_selected_any_more_are_no_matter_of_retention(
    caplog: pytest.LogCaptureFixture,
) -> None:
    start, end = {"a": {"0": 1}, "b": {"0": 3}}, {"a": {"0": 5}}
    plan, _, _ = planned({("a", 0): 5})
    with pytest.raises(DataLossError) as caught:
        plan.ranges(start, end)
    assert str(caught.value) == (
        "the stream has read b [0] until now, and option subscribe does not select them any more. "
        "Select them again; or, to leave out their further records, set the option failOnDataLoss "
        "to false"
    )
    plan, _, _ = planned({("a", 0): 5}, failOnDataLoss="false")
    assert plan.ranges(start, end) == [PartitionRange("a", 0, 1, 5)]
    assert "does not select them any more; failOnDataLoss is false" in caplog.text


def test_new_partition_that_does_not_begin_at_0_is_a_loss() -> None:
    for strict in ("true", "false"):
        plan, broker, _ = planned({("a", 0): 5, ("a", 1): 9}, failOnDataLoss=strict)
        broker.earliest = {("a", 1): 4}
        start, end = {"a": {"0": 5}}, {"a": {"0": 5, "1": 9}}
        if strict == "true":
            with pytest.raises(DataLossError, match=r"new partition a \[1\] begins at 4"):
                plan.ranges(start, end)
        else:
            assert plan.ranges(start, end) == [PartitionRange("a", 1, 4, 9)]


def test_plan_is_pickled_without_its_cached_state() -> None:
    plan = StreamPlan(planned({("a", 0): 5})[0].options)
    plan._initial = {("a", 0): 5}

    again = pickle.loads(pickle.dumps(plan))

    assert again._initial is None
    assert again.options == plan.options


def old_reader(latest: Offsets, **options: str) -> tuple[OldStreamReader, Fake]:
    """A reader for PySpark before 4.2, which requests ends without their starts."""
    plan, broker, _ = planned(latest, **options)
    reader = OldStreamReader(plan.options, source_schema(False))
    reader.plan = plan
    return reader, broker


def test_old_reader_remembers_its_position() -> None:
    reader, broker = old_reader({("a", 0): 5})
    assert reader.initialOffset() == {"a": {"0": 5}}
    broker.latest = {("a", 0): 9}
    end = reader.latestOffset()

    assert take_start(end) == ({"a": {"0": 9}}, {("a", 0): 5})
    assert reader.plan.ranges(reader.initialOffset(), end) == [PartitionRange("a", 0, 5, 9)]
    broker.latest = {("a", 0): 12}
    assert reader.latestOffset() == {"a": {"0": 12}}


def test_old_reader_with_available_now_starts_before_its_end() -> None:
    reader, broker = old_reader({("a", 0): 5})
    end = reader.latestOffset()  # Trigger.AvailableNow requests it first
    broker.latest = {("a", 0): 9}

    assert reader.plan.ranges(reader.initialOffset(), end) == []


def test_old_reader_goes_on_after_a_restart() -> None:
    reader, broker = old_reader({("a", 0): 5})
    assert reader.latestOffset() == {"a": {"0": 5}}  # the start is unknown
    broker.latest = {("a", 0): 9}

    assert reader.latestOffset() == {"a": {"0": 9}}


@pytest.mark.parametrize(
    ("name", "value"),
    [("maxOffsetsPerTrigger", "3"), ("minOffsetsPerTrigger", "3"), ("readOn", "driver")],
)
def test_old_reader_refuses_options(name: str, value: str) -> None:
    reader, _ = old_reader({("a", 0): 5}, **{name: value})

    with pytest.raises(ValueError, match=rf"option {name}\S* needs PySpark 4\.2"):
        reader.initialOffset()
    with pytest.raises(ValueError, match=rf"option {name}\S* needs PySpark 4\.2"):
        reader.latestOffset()
