"""How a task reads, tested with a fake consumer and clock."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from cykafka import KafkaError, KafkaException, Watermarks
from cykafka.spark.clients.consumers import OpenConsumer
from cykafka.spark.source import worker
from cykafka.spark.source.offsets import PartitionRange
from cykafka.spark.source.read_options import DataLossError, ReadOptions

A = ("a", 0)
Act = Callable[["Fake", Any], None]


class Batch:
    def __init__(self) -> None:
        self.errors: list[Any] = []
        self.rows = 0

    def __len__(self) -> int:
        return self.rows


class Unknown:
    """A partition with unknown ends."""

    def __init__(self, each: Any) -> None:
        self.topic, self.partition = each.topic, each.partition
        self.error = KafkaError(KafkaError._NOENT)


class Fake:
    """A consumer that runs one act of the test per call, and advances the clock."""

    def __init__(self, *acts: Act) -> None:
        self.acts = list(acts)
        self.now = 0.0
        self.assigned: list[Any] = []
        self.assignments = 0
        self.asked: list[str | None] = []
        self.ends: Watermarks | None = Watermarks(0, 10)
        self.opened: OpenConsumer | None = None
        self.errors: list[int | None] = []  # errors of the topics' metadata, one per call

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        self.asked.append(topic)
        names = {"a", "b"} if topic is None else {topic}
        code = self.errors.pop(0) if self.errors else None
        one = SimpleNamespace(
            error=None if code is None else KafkaError(code),
            partitions={} if code else dict.fromkeys(range(2)),
        )
        return SimpleNamespace(topics=dict.fromkeys(names, one))

    def watermarks(self, asked: Any, timeout: float) -> Any:
        assert len(asked) <= 500
        if self.ends is None:
            return {Unknown(each): None for each in asked}
        return dict.fromkeys(asked, self.ends)

    def assign(self, partitions: list[Any]) -> None:
        self.assigned = partitions
        self.assignments += 1

    def unassign(self) -> None:
        self.assigned = []

    def assignment(self) -> list[Any]:
        return self.assigned

    def pause(self, partitions: list[Any]) -> None: ...
    def resume(self, partitions: list[Any]) -> None: ...
    def poll(self, timeout: float) -> None: ...

    def consume_ranges(self, wanted: Any, rows: int, size: int, wait: float) -> Batch:
        batch = Batch()
        if self.acts:
            self.acts.pop(0)(self, (wanted, batch))
        if not len(batch) and not batch.errors:
            self.now += wait
        return batch


def nothing(fake: Fake, given: Any) -> None: ...


def read_to(offset: int, partition: int = 0) -> Act:
    """Make an act: records up to an offset have arrived."""

    def act(fake: Fake, given: Any) -> None:
        wanted, batch = given
        wanted.skip("a", partition, offset)
        batch.rows = 1

    return act


def error(code: int, partition: int = 0) -> Act:
    def act(fake: Fake, given: Any) -> None:
        message = SimpleNamespace(
            error=lambda: KafkaError(code, "made up"),
            topic=lambda: "a",
            partition=lambda: partition,
        )
        given[1].errors.append(message)
        fake.now += 0.005

    return act


def task(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, *ranges: tuple[int, int, int], **given: str
) -> worker._RangesTask:
    monkeypatch.setattr(worker, "consume_ranges", Fake.consume_ranges)
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: fake.now))
    base = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}
    options = ReadOptions.of({**base, **{k.lower(): v for k, v in given.items()}}, "batch")
    fake.opened = OpenConsumer({}, make=lambda _: fake)  # type: ignore[arg-type, return-value]
    parts = [PartitionRange("a", *each) for each in ranges or [(0, 0, 20)]]
    return worker._RangesTask(fake.opened, parts, options)


def run(made: worker._RangesTask) -> None:
    while len(made.wanted):
        if len(made.next_batch()):
            made.restart_timeout()


@pytest.mark.parametrize("lenient", ["true", "false"])
def test_task_waits_for_records_before_the_end(
    lenient: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """10 of 20 offsets remain, and they arrive late."""
    fake = Fake(*[nothing] * 40, read_to(10), *[nothing] * 40)
    made = task(fake, monkeypatch, failOnDataLoss=lenient)
    if lenient == "true":
        with pytest.raises(
            DataLossError, match="offsets 10 to 19 are gone: the partition ends at"
        ):
            run(made)
    else:
        run(made)
        assert "offsets 10 to 19 are gone" in "\n".join(caplog.messages)
    assert fake.now > 20


def test_records_that_never_arrive_before_the_end_are_a_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = task(Fake(), monkeypatch, failOnDataLoss="false")
    with pytest.raises(TimeoutError, match=r"a \[0\]: no record of the offsets 0 to "):
        run(made)


@pytest.mark.parametrize(("high", "lost"), [(18, False), (14, True)])
def test_position_out_of_range_is_read_if_it_exists_by_now(
    high: int, lost: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    fake = Fake(error(KafkaError._AUTO_OFFSET_RESET), read_to(20))
    fake.ends = Watermarks(0, high)
    made = task(fake, monkeypatch, (0, 15, 20), failOnDataLoss="false")
    run(made)

    assert ("offsets 15 to 19 are gone" in "\n".join(caplog.messages)) == lost
    assert fake.assignments == (1 if lost else 2)


def test_partition_with_lasting_errors_lets_the_others_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acts: list[Act] = []
    for offset in range(1, 1001):
        acts += [error(KafkaError._AUTO_OFFSET_RESET, 1), read_to(offset)]
    fake = Fake(*acts, read_to(10, 1))
    run(task(fake, monkeypatch, (0, 0, 1000), (1, 0, 10)))

    assert 4 <= fake.assignments <= 10
    assert fake.now == pytest.approx(5)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError._BAD_MSG,
        KafkaError._BAD_COMPRESSION,
        KafkaError._FATAL,
    ],
)
def test_errors_that_last_end_the_task(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(error(code))
    with pytest.raises(KafkaException) as caught:
        run(task(fake, monkeypatch))
    assert caught.value.args[0].code() == code
    assert fake.now < 1


def test_timeout_error_has_the_last_other_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(error(KafkaError._TRANSPORT))
    fake.ends = Watermarks(0, 20)
    with pytest.raises(TimeoutError, match=r"the last error was: .*made up"):
        run(task(fake, monkeypatch))


def test_failed_login_in_a_worker_raises_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    def complain(fake: Fake, given: Any) -> None:
        assert fake.opened is not None
        fake.opened._keep_error(KafkaError(KafkaError._AUTHENTICATION, "no such user"))

    # While records arrive, the failing broker may be one that the task does not need.
    fake = Fake(complain, read_to(3), *[nothing] * 40, read_to(20))
    fake.ends = Watermarks(0, 20)
    run(task(fake, monkeypatch))

    fake = Fake(complain)
    with pytest.raises(KafkaException, match="no such user"):
        run(task(fake, monkeypatch))
    assert fake.now < 5


def test_end_offsets_of_many_partitions_are_requested_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = Fake()  # it checks the size of the parts
    made = task(fake, monkeypatch, *((number, 0, 20) for number in range(1200)))
    assert len(made._ends(made.wanted.left())) == 1200


def test_metadata_of_many_topics_is_requested_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    made = task(fake, monkeypatch)
    assert fake.asked == ["a"]
    made._request_metadata([PartitionRange(name, 1, 0, 5) for name in ("b", *map(str, range(8)))])
    assert fake.asked == ["a", None, *map(str, range(8))]  # the topics missing from the list
    made._request_metadata([PartitionRange("b", 1, 0, 5), PartitionRange("7", 0, 0, 5)])
    assert len(fake.asked) == 10


@pytest.mark.parametrize("lenient", ["true", "false"])
def test_topic_without_read_permission_is_not_a_loss(
    lenient: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
    fake = Fake()
    fake.errors = [denied]
    with pytest.raises(KafkaException, match="a: ") as caught:
        task(fake, monkeypatch, failOnDataLoss=lenient)
    assert caught.value.args[0].code() == denied

    fake = Fake()  # the permission is revoked during the read
    fake.errors = [None, denied]
    fake.ends = None
    with pytest.raises(KafkaException, match="a: "):
        run(task(fake, monkeypatch, failOnDataLoss=lenient))


def test_task_waits_for_a_topic_without_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(*[nothing] * 40, read_to(20))
    fake.errors = [KafkaError.LEADER_NOT_AVAILABLE] * 99
    fake.ends = None
    run(task(fake, monkeypatch))  # failOnDataLoss is true, so a loss would raise


def test_deleted_topic_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    fake.errors = [KafkaError.UNKNOWN_TOPIC_OR_PART] * 99
    fake.ends = None
    with pytest.raises(DataLossError, match="offsets 0 to 19 are gone: the partition does not"):
        run(task(fake, monkeypatch))
