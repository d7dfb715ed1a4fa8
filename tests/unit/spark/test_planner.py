"""How the driver handles answers of brokers, tested with a fake consumer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cykafka import OFFSET_END, KafkaError, KafkaException, TopicPartition, Watermarks
from cykafka.spark.clients import consumers
from cykafka.spark.clients.consumers import OpenConsumer, consumer_config
from cykafka.spark.source import planner as module
from cykafka.spark.source.offsets import PartitionRange
from cykafka.spark.source.planner import GroupMirror, Planner, tasks_of
from cykafka.spark.source.read_options import DataLossError, ReadOptions


class Fake:
    """A consumer with the answers of the test. The `troubles` come first."""

    def __init__(self, partitions: dict[str, int], high: int = 10, low: int = 0) -> None:
        self.partitions = partitions
        self.high = high
        self.low = low
        self.troubles: list[Any] = []
        self.asked = 0
        self.errors: dict[str, int] = {}
        self.hidden: dict[str, int] = {}  # topic -> the number of answers that lack it

    def poll(self, timeout: float) -> None: ...

    def shown(self, name: str) -> bool:
        self.hidden[name] = self.hidden.get(name, 0) - 1
        return name in self.partitions and self.hidden[name] < 0

    def trouble(self) -> Any:
        self.asked += 1
        return self.troubles.pop(0) if self.troubles else None

    def list_topics(self, topic: str | None = None, timeout: float | None = None) -> Any:
        if self.trouble() is not None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        there = [each for each in self.partitions if topic in (None, each) and self.shown(each)]
        names = [topic] if topic is not None else there
        topics = {}
        for name in names:
            code = self.errors.get(name)
            if name not in there:
                code = KafkaError.UNKNOWN_TOPIC_OR_PART
            numbers = {} if code else dict.fromkeys(range(self.partitions[name]))
            topics[name] = SimpleNamespace(
                error=KafkaError(code) if code else None, partitions=numbers
            )
        return SimpleNamespace(topics=topics)

    def watermarks(self, asked: Any, timeout: float) -> Any:
        trouble = self.trouble()
        high = trouble if isinstance(trouble, int) else self.high
        answers = {}
        for each in asked:
            key = SimpleNamespace(topic=each.topic, partition=each.partition, error=None)
            if isinstance(trouble, KafkaError):
                key.error = trouble
            answers[Key(key)] = Watermarks(self.low, high)
        return answers

    def offsets_for_times(self, asked: Any, timeout: float) -> Any:
        return [
            SimpleNamespace(
                topic=each.topic,
                partition=each.partition,
                error=None,
                offset=each.offset if each.offset < self.high else OFFSET_END,
            )
            for each in asked
        ]


class Key(SimpleNamespace):
    """A partition with an error, as a key."""

    def __init__(self, given: Any) -> None:
        super().__init__(**vars(given))

    def __hash__(self) -> int:
        return hash((self.topic, self.partition))


@pytest.fixture(autouse=True)
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    # Patch only this module, because a thread of py4j sleeps too.
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=slept.append))
    return slept


def planned(fake: Fake, mode: Any = "batch", **options: str) -> Planner:
    given = {key.lower().replace("_", "."): value for key, value in options.items()}
    if not {"subscribe", "assign", "subscribepattern"} & given.keys():
        given["subscribe"] = "a"
    planner = Planner(ReadOptions.of({"kafka.bootstrap.servers": "h:1", **given}, mode))
    planner._open = OpenConsumer({}, make=lambda _: fake)  # type: ignore[arg-type, return-value]
    return planner


def test_failed_metadata_requests_are_retried(no_sleep: list[float]) -> None:
    fake = Fake({"a": 2})
    fake.troubles = [True, True]
    planner = planned(fake, fetchOffset_numRetries="2", fetchOffset_retryIntervalMs="30")
    assert planner.partitions() == [("a", 0), ("a", 1)]
    assert no_sleep == [0.03, 0.03]

    fake.troubles = [True, True, True]
    with pytest.raises(KafkaException):
        planner.partitions()


def test_failed_end_offsets_are_retried_and_then_named(no_sleep: list[float]) -> None:
    fake = Fake({"a": 1})
    leaderless = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    fake.troubles = [leaderless] * 50
    planner = planned(fake)
    assert planner.ends([("a", 0)]).latest == {("a", 0): 10}

    fake.troubles = [leaderless] * 1000
    no_sleep.clear()
    with pytest.raises(RuntimeError, match=r"a \[0\].*Check that they have leaders") as caught:
        planner.ends([("a", 0)])
    # The planner waits for leaders as long as for brokers, and then makes the usual retries.
    assert 60 <= sum(no_sleep) < 65
    assert not isinstance(caught.value, DataLossError)  # not even with failOnDataLoss=false
    with pytest.raises(RuntimeError):
        planned(fake, failOnDataLoss="false").ends([("a", 0)])


def test_end_offsets_of_many_partitions_are_requested_in_parts() -> None:
    fake = Fake({"a": 1200})
    many = [("a", number) for number in range(1200)]
    assert planned(fake).ends(many).latest == dict.fromkeys(many, 10)
    assert fake.asked == 3


def test_partitions_that_vanish_meanwhile_are_a_loss() -> None:
    fake = Fake({"a": 1})
    gone = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    fake.troubles = [gone] * 8
    with pytest.raises(DataLossError, match=r"a \[0\]"):
        planned(fake).ends([("a", 0)])
    assert planned(fake, failOnDataLoss="false").ends([("a", 0)]).latest == {}


def test_end_offset_before_a_known_one_is_requested_again() -> None:
    fake = Fake({"a": 1}, high=10)
    fake.troubles = [7]
    planner = planned(fake, "stream")
    assert planner.ends([("a", 0)], {("a", 0): 9}).latest == {("a", 0): 10}
    assert fake.asked == 2
    # If the end does not change it is returned: the topic was recreated.
    assert planner.ends([("a", 0)], {("a", 0): 11}).latest == {("a", 0): 10}


def test_missing_topic_is_looked_up_again_and_then_named() -> None:
    fake = Fake({"b": 1})
    with pytest.raises(RuntimeError, match="option subscribe: topic a does not exist"):
        planned(fake).partitions()
    assert fake.asked == 4
    planner = planned(fake, subscribe="a,b", failOnDataLoss="false")
    assert planner.partitions() == [("b", 0)]


def test_missing_assigned_partitions_are_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    planner = planned(Fake({"a": 2}), assign='{"a":[1,5]}')
    assert planner.partitions() == [("a", 1)]
    assert "option assign: these partitions do not exist: a [5]" in "\n".join(caplog.messages)


READS = {
    "subscribe": {"subscribe": "a,b"},
    "subscribePattern": {"subscribePattern": "[ab]"},
    "assign": {"assign": '{"a":[0],"b":[0]}'},
}


@pytest.mark.parametrize("lenient", ["true", "false"])
@pytest.mark.parametrize("options", READS.values(), ids=READS.keys())
def test_known_topic_missing_from_one_answer_is_not_a_loss(
    options: dict[str, str], lenient: str, no_sleep: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    fake = Fake({"a": 1, "b": 1})
    fake.hidden["b"] = 2
    planner = planned(fake, "stream", failOnDataLoss=lenient, **options)

    assert planner.partitions([("a", 0), ("b", 0)]) == [("a", 0), ("b", 0)]
    assert no_sleep == [0.5, 0.5]  # a new broker needs more than 10 ms to learn of topics
    assert not caplog.messages


@pytest.mark.parametrize("options", READS.values(), ids=READS.keys())
def test_known_topic_that_stays_missing_is_a_loss(options: dict[str, str]) -> None:
    fake = Fake({"a": 1})
    planner = planned(fake, "stream", failOnDataLoss="false", **options)

    assert planner.partitions([("a", 0), ("b", 0)]) == [("a", 0)]
    assert fake.asked == (4 if "subscribePattern" in options else 8)
    # The planner does not wait for new topics or for topics that it no longer reads.
    fake.asked = 0
    assert planner.partitions([("a", 0), ("c", 0)]) == [("a", 0)]
    assert fake.asked == (1 if "subscribePattern" in options else 2)


def test_known_partition_missing_from_one_answer_is_not_a_loss(no_sleep: list[float]) -> None:
    fake = Fake({"a": 1})
    fake.troubles = [KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)]
    planner = planned(fake, "stream", failOnDataLoss="false")

    assert planner.ends([("a", 0)], {("a", 0): 9}).latest == {("a", 0): 10}
    assert no_sleep == [0.5]


def test_many_topics_are_looked_up_in_one_request() -> None:
    fake = Fake({f"t{number}": 1 for number in range(20)})
    names = ",".join(fake.partitions)
    assert len(planned(fake, subscribe=names).partitions()) == 20
    assert fake.asked == 1
    # Topics missing from the list are requested by name.
    planner = planned(fake, subscribe=f"{names},absent", failOnDataLoss="false")
    assert len(planner.partitions()) == 20
    assert fake.asked == 3


class Silent(Fake):
    """Brokers that do not answer, with a cause. Each request advances the clock."""

    def __init__(self, complaint: KafkaError, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__({"a": 1})
        self.now = 0.0
        self.complaint = complaint
        self.opened: OpenConsumer | None = None
        monkeypatch.setattr(consumers, "time", SimpleNamespace(monotonic=lambda: self.now))

    def list_topics(self, topic: str | None = None, timeout: float | None = None) -> Any:
        self.asked += 1
        self.now += timeout or 0.0
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, "Failed to get metadata"))

    def poll(self, timeout: float) -> None:
        assert self.opened is not None
        self.opened._keep_error(self.complaint)
        self.opened._keep_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))


@pytest.mark.parametrize("code", [KafkaError._AUTHENTICATION, KafkaError._SSL])
def test_failed_login_raises_at_once(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Silent(KafkaError(code, "no such user"), monkeypatch)
    planner = planned(fake)
    fake.opened = planner.brokers

    with pytest.raises(KafkaException, match="no such user") as caught:
        planner.partitions()
    assert caught.value.args[0].code() == code
    assert fake.now < 5


def test_silent_brokers_time_out_after_a_minute_with_the_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = Silent(KafkaError(KafkaError._TRANSPORT, "connection refused"), monkeypatch)
    planner = planned(fake)
    fake.opened = planner.brokers

    with pytest.raises(KafkaException, match=r"Failed to get metadata.*connection refused"):
        planner.partitions()
    assert fake.now == pytest.approx(60, abs=1)
    assert fake.asked <= 7


def test_connection_errors_count_until_brokers_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = planned(Fake({"a": 1}))
    planner.brokers._keep_error(KafkaError(KafkaError._AUTHENTICATION))
    assert planner.brokers.persistent_error() is not None
    planner.partitions()
    assert planner.brokers.persistent_error() is None


def test_group_of_the_driver_has_the_prefix() -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a"}
    for prefix in ("spark-kafka-source", "mine"):
        options = ReadOptions.of({**given, "groupidprefix": prefix}, "batch")
        groups = set()
        for _ in range(2):
            planner = Planner(options)
            groups.add(planner.brokers.consumer.configuration()["group.id"])
            planner.close()
        assert len(groups) == 2
        assert all(str(each).startswith(f"{prefix}-") for each in groups)


def test_losses_outside_the_filters_are_ignored() -> None:
    start = '{"a":{"0":0,"1":12}}'
    strict = planned(Fake({"a": 2}), startingOffsets=start, endingOffsets='{"a":{"0":99,"1":12}}')

    def before_5(whole: PartitionRange) -> list[PartitionRange]:
        return [PartitionRange(whole.topic, whole.partition, whole.start, min(whole.end, 5))]

    def of_0(whole: PartitionRange) -> list[PartitionRange]:
        return before_5(whole) if whole.partition == 0 else []

    assert strict.batch_ranges(of_0) == [PartitionRange("a", 0, 0, 5)]
    with pytest.raises(DataLossError, match=r"a \[0\]: offsets 10 to 98 do not exist"):
        strict.batch_ranges(lambda whole: [whole] if whole.partition == 0 else [])
    with pytest.raises(DataLossError, match=r"a \[1\]: the read would begin at 12"):
        strict.batch_ranges(lambda whole: [whole] if whole.partition == 1 else [])


def test_pattern_skips_internal_topics() -> None:
    planner = planned(Fake({"a": 1, "ab": 2, "__consumer_offsets": 50}), subscribePattern=".*")
    assert planner.partitions() == [("a", 0), ("ab", 0), ("ab", 1)]


def test_known_topic_without_metadata_is_not_a_loss() -> None:
    fake = Fake({"a": 1, "b": 1})
    fake.errors["b"] = KafkaError.LEADER_NOT_AVAILABLE
    planner = planned(fake, "stream", subscribePattern=".*")
    assert planner.partitions() == [("a", 0)]  # a new partition is added when it is ready
    with pytest.raises(KafkaException):
        planner.partitions([("a", 0), ("b", 0)])


def test_times_without_records_start_at_the_end_or_fail() -> None:
    fake = Fake({"a": 1})
    with pytest.raises(ValueError, match=r"startingTimestamp: a \[0\] has no record"):
        planned(fake, startingTimestamp="99").batch_ranges()
    late = planned(fake, startingTimestamp="99", startingOffsetsByTimestampStrategy="latest")
    assert late.batch_ranges() == []
    ended = planned(fake, startingTimestamp="3", endingTimestamp="99")
    assert ended.batch_ranges() == [PartitionRange("a", 0, 3, 10)]


def test_end_before_the_start_is_an_error() -> None:
    planner = planned(Fake({"a": 1}), startingTimestamp="7", endingOffsets='{"a":{"0":3}}')
    both = r"startingTimestamp and endingOffsets: a \[0\] would be read from 7 to 3"
    with pytest.raises(ValueError, match=both):
        planner.batch_ranges()
    assert planner.batch_ranges(lambda whole: []) == []  # the filters exclude the partition


def test_end_before_the_first_offset_of_a_partition_is_a_loss() -> None:
    options = {"endingOffsets": '{"a":{"0":3}}'}
    with pytest.raises(DataLossError, match=r"would end at 3, but the partition begins at 5"):
        planned(Fake({"a": 1}, low=5), **options).batch_ranges()
    lenient = planned(Fake({"a": 1}, low=5), failOnDataLoss="false", **options)
    assert lenient.batch_ranges() == []


def test_start_after_the_end_of_a_partition_is_a_loss() -> None:
    start = '{"a":{"0":11}}'
    with pytest.raises(DataLossError, match=r"a \[0\]: the read would begin at 11"):
        planned(Fake({"a": 1}), startingOffsets=start).batch_ranges()
    lenient = planned(Fake({"a": 1}), startingOffsets=start, failOnDataLoss="false")
    assert lenient.batch_ranges() == []
    assert planned(Fake({"a": 1}), startingOffsets='{"a":{"0":10}}').batch_ranges() == []


def test_tasks_follow_the_options() -> None:
    ranges = [PartitionRange("a", number, 0, 6_000) for number in range(4)]

    def sizes(**options: str) -> list[int]:
        read = planned(Fake({}), **options).options
        return [sum(each.size for each in task) for task in tasks_of(ranges, read)]

    assert sizes() == [6_000] * 4
    assert sizes(maxRecordsPerSharedTask="11999") == [6_000] * 4
    assert sizes(maxRecordsPerSharedTask="12000") == [12_000] * 2
    assert sizes(minPartitions="4") == [6_000] * 4
    assert sizes(maxRecordsPerPartition="2000") == [2_000] * 12
    assert sizes(minPartitions="8") == [3_000] * 8
    small = [PartitionRange("a", number, 0, 10) for number in range(40)]
    assert len(tasks_of(small, planned(Fake({})).options)) == 1
    assert len(tasks_of(small, planned(Fake({}), minPartitions="4").options)) == 4
    alone = planned(Fake({}), maxRecordsPerSharedTask="1").options
    assert len(tasks_of(small, alone)) == 40
    both = planned(Fake({}), maxRecordsPerPartition="100", maxRecordsPerSharedTask="200").options
    assert len(tasks_of(small, both)) == 4
    capped = planned(Fake({}), maxRecordsPerPartition="100").options
    assert len(tasks_of(small, capped)) == 4


@pytest.mark.parametrize("partitions", [2, 8, 9, 15, 64])
@pytest.mark.parametrize("size", [100, 375, 1_500, 2_999, 3_001])
def test_shared_tasks_are_not_much_slower_on_many_cores(partitions: int, size: int) -> None:
    """With 8 cores, tasks of their own save at most 0.3 s if a record takes 0.1 ms."""
    ranges = [PartitionRange("a", number, 0, size) for number in range(partitions)]

    def takes_s(tasks: list[tuple[PartitionRange, ...]]) -> float:
        cores = [0] * 8
        for task in tasks:
            cores[cores.index(min(cores))] += sum(each.size for each in task)
        return max(cores) * 1e-4

    shared = tasks_of(ranges, planned(Fake({})).options)
    assert takes_s(shared) - takes_s([(each,) for each in ranges]) <= 0.3


def test_consumers_never_commit_and_never_reset_offsets() -> None:
    kafka = planned(Fake({})).options.kafka
    made = consumer_config(kafka, "mine")
    assert made["group.id"] == "mine"
    assert made["enable.auto.commit"] == "false"
    assert made["auto.offset.reset"] == "error"
    assert made["enable.partition.eof"] == "true"
    assert made["fetch.wait.max.ms"] == "10"

    given = planned(Fake({}), kafka_group_id="theirs", kafka_fetch_max_wait_ms="70")
    made = consumer_config(given.options.kafka, "mine")
    assert (made["group.id"], made["fetch.wait.max.ms"]) == ("theirs", "70")


def test_mirror_commits_new_offsets_and_never_raises(caplog: pytest.LogCaptureFixture) -> None:
    commits: list[list[tuple[str, int, int]]] = []

    class Committing(Fake):
        def poll(self, timeout: float) -> None: ...

        def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
            commits.append([(at.topic, at.partition, at.offset) for at in offsets])
            if self.trouble() is not None:
                raise KafkaException(KafkaError(KafkaError._STATE))

    fake = Committing({})
    mirror = GroupMirror(planned(fake).options.kafka, "lag")
    mirror._consumer = fake  # type: ignore[assignment]
    mirror.commit({("a", 0): 1, ("a", 1): 1})
    mirror.commit({("a", 0): 1, ("a", 1): 2})
    mirror.commit({("a", 0): 1, ("a", 1): 2})
    assert commits == [[("a", 0, 1), ("a", 1, 1)], [("a", 1, 2)]]

    fake.troubles = [True]
    mirror.commit({("a", 0): 5, ("a", 1): 2})
    assert "cannot commit the stream's offsets to group lag" in "\n".join(caplog.messages)
    mirror.commit({("a", 0): 5, ("a", 1): 2})
    assert commits[-1] == [("a", 0, 5), ("a", 1, 2)]


def test_next_commit_repeats_a_failed_mirror() -> None:
    commits: list[int] = []

    class Failing(Fake):
        failed: list[KafkaError]

        def poll(self, timeout: float) -> None:
            if self.failed:
                mirror._committed(self.failed.pop(), [])

        def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
            commits.append(len(offsets))

    fake = Failing({})
    fake.failed = []
    mirror = GroupMirror(planned(fake).options.kafka, "lag")
    mirror._consumer = fake  # type: ignore[assignment]
    mirror.commit({("a", 0): 1, ("a", 1): 1})
    fake.failed = [KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)]
    mirror.commit({("a", 0): 1, ("a", 1): 2})

    assert commits == [2, 2]


def test_records_produced_after_the_end_request_are_after_the_ends() -> None:
    fake = Fake({"a": 1}, high=20)
    fake.troubles = [None, 10]  # for the topics; then for the ends, which are a moment old
    planner = planned(fake, endingTimestamp="15", startingTimestamp="5")
    assert [(each.start, each.end) for each in planner.batch_ranges()] == [(5, 10)]
